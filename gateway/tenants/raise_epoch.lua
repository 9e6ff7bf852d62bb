-- Raises a tenant's epoch, never lowers it: bumps may arrive in any order.
-- KEYS[1] epoch; ARGV[1] the epoch that the database holds
local known = tonumber(redis.call('GET', KEYS[1]) or '0')
local given = tonumber(ARGV[1])
if given > known then
  redis.call('SET', KEYS[1], ARGV[1])
  return given
end
return known
