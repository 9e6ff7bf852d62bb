-- Admits one request at the door: a request of each requests-per-minute bucket and a place in each concurrency lease, all
-- or nothing, unless a hard budget has nothing left. A refusal writes nothing at all.
--
-- KEYS reservation, epoch, buckets, leases, counters (two each)
-- ARGV reservation id, lease in ms, for how long the reservation is remembered in ms, 1 = whatever the limits say;
--      buckets (number; limit and amount each), leases (number; limit), counters (number; limit in two, 1 = hard)
-- Returns what `answer` says: state 1 = admitted, 0 = refused.
local reservation, epoch_key = next_key(), next_key()
local id, lease_ms, remember_ms, forced = next_arg(), next_number(), next_arg(), next_arg() == '1'
local epoch = redis.call('GET', epoch_key) or '-1'
if redis.call('EXISTS', reservation) == 1 then
  return redis.error_reply('MOTET reservation id used twice')
end

local buckets, leases, counters = read_buckets(), read_leases(), read_counters()
weigh_buckets(buckets)
weigh_leases(leases, #buckets)
weigh_counters(counters, #buckets + #leases, 0, 0)
if refused > 0 and not forced then return answer(0, epoch, buckets) end

redis.call('HSET', reservation, 'admitted', 1)
take_buckets(buckets, reservation, 'a')
take_leases(leases, id, lease_ms)
redis.call('PEXPIRE', reservation, remember_ms)
refused = 0
return answer(1, epoch, buckets)
