-- Reserves a request's tokens in the tenant's and its key's tokens-per-minute bucket, all or nothing. When it
-- refuses, it also gives back what `admit.lua` took, so that a refused request has changed no counter.
--
-- More tokens than a bucket ever holds are admitted from a full bucket only, and charged whole: the bucket owes.
--
-- KEYS 1..2 token buckets (tenant, key), 3..4 request buckets, 5..6 leases, 7 reservation, 8 epoch
-- ARGV 1..2 tokens a minute (0 = no limit), 3 tokens, 4 reservation id
-- Returns {state, epoch, which, limit, available, wait_us, limit, remaining, reset_us}: state 1 = reserved,
-- 0 = refused, -1 = the reservation has ended already (nothing was changed).
local PERIOD = 60000000
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local epoch = redis.call('GET', KEYS[8]) or '-1'

if redis.call('EXISTS', KEYS[7]) == 0 then
  return {-1, epoch, 0, 0, 0, '0', 0, 0, '0'}
end
if redis.call('HEXISTS', KEYS[7], 'tokens') == 1 then
  return redis.error_reply('MOTET tokens reserved twice')
end

local tokens = tonumber(ARGV[3])
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
    cost[i] = math.ceil(tokens * PERIOD / limit)
    local pause = full[i] + math.min(cost[i], PERIOD) - PERIOD - now
    if pause > 0 and pause > wait then
      refused, refused_limit, wait = i, limit, pause
      available = math.max(0, math.floor((PERIOD - (full[i] - now)) * limit / PERIOD))
    end
  end
end

if refused > 0 then
  local held = redis.call('HMGET', KEYS[7], 'r1', 'r2')
  for i = 1, 2 do
    local taken, at = tonumber(held[i]), tonumber(redis.call('GET', KEYS[i + 2]) or now)
    if taken > 0 then
      if at - taken <= now then
        redis.call('DEL', KEYS[i + 2])
      else
        redis.call('SET', KEYS[i + 2], string.format('%.0f', at - taken), 'PX',
                   math.ceil((at - taken - now) / 1000) + 1000)
      end
    end
  end
  for i = 5, 6 do redis.call('ZREM', KEYS[i], ARGV[4]) end
  redis.call('DEL', KEYS[7])
  for i = 1, 2 do
    if full[i] then note(tonumber(ARGV[i]), full[i]) end
  end
  return {0, epoch, refused, refused_limit, available, string.format('%.0f', wait),
          least_limit, least or 0, string.format('%.0f', least_reset)}
end

for i = 1, 2 do
  if full[i] then
    local after = full[i] + cost[i]
    redis.call('SET', KEYS[i], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1000)
    note(tonumber(ARGV[i]), after)
  end
end
redis.call('HSET', KEYS[7], 'tokens', tokens, 't1', ARGV[1], 't2', ARGV[2])
return {1, epoch, 0, 0, 0, '0', least_limit, least or 0, string.format('%.0f', least_reset)}
