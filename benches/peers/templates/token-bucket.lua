-- A token bucket of the usual kind, for the peer that brings no script of its own.
-- KEYS[1] the bucket  ARGV[1] tokens it holds and gains a period  ARGV[2] the period in seconds
-- Answers 1 if one token was there and is taken, 0 if not. A refusal writes nothing.
local burst, period = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * burst / period)
if tokens < 1 then
  return 0
end
redis.call('HSET', KEYS[1], 'tokens', tokens - 1, 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(period) + 1)
return 1
