-- Keeps one answer of the response cache. The first one stands: two workers may have computed the same.
--
-- KEYS 1 entry, 2 index, 3 total
-- ARGV 1 name, 2 prefix of entries, 3 most items, 4 most bytes, 5 age in ms, 6 the sealed answer
-- Returns 1 when it was kept, 0 when it was there already or there is no room.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local size = #ARGV[6]
if not make_room(KEYS[2], KEYS[3], ARGV[2], size, tonumber(ARGV[3]), tonumber(ARGV[4])) then return 0 end
redis.call('SET', KEYS[1], ARGV[6], 'PX', ARGV[5])
list(KEYS[2], KEYS[3], ARGV[1], size, now + tonumber(ARGV[5]))
return 1
