-- Admits one request at the door: a request of each requests-per-minute bucket and a place in each concurrency
-- lease, of the tenant and of its key, all or nothing. A refusal writes nothing at all.
--
-- Buckets are kept as the time at which they would be full again (microseconds of Redis's clock): taking moves it
-- forward, giving back moves it backward, refill is the clock itself, and a missing key is a full bucket.
--
-- KEYS 1..2 request buckets (tenant, key), 3..4 leases (tenant, key), 5 reservation, 6 epoch
-- ARGV 1..2 requests a minute (0 = no limit), 3..4 most at a time (0 = no limit), 5 reservation id,
--      6 lease in ms, 7 how long the reservation is remembered, in ms
-- Returns {admitted, epoch, which, limit, available, wait_us, limit, remaining, reset_us}: which = 1..4, the level
-- that refused; the last three describe the request bucket with the least left (limit 0 = none).
local PERIOD = 60000000
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local epoch = redis.call('GET', KEYS[6]) or '-1'

if redis.call('EXISTS', KEYS[5]) == 1 then
  return redis.error_reply('MOTET reservation id used twice')
end

local full, cost = {}, {}
local least, least_limit, least_reset = nil, 0, 0
local function note(limit, full_at)
  local left = math.floor((PERIOD - math.max(0, full_at - now)) * limit / PERIOD + 1e-9)
  if least == nil or left < least then
    least, least_limit, least_reset = math.max(0, left), limit, math.max(0, full_at - now)
  end
end

local refused, refused_limit, available, wait = 0, 0, 0, -1
for i = 1, 2 do
  local limit = tonumber(ARGV[i])
  if limit > 0 then
    full[i] = math.max(tonumber(redis.call('GET', KEYS[i]) or now), now)
    cost[i] = math.ceil(PERIOD / limit)
    local pause = full[i] + math.min(cost[i], PERIOD) - PERIOD - now
    if pause > 0 and pause > wait then
      refused, refused_limit, wait = i, limit, pause
      available = math.max(0, math.floor((PERIOD - (full[i] - now)) * limit / PERIOD))
    end
  end
end
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
  for i = 1, 2 do
    if full[i] then note(tonumber(ARGV[i]), full[i]) end
  end
  return {0, epoch, refused, refused_limit, available, string.format('%.0f', math.max(0, wait)),
          least_limit, least or 0, string.format('%.0f', least_reset)}
end

for i = 1, 2 do
  if full[i] then
    local after = full[i] + cost[i]
    redis.call('SET', KEYS[i], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1000)
    note(tonumber(ARGV[i]), after)
  end
end
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
return {1, epoch, 0, 0, 0, '0', least_limit, least or 0, string.format('%.0f', least_reset)}
