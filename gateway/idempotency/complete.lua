-- Ends a running try with its answer, once. Without one (it was too large, or there is no room) the record stays as
-- spent, so that the request does not run twice unasked.
--
-- KEYS 1 record, 2 index, 3 total
-- ARGV 1 request id, 2 generation, 3 name, 4 prefix of records, 5 most items, 6 most bytes, 7 sealed answer or ''
-- Returns 1 when this call ended it, -1 when another runs in its place, 0 when nothing is known of it any more.
local held = redis.call('HMGET', KEYS[1], 'request', 'generation', 'state')
if held[1] ~= ARGV[1] then return 0 end
if held[2] ~= ARGV[2] then return -1 end
if held[3] ~= 'running' then return 0 end
local size = RECORD + #ARGV[7]
local answer = ARGV[7]
if not make_room(KEYS[2], KEYS[3], ARGV[4], size, tonumber(ARGV[5]), tonumber(ARGV[6])) then
  size, answer = RECORD, ''
  make_room(KEYS[2], KEYS[3], ARGV[4], size, tonumber(ARGV[5]), tonumber(ARGV[6]))
end
if answer == '' then
  redis.call('HSET', KEYS[1], 'state', 'spent')
else
  redis.call('HSET', KEYS[1], 'state', 'done', 'answer', answer)
end
list(KEYS[2], KEYS[3], ARGV[3], size, now + math.max(1, redis.call('PTTL', KEYS[1])))
return 1
