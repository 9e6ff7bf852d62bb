-- Counts attempts to log in, each under a limit and a window; a refused attempt is not counted.
-- KEYS 1..n counters; ARGV 1..n their limits, ARGV n+1 the window in ms
-- Returns {allowed, ms until the fullest counter is empty again}
local window = ARGV[#KEYS + 1]
for i, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[i]) then
    return {0, math.max(1, redis.call('PTTL', key))}
  end
end
for _, key in ipairs(KEYS) do
  if redis.call('INCR', key) == 1 then
    redis.call('PEXPIRE', key, window)
  end
end
return {1, 0}
