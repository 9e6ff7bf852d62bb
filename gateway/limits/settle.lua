-- Ends a reservation: gives back the tokens that were reserved and not used, and the places in both leases. The
-- reservation is deleted with it, so that a second call, from wherever, changes nothing.
--
-- KEYS 1..2 token buckets (tenant, key), 3..4 leases, 5 reservation, 6 its tenant's line in the queue (may be absent)
-- ARGV 1 tokens used, 2 reservation id, 3 length used and 4 whether it was served (`share.lua`)
-- Returns {ended, credit}: 1 when this call ended it, 0 when it had ended (or was forgotten) before.
local held = redis.call('HMGET', KEYS[5], 'r1', 'tokens', 't1', 't2')
if not held[1] then
  return {0, ''}
end
if held[2] then
  for i = 1, 2 do
    local limit = tonumber(held[i + 2])
    if limit > 0 then
      local reserved, used = cost_of(tonumber(held[2]), limit), cost_of(tonumber(ARGV[1]), limit)
      keep(KEYS[i], full_at(KEYS[i]) - reserved + used)
    end
  end
end
for i = 3, 4 do redis.call('ZREM', KEYS[i], ARGV[2]) end
local credit = leave_line(KEYS[6], KEYS[5], ARGV[3], ARGV[4])
redis.call('DEL', KEYS[5])
return {1, credit}
