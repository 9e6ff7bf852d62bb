-- Forgets some of what is kept of a tenant; call it until it returns 0.
--
-- KEYS 1 index, 2 total
-- ARGV 1 prefix of the entries
-- Returns how many entries went.
local members = redis.call('ZRANGE', KEYS[1], 0, MOST_STEPS - 1)
for _, member in ipairs(members) do
  redis.call('DEL', ARGV[1] .. string.match(member, ':(.*)$'))
  unlist(KEYS[1], KEYS[2], member)
end
if redis.call('ZCARD', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
return #members
