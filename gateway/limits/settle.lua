-- Ends a reservation: gives back the tokens that were reserved and not used, and the places in both leases. The
-- reservation is deleted with it, so that a second call, from wherever, changes nothing.
--
-- KEYS 1..2 token buckets (tenant, key), 3..4 leases, 5 reservation
-- ARGV 1 tokens used, 2 reservation id
-- Returns 1 when this call ended it, 0 when it had ended (or was forgotten) before.
local PERIOD = 60000000
local held = redis.call('HMGET', KEYS[5], 'r1', 'tokens', 't1', 't2')
if not held[1] then
  return 0
end
if held[2] then
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
  for i = 1, 2 do
    local limit = tonumber(held[i + 2])
    if limit > 0 then
      local reserved = math.ceil(tonumber(held[2]) * PERIOD / limit)
      local used = math.ceil(tonumber(ARGV[1]) * PERIOD / limit)
      local at = tonumber(redis.call('GET', KEYS[i]) or now) - reserved + used
      if at <= now then
        redis.call('DEL', KEYS[i])
      else
        redis.call('SET', KEYS[i], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000) + 1000)
      end
    end
  end
end
for i = 3, 4 do redis.call('ZREM', KEYS[i], ARGV[2]) end
redis.call('DEL', KEYS[5])
return 1
