-- Divides the replicas' places among the workers of all gateways. A worker reports all of its state, not what
-- changed, so that a lost answer or a report sent twice does no harm; a report older than the last is not heard.
--
-- KEYS 1 workers (hash: worker -> its last report), 2 classes (hash: s1..s3 served by share, t1..t3 virtual times)
-- ARGV 1 worker, 2 its report (JSON), 3 places in all, 4 places above them for tenants that are owed one,
--      5 lease in ms, 6 for how long what waits elsewhere counts, in ms, 7 distance
-- Returns JSON: what the worker may use, and what it has to know of the others; '' = an older report.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local mine = cjson.decode(ARGV[2])
local capacity, margin, distance = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[7])

local held, wanted, tenants, workers, rate, waiting = 0, 0, 0, 1, 0, 0
local heads, floors, loads = {-1, -1, -1}, {-1, -1, -1}, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local one = cjson.decode(all[i + 1])
  if all[i] == ARGV[1] then
    if one.sequence >= mine.sequence then return '' end
  elseif one.over <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    held, tenants, workers, rate = held + one.held, tenants + one.tenants, workers + 1, rate + one.rate
    if one.stale > now then
      wanted, waiting = wanted + one.wanted, waiting + one.waiting
      for c = 1, 3 do
        if one.heads[c] >= 0 and (heads[c] < 0 or one.heads[c] < heads[c]) then heads[c] = one.heads[c] end
        if one.floors[c] >= 0 and (floors[c] < 0 or one.floors[c] < floors[c]) then floors[c] = one.floors[c] end
      end
    end
    for url, load in pairs(one.loads) do
      local sum = loads[url] or {0, 0}
      loads[url] = {sum[1] + load[1], sum[2] + load[2]}
    end
  end
end

-- Classes: what was charged, and nothing saved up by one that has nothing waiting.
local kept = redis.call('HMGET', KEYS[2], 's1', 's2', 's3', 't1', 't2', 't3')
local served, times, least = {}, {}, nil
for c = 1, 3 do
  served[c] = (tonumber(kept[c] or '0')) + mine.charges[c]
  times[c] = math.max(tonumber(kept[c + 3] or '0'), mine.times[c])
  if (heads[c] >= 0 or mine.heads[c] >= 0) and (not least or served[c] < least) then least = served[c] end
end
local fields = {}
for c = 1, 3 do
  if least and heads[c] < 0 and mine.heads[c] < 0 and served[c] < least then served[c] = least end
  fields[#fields + 1] = 's' .. c
  fields[#fields + 1] = string.format('%.3f', served[c])
  fields[#fields + 1] = 't' .. c
  fields[#fields + 1] = string.format('%.3f', times[c])
end
redis.call('HSET', KEYS[2], unpack(fields))

-- In turn: the worker has something that is no further ahead than the distance of what waits elsewhere.
local in_turn = false
for c = 1, 3 do
  if mine.heads[c] >= 0 and served[c] <= least + distance
     and (heads[c] < 0 or mine.heads[c] <= heads[c] + distance) then
    in_turn = true
  end
end

local room = capacity - held
local free = math.max(0, room - mine.used)
local more = math.min(mine.want, in_turn and free or math.max(0, free - wanted))
if free < mine.chunk then more = 0 end
local kept_free = free > more  -- for somebody who needs more of them at once, or comes first
if wanted == 0 then more = more + math.min(mine.spare, math.floor((free - more) / workers)) end
local limit = math.max(0, math.min(mine.used + more, room))
local owed = kept_free and 0 or math.max(0, mine.want_owed - more)
owed = math.min(owed, math.max(0, capacity + margin - held - math.max(limit, mine.used)))
local limit_owed = owed > 0 and math.max(limit, mine.used) + owed or limit

redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({
  sequence = mine.sequence, over = now + tonumber(ARGV[5]), stale = now + tonumber(ARGV[6]),
  held = math.max(mine.used, limit_owed), wanted = math.max(0, mine.want - more), waiting = mine.waiting,
  tenants = mine.tenants, heads = mine.heads, floors = mine.floors, rate = mine.rate, loads = mine.loads,
}))
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[5]) + 60000)
return cjson.encode({
  limit = limit, limit_owed = limit_owed, served = served, times = times, heads = heads, floors = floors, wanted = wanted,
  waiting = waiting, tenants = tenants, workers = workers, rate = rate, loads = loads,
})
