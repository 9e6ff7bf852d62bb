-- The queue's part of acquire and settle: a tenant's own line in one class, as gateway/queueing/ticket.py says. A
-- request is charged when its tokens are reserved, and what it did not use comes back when it is settled: once, since
-- what was charged is kept in the reservation. `key` is nil where a request does not wait.

-- Gives a request its tag. `floor` is the class's virtual time, `length` its tokens by the tenant's weight.
-- Returns tag and credit, as text.
local function enter_line(key, reservation, floor, length)
  if not key then return '0', '0' end
  local line = redis.call('HMGET', key, 'finish', 'credit')
  local tag = math.max(tonumber(line[1] or floor), tonumber(floor))
  redis.call('HSET', key, 'finish', string.format('%.3f', tag + tonumber(length)), 'credit', line[2] or '0')
  redis.call('PEXPIRE', key, 3600000)
  redis.call('HSET', reservation, 'line', length)
  return string.format('%.3f', tag), line[2] or '0'
end

-- Takes back what was not used of the request's length. `served` is '1' if a replica had it: then what its tenant has
-- waiting moves forward. Returns the tenant's credit, as text; '' where there is no line.
local function leave_line(key, reservation, used, served)
  local length = key and redis.call('HGET', reservation, 'line')
  if not length then return '' end
  local line = redis.call('HMGET', key, 'finish', 'credit')
  if not line[1] then return '' end
  local unused = tonumber(length) - tonumber(used)
  local credit = tonumber(line[2])
  if served == '1' then credit = credit + unused end
  redis.call('HSET', key, 'finish', string.format('%.3f', tonumber(line[1]) - unused),
             'credit', string.format('%.3f', credit))
  return string.format('%.3f', credit)
end
