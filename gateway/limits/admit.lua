-- Admits one request at the door: a request of each requests-per-minute bucket and a place in each concurrency
-- lease, of the tenant and of its key, all or nothing. A refusal writes nothing at all.
--
-- KEYS 1..2 request buckets (tenant, key), 3..4 leases (tenant, key), 5 reservation, 6 epoch
-- ARGV 1..2 requests a minute (0 = no limit), 3..4 most at a time (0 = no limit), 5 reservation id,
--      6 lease in ms, 7 how long the reservation is remembered, in ms
-- Returns {admitted, epoch, which, limit, available, wait_us, limit, remaining, reset_us}: which = 1..4, the level
-- that refused; the last three describe the request bucket with the least left (limit 0 = none).
local epoch = redis.call('GET', KEYS[6]) or '-1'
if redis.call('EXISTS', KEYS[5]) == 1 then
  return redis.error_reply('MOTET reservation id used twice')
end

weigh(KEYS, ARGV, 1)
for i = 3, 4 do
  local limit = tonumber(ARGV[i])
  if limit > 0 and refused == 0 then
    local running = redis.call('ZCOUNT', KEYS[i], '(' .. string.format('%.0f', now), '+inf')
    if running >= limit then
      refused, refused_limit, available, wait = i, limit, math.max(0, limit - running), 0
    end
  end
end
if refused > 0 then
  return {0, epoch, refused, refused_limit, available, string.format('%.0f', math.max(0, wait)),
          unpack(least(ARGV))}
end

take(KEYS)
local lease_ms = tonumber(ARGV[6])
for i = 3, 4 do
  if tonumber(ARGV[i]) > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now))
    redis.call('ZADD', KEYS[i], string.format('%.0f', now + lease_ms * 1000), ARGV[5])
    redis.call('PEXPIRE', KEYS[i], lease_ms + 60000)
  end
end
redis.call('HSET', KEYS[5], 'r1', cost[1] or 0, 'r2', cost[2] or 0)
redis.call('PEXPIRE', KEYS[5], ARGV[7])
return {1, epoch, 0, 0, 0, '0', unpack(least(ARGV))}
