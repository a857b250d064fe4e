-- Counts the nodes that share this Redis.
--
-- KEYS[1]  a sorted set: each node under the time of its last heartbeat, in ms
-- ARGV[1]  this node's id
-- ARGV[2]  for how many ms a heartbeat counts
-- ARGV[3]  'leave' if this node goes: it is taken out at once
-- reply    how many nodes are live, this one included unless it leaves
-- cluster  one key, so any slot will do
--
-- Lua, because the times that are compared must be Redis's own: the clocks of the nodes differ.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lifetime = tonumber(ARGV[2])

if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
if ARGV[3] == 'leave' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - lifetime))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
