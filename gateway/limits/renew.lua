-- Keeps a running request's places in its leases, and its money reserved. One whose reservation has ended is left alone.
--
-- KEYS reservation, the door's leases, those that `reserve.lua` takes, the sorted sets of counters
-- ARGV reservation id, lease in ms, reservation memory in ms, number of the door's leases, of the others, of counters
-- Returns 1 when renewed, 0 when the reservation has ended.
local reservation, id, lease_ms, remember_ms = next_key(), next_arg(), next_number(), next_arg()
if redis.call('EXISTS', reservation) == 0 then return 0 end
local until_us = text(now + lease_ms * 1000)
local function hold(keys)
  for _, key in ipairs(keys) do
    redis.call('ZADD', key, until_us, id)
    redis.call('PEXPIRE', key, lease_ms + 60000)
  end
end
hold(read_keys())
local later = read_keys()
if redis.call('HEXISTS', reservation, 'reserved') == 1 then hold(later) end
local member = redis.call('HGET', reservation, 'member')
for _, key in ipairs(read_keys()) do
  if member then
    redis.call('ZADD', key, 'XX', until_us, member)
    redis.call('PEXPIRE', key, HOLDS_MS)
  end
end
redis.call('PEXPIRE', reservation, remember_ms)
return 1
