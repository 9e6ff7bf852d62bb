-- Takes back the end of a try whose usage could not be recorded: the next request of its key runs anew.
--
-- KEYS 1 record, 2 index, 3 total
-- ARGV 1 request id, 2 generation, 3 name
-- Returns as complete.lua does.
local held = redis.call('HMGET', KEYS[1], 'request', 'generation')
if held[1] ~= ARGV[1] then return 0 end
if held[2] ~= ARGV[2] then return -1 end
local member = RECORD + redis.call('HSTRLEN', KEYS[1], 'answer') .. ':' .. ARGV[3]
if redis.call('ZSCORE', KEYS[2], member) then unlist(KEYS[2], KEYS[3], member) end
redis.call('DEL', KEYS[1])
return 1
