-- What a request would be told, and what is left of everything; writes nothing.
--
-- KEYS epoch, buckets, leases, counters (two each)
-- ARGV money in two; buckets, leases and counters as for `admit.lua`
-- Returns what `answer` says (state 1, 0, or -2 = what a budget spent is not known here), then for each lease how many
-- run, and for each counter what it spent and has reserved, in two each (-1: not known).
local epoch = redis.call('GET', next_key()) or '-1'
local w, p = next_number(), next_number()
local buckets, leases, counters = read_buckets(), read_leases(), read_counters()
weigh_buckets(buckets)
weigh_leases(leases, #buckets)
weigh_counters(counters, #buckets + #leases, w, p)
local state = refused > 0 and 0 or 1
for i, one in ipairs(counters) do
  if not one.known then state, refused = -2, #buckets + #leases + i end
end
local found = answer(state, epoch, buckets)
for _, one in ipairs(leases) do found[#found + 1] = one.running end
for _, one in ipairs(counters) do
  for _, value in ipairs(one.known and {one.w, one.p, one.ow, one.op} or {-1, 0, 0, 0}) do
    found[#found + 1] = text(value)
  end
end
return found
