-- Reserves the most that a request may use: tokens in each bucket, money in each budget, and the request and place of its
-- adapter's limits, all or nothing. When it refuses, it also gives back what `admit.lua` took, so that a refused request
-- has changed no counter.
--
-- KEYS reservation, epoch, buckets, leases, counters (two each), the door's buckets, the door's leases, then its tenant's
--      line in the queue (absent: it does not wait)
-- ARGV reservation id, lease in ms, 1 = whatever the limits say, money in two; buckets, leases and counters as for
--      `admit.lua`; the door's buckets likewise (amount 0), number of its leases; floor and length (`share.lua`)
-- Returns what `answer` says, of the door's buckets first: state 1 = reserved (then tag and credit at the end), 0 = refused, -1 = the reservation has
-- ended already, -2 = what a budget spent is not known here, `which` (nothing was changed by the last two).
local reservation, epoch_key = next_key(), next_key()
local id, lease_ms, forced, w, p = next_arg(), next_number(), next_arg() == '1', next_number(), next_number()
local epoch = redis.call('GET', epoch_key) or '-1'
if redis.call('EXISTS', reservation) == 0 then return answer(-1, epoch, {}) end
if redis.call('HEXISTS', reservation, 'reserved') == 1 then
  return redis.error_reply('MOTET tokens reserved twice')
end

local buckets, leases, counters = read_buckets(), read_leases(), read_counters()
for i, one in ipairs(counters) do
  if not one.known then
    refused = #buckets + #leases + i
    return answer(-2, epoch, {})
  end
end
weigh_buckets(buckets)
weigh_leases(leases, #buckets)
weigh_counters(counters, #buckets + #leases, w, p)
local door_buckets, door_leases = read_buckets(), read_keys()
local all = {}
for _, one in ipairs(door_buckets) do all[#all + 1] = one end
for _, one in ipairs(buckets) do all[#all + 1] = one end
if refused > 0 and not forced then
  for i, one in ipairs(door_buckets) do
    one.full = math.max(now, one.full - tonumber(redis.call('HGET', reservation, 'a' .. i) or '0'))
    keep(one.key, one.full)
  end
  for _, key in ipairs(door_leases) do redis.call('ZREM', key, id) end
  redis.call('DEL', reservation)
  return answer(0, epoch, all)
end

redis.call('HSET', reservation, 'reserved', 1)
take_buckets(buckets, reservation, 'b')
take_leases(leases, id, lease_ms)
if #counters > 0 then
  local member = id .. '|' .. text(w) .. '|' .. text(p)
  redis.call('HSET', reservation, 'member', member)
  for _, one in ipairs(counters) do
    one.ow, one.op = plus(one.ow, one.op, w, p)
    keep_counter(one)
    redis.call('ZADD', one.holds, text(now + lease_ms * 1000), member)
    redis.call('PEXPIRE', one.holds, HOLDS_MS)
  end
end
refused = 0
local found = answer(1, epoch, all)
local tag, credit = enter_line(next_key(), reservation, next_arg(), next_arg())
found[#found + 1], found[#found + 2] = tag, credit
return found
