-- Put in front of the scripts that keep answers. What is kept of a tenant is bounded together, in number and in
-- bytes: INDEX is a sorted set of "size:name" by the time (ms of Redis's clock) at which each goes by itself, TOTAL
-- the sum of the sizes. An entry's key is PREFIX .. name, in the same slot as all others of the tenant.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- Entries looked at in one call, so that no script runs long.
local MOST_STEPS = 64

local function unlist(index, total, member)
  redis.call('ZREM', index, member)
  redis.call('DECRBY', total, string.match(member, '^%d+'))
end

local function list(index, total, name, size, until_ms)
  if redis.call('ZADD', index, string.format('%.0f', until_ms), size .. ':' .. name) == 1 then
    redis.call('INCRBY', total, size)
  end
  for _, key in ipairs({index, total}) do
    local left = until_ms - now + 60000
    if redis.call('PTTL', key) < left then redis.call('PEXPIRE', key, string.format('%.0f', left)) end
  end
end

-- Whether there is room for `size` more; the entries that would go first by themselves make it.
local function make_room(index, total, prefix, size, most_items, most_bytes)
  if size > most_bytes then return false end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', now),
                                     'LIMIT', 0, MOST_STEPS)) do
    unlist(index, total, member)
  end
  for _ = 1, MOST_STEPS do
    local items = redis.call('ZCARD', index)
    if items == 0 then redis.call('DEL', total) end
    if items < most_items and tonumber(redis.call('GET', total) or '0') + size <= most_bytes then return true end
    local first = redis.call('ZRANGE', index, 0, 0)[1]
    if not first then return false end
    redis.call('DEL', prefix .. string.match(first, ':(.*)$'))
    unlist(index, total, first)
  end
  return false
end

