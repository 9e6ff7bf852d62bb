-- Ends a reservation: gives back the tokens and the money that were reserved and not used, and the places in all leases.
-- The reservation is deleted with it, so that a second call, from wherever, changes nothing.
--
-- KEYS reservation, buckets, leases, counters (two each), then its tenant's line in the queue (may be absent)
-- ARGV reservation id, money spent in two, number of buckets (limit and amount used each), of leases, of counters; length
--      used and whether it was served (`share.lua`)
-- Returns {ended, credit}: 1 when this call ended it, 0 when it had ended (or was forgotten) before.
local reservation, id, w, p = next_key(), next_arg(), next_number(), next_number()
local listed = redis.call('HGETALL', reservation)
if #listed == 0 then return {0, ''} end
local held = {}
for i = 1, #listed, 2 do held[listed[i]] = listed[i + 1] end

for i, one in ipairs(read_buckets()) do
  local reserved = tonumber(held['b' .. i])
  if reserved then keep(one.key, one.full - reserved + one.cost) end
end
for _, key in ipairs(read_keys()) do redis.call('ZREM', key, id) end
for _ = 1, next_number() do
  local one = {key = next_key(), holds = next_key()}
  load_counter(one)
  if one.known then
    local member = held['member']
    if member and redis.call('ZREM', one.holds, member) == 1 then
      local swept = false
      for _, gone in ipairs(one.over) do swept = swept or gone == member end
      if not swept then
        local less_w, less_p = string.match(member, '|(%d+)|(%d+)$')
        one.ow, one.op = minus(one.ow, one.op, tonumber(less_w), tonumber(less_p))
      end
    end
    one.w, one.p = plus(one.w, one.p, w, p)
    keep_counter(one)
  end
end
local credit = leave_line(next_key(), reservation, next_arg(), next_arg())
redis.call('DEL', reservation)
return {1, credit}
