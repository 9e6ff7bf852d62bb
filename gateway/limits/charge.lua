-- Takes from buckets what was let in while this Redis could not be asked, whatever they hold: they may owe.
--
-- KEYS buckets
-- ARGV number of buckets; limit and amount each
for _, one in ipairs(read_buckets()) do keep(one.key, one.full + one.cost) end
return 1
