-- Ends a running try without an answer: the next request of its key runs anew.
--
-- KEYS 1 record
-- ARGV 1 request id, 2 generation
-- Returns as complete.lua does.
local held = redis.call('HMGET', KEYS[1], 'request', 'generation', 'state')
if held[1] ~= ARGV[1] then return 0 end
if held[2] ~= ARGV[2] then return -1 end
if held[3] ~= 'running' then return 0 end
redis.call('DEL', KEYS[1])
return 1
