-- Keeps a running try's lease, and says how long ago a retry last asked for it.
--
-- KEYS 1 record
-- ARGV 1 request id, 2 generation, 3 lease in ms
-- Returns {1, ms since or -1} when it is still the owner's, {-1, -1} when another runs in its place, {0, -1} when
-- nothing is known of it any more.
local held = redis.call('HMGET', KEYS[1], 'request', 'generation', 'state', 'wanted')
if held[1] ~= ARGV[1] then return {0, -1} end
if held[2] ~= ARGV[2] then return {-1, -1} end
if held[3] ~= 'running' then return {0, -1} end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + tonumber(ARGV[3])))
if not held[4] then return {1, -1} end
return {1, math.max(0, now - tonumber(held[4]))}
