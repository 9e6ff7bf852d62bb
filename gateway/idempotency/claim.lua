-- What a request with an idempotency key finds: nobody (it runs), its first try under way (it waits), that try's
-- owner gone (it runs in its place), or an answer.
--
-- KEYS 1 record
-- ARGV 1 digest of the request, 2 the same under the previous key or '', 3 request id, 4 lease in ms,
--      5 how long a record is kept, in ms
-- Returns {what, request id, generation, answer}
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local held = redis.call('HMGET', KEYS[1], 'digest', 'state', 'request', 'generation', 'until')
local lease = string.format('%.0f', now + tonumber(ARGV[4]))
if not held[1] then
  redis.call('HSET', KEYS[1], 'digest', ARGV[1], 'state', 'running', 'request', ARGV[3], 'generation', 1,
             'until', lease)
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return {'new', ARGV[3], 1, ''}
end
if held[1] ~= ARGV[1] and held[1] ~= ARGV[2] then
  return {'other', '', 0, ''}
end
if held[2] == 'done' then
  return {'done', held[3], tonumber(held[4]), redis.call('HGET', KEYS[1], 'answer')}
end
if held[2] == 'spent' then
  return {'spent', held[3], tonumber(held[4]), ''}
end
if tonumber(held[5]) > now then
  redis.call('HSET', KEYS[1], 'wanted', string.format('%.0f', now))
  return {'running', held[3], tonumber(held[4]), ''}
end
local generation = redis.call('HINCRBY', KEYS[1], 'generation', 1)
redis.call('HSET', KEYS[1], 'until', lease)
return {'taken', held[3], generation, ''}
