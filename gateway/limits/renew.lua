-- Keeps a running request's places in its leases. One whose reservation has ended is left alone.
--
-- KEYS 1..2 leases (tenant, key), 3 reservation
-- ARGV 1..2 whether each lease is held (0 or 1), 3 reservation id, 4 lease in ms, 5 reservation memory in ms
-- Returns 1 when renewed, 0 when the reservation has ended.
if redis.call('EXISTS', KEYS[3]) == 0 then
  return 0
end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local lease_ms = tonumber(ARGV[4])
for i = 1, 2 do
  if ARGV[i] == '1' then
    redis.call('ZADD', KEYS[i], string.format('%.0f', now + lease_ms * 1000), ARGV[3])
    redis.call('PEXPIRE', KEYS[i], lease_ms + 60000)
  end
end
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return 1
