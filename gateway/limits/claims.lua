-- Put in front of the scripts of the limits. What they work on is data: lists of buckets, leases and money counters, of
-- as many levels (tenant, key, adapter) as the caller names. Each list stands in KEYS and ARGV in the order in which it
-- is read here; `gateway/limits/redis_store.py` writes it, `gateway/limits/local_store.py` is the twin of all this.
local key_at, arg_at = 0, 0
local function next_key()
  key_at = key_at + 1
  return KEYS[key_at]
end
local function next_arg()
  arg_at = arg_at + 1
  return ARGV[arg_at]
end
local function next_number() return tonumber(next_arg()) end
local function text(number) return string.format('%.0f', number) end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- Buckets. One is kept as the time at which it would be full again (microseconds of Redis's clock): taking moves it
-- forward, giving back moves it backward, refill is the clock itself, and a missing key is a full bucket. It refills in
-- a minute.
local PERIOD = 60000000

local function cost_of(amount, limit) return math.ceil(amount * PERIOD / limit) end

local function full_at(key) return math.max(tonumber(redis.call('GET', key) or now), now) end

local function keep(key, at)
  if at <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, text(at), 'PX', math.ceil((at - now) / 1000) + 1000)
  end
end

local function left_of(limit, at)
  return math.max(0, math.floor((PERIOD - math.max(0, at - now)) * limit / PERIOD + 1e-9))
end

local function read_buckets()
  local list = {}
  for i = 1, next_number() do
    local key, limit = next_key(), next_number()
    list[i] = {key = key, limit = limit, full = full_at(key), cost = cost_of(next_number(), limit)}
  end
  return list
end

-- Leases: sorted sets of who runs, by when it is forgotten.
local function read_leases()
  local list = {}
  for i = 1, next_number() do list[i] = {key = next_key(), limit = next_number()} end
  return list
end

local function read_keys()
  local list = {}
  for i = 1, next_number() do list[i] = next_key() end
  return list
end

-- Money is two numbers, each of which a double holds exactly: whole units of the currency, and 10^-12 of it. A counter
-- is a hash: w and p were spent, ow and op are reserved by requests that run. Each of those has a line in the sorted
-- set beside it, `id|w|p` by when it is forgotten, so that what a killed worker reserved comes back. The set is kept for
-- HOLDS_MS, anew with each reservation and renewal: were it to go before the counter, its money would stay reserved.
local HOLDS_MS = 5400000
local PARTS = 1000000000000
local function plus(w, p, more_w, more_p)
  local sum = p + more_p
  local carry = math.floor(sum / PARTS)
  return w + more_w + carry, sum - carry * PARTS
end
local function minus(w, p, less_w, less_p) return plus(w, p, -less_w, -less_p) end

local function load_counter(one)
  local kept = redis.call('HMGET', one.key, 'w', 'p', 'ow', 'op')
  if not kept[1] then return end
  one.known = true
  one.w, one.p, one.ow, one.op = tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
  one.over = redis.call('ZRANGEBYSCORE', one.holds, '-inf', text(now), 'LIMIT', 0, 64)
  for _, member in ipairs(one.over) do
    local w, p = string.match(member, '|(%d+)|(%d+)$')
    one.ow, one.op = minus(one.ow, one.op, tonumber(w), tonumber(p))
  end
end

local function keep_counter(one)
  for _, member in ipairs(one.over) do redis.call('ZREM', one.holds, member) end
  redis.call('HSET', one.key, 'w', text(one.w), 'p', text(one.p), 'ow', text(one.ow), 'op', text(one.op))
end

local function read_counters()
  local list = {}
  for i = 1, next_number() do
    local one = {key = next_key(), holds = next_key()}
    one.limit_w, one.limit_p, one.hard = next_number(), next_number(), next_arg() == '1'
    load_counter(one)
    list[i] = one
  end
  return list
end

-- What refuses, numbered through all lists. Of buckets the one that makes wait longest; a lease only where no bucket
-- does; a budget before both, for waiting does not help.
local refused, available, parts, wait = 0, 0, -1, 0
local function weigh_buckets(list)
  for i, one in ipairs(list) do
    -- More than a bucket ever holds is taken from a full one only, and whole: the bucket owes.
    local pause = one.full + math.min(one.cost, PERIOD) - PERIOD - now
    if pause > 0 and pause > wait then
      refused, wait, available = i, pause, left_of(one.limit, one.full)
    end
  end
end

local function weigh_leases(list, before)
  for i, one in ipairs(list) do
    one.running = redis.call('ZCOUNT', one.key, '(' .. text(now), '+inf')
    if one.running >= one.limit and refused == 0 then
      refused, available = before + i, math.max(0, one.limit - one.running)
    end
  end
end

-- With `w` and `p` nothing: whether anything is left.
local function weigh_counters(list, before, w, p)
  for i, one in ipairs(list) do
    if one.known and one.hard then
      local left_w, left_p = minus(one.limit_w, one.limit_p, plus(one.w, one.p, one.ow, one.op))
      local after_w, after_p = minus(left_w, left_p, w, p)
      if after_w < 0 or (w == 0 and p == 0 and after_w == 0 and after_p == 0) then
        refused, available, parts, wait = before + i, math.max(0, left_w), left_w < 0 and 0 or left_p, 0
        return
      end
    end
  end
end

-- Takes from all of a list. What each bucket gave is written into the reservation, under `mark` and its place.
local function take_buckets(list, reservation, mark)
  for i, one in ipairs(list) do
    one.full = one.full + one.cost
    keep(one.key, one.full)
    redis.call('HSET', reservation, mark .. i, text(one.cost))
  end
end

local function take_leases(list, id, lease_ms)
  for _, one in ipairs(list) do
    redis.call('ZREMRANGEBYSCORE', one.key, '-inf', text(now))
    redis.call('ZADD', one.key, text(now + lease_ms * 1000), id)
    redis.call('PEXPIRE', one.key, lease_ms + 60000)
  end
end

-- {state, epoch, which, available, parts, wait in us}, then for each bucket what is left and when it is full, in us.
local function answer(state, epoch, list)
  local found = {state, epoch, refused, available, text(parts), text(wait)}
  for _, one in ipairs(list) do
    found[#found + 1] = left_of(one.limit, one.full)
    found[#found + 1] = text(math.max(0, one.full - now))
  end
  return found
end

