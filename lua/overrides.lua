-- Sets or removes an override, and marks the table of overrides as changed.
--
-- KEYS[1]  the hash of overrides
-- ARGV[1]  the name of the override
-- ARGV[2]  the override; empty to remove it
-- ARGV[3]  a mark that no change had before: a gateway that has seen it has nothing to read
-- ARGV[4]  for how many seconds the hash has to live at least
-- reply    nothing
-- cluster  one key, so any hash slot will do
--
-- Lua, because gateways do not notice a change without its mark, and because nothing may come between
-- reading how long the hash lives and having it live longer: other gateways write overrides into it.

if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('HSET', KEYS[1], 'mark', ARGV[3])
if redis.call('TTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end
