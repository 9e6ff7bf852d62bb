-- Reserves a request's tokens in the tenant's and its key's tokens-per-minute bucket, all or nothing. When it
-- refuses, it also gives back what `admit.lua` took, so that a refused request has changed no counter.
--
-- KEYS 1..2 token buckets (tenant, key), 3..4 request buckets, 5..6 leases, 7 reservation, 8 epoch,
--      9 its tenant's line in the queue (absent: it does not wait)
-- ARGV 1..2 tokens a minute (0 = no limit), 3 tokens, 4 reservation id, 5 floor and 6 length (`share.lua`)
-- Returns {state, epoch, which, limit, available, wait_us, limit, remaining, reset_us}: state 1 = reserved (then also
-- tag and credit), 0 = refused, -1 = the reservation has ended already (nothing was changed).
local epoch = redis.call('GET', KEYS[8]) or '-1'
if redis.call('EXISTS', KEYS[7]) == 0 then
  return {-1, epoch, 0, 0, 0, '0', 0, 0, '0'}
end
if redis.call('HEXISTS', KEYS[7], 'tokens') == 1 then
  return redis.error_reply('MOTET tokens reserved twice')
end

local tokens = tonumber(ARGV[3])
weigh(KEYS, ARGV, tokens)
if refused > 0 then
  local held = redis.call('HMGET', KEYS[7], 'r1', 'r2')
  for i = 1, 2 do
    local taken = tonumber(held[i])
    if taken > 0 then keep(KEYS[i + 2], full_at(KEYS[i + 2]) - taken) end
  end
  for i = 5, 6 do redis.call('ZREM', KEYS[i], ARGV[4]) end
  redis.call('DEL', KEYS[7])
  return {0, epoch, refused, refused_limit, available, string.format('%.0f', wait), unpack(least(ARGV))}
end

take(KEYS)
redis.call('HSET', KEYS[7], 'tokens', tokens, 't1', ARGV[1], 't2', ARGV[2])
local answer = {1, epoch, 0, 0, 0, '0', unpack(least(ARGV))}
answer[10], answer[11] = enter_line(KEYS[9], KEYS[7], ARGV[5], ARGV[6])
return answer
