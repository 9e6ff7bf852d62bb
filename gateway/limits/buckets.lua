-- Put in front of the scripts that touch buckets. A bucket is kept as the time at which it would be full again
-- (microseconds of Redis's clock): taking moves it forward, giving back moves it backward, refill is the clock
-- itself, and a missing key is a full bucket. It refills in a minute.
local PERIOD = 60000000
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- What `amount` costs of a bucket of `limit` a minute.
local function cost_of(amount, limit)
  return math.ceil(amount * PERIOD / limit)
end

local function full_at(key)
  return math.max(tonumber(redis.call('GET', key) or now), now)
end

local function keep(key, at)
  if at <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000) + 1000)
  end
end

-- What is left of a bucket that will be full at `at`.
local function left_of(limit, at)
  return math.max(0, math.floor((PERIOD - math.max(0, at - now)) * limit / PERIOD + 1e-9))
end

-- The two buckets of one script, 0 = no limit: `full` as they are, `cost` of this call, and whether they refuse
-- it. More than a bucket ever holds is taken from a full one only, and whole: the bucket owes.
local full, cost = {}, {}
local refused, refused_limit, available, wait = 0, 0, 0, -1
local function weigh(keys, limits, amount)
  for i = 1, 2 do
    local limit = tonumber(limits[i])
    if limit > 0 then
      full[i], cost[i] = full_at(keys[i]), cost_of(amount, limit)
      local pause = full[i] + math.min(cost[i], PERIOD) - PERIOD - now
      if pause > 0 and pause > wait then
        refused, refused_limit, wait = i, limit, pause
        available = left_of(limit, full[i])
      end
    end
  end
end

-- Takes the cost from both buckets.
local function take(keys)
  for i = 1, 2 do
    if full[i] then
      full[i] = full[i] + cost[i]
      keep(keys[i], full[i])
    end
  end
end

-- {limit, remaining, reset in us} of the bucket with the least left; limit 0 = there is none.
local function least(limits)
  local found
  for i = 1, 2 do
    if full[i] then
      local limit = tonumber(limits[i])
      local left = left_of(limit, full[i])
      if not found or left < found[2] then
        found = {limit, left, string.format('%.0f', math.max(0, full[i] - now))}
      end
    end
  end
  return found or {0, 0, '0'}
end

