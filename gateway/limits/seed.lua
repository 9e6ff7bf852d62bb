-- Tells a money counter what the charges say was spent: one that is not there begins with it, another is raised to it and
-- never lowered, for charges come after the fact.
--
-- KEYS counter, its sorted set
-- ARGV money in two, for how long it is kept in ms
-- Returns {spent in two, reserved in two}, as text.
local one = {key = next_key(), holds = next_key()}
local w, p, keep_ms = next_number(), next_number(), next_arg()
load_counter(one)
if not one.known then
  one.w, one.p, one.ow, one.op, one.over = w, p, 0, 0, {}
  redis.call('DEL', one.holds)
elseif one.w < w or (one.w == w and one.p < p) then
  one.w, one.p = w, p
end
keep_counter(one)
redis.call('PEXPIRE', one.key, keep_ms)
return {text(one.w), text(one.p), text(one.ow), text(one.op)}
