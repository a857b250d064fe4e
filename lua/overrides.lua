-- Sets or removes an entry of a table that gateways share, and marks the table as changed: the overrides,
-- and the tenants of run time.
--
-- KEYS[1]  the hash that is the table
-- ARGV[1]  the name of the entry
-- ARGV[2]  the entry; empty to remove it
-- ARGV[3]  a mark that no change had before: a gateway that has seen it has nothing to read
-- ARGV[4]  for how many seconds the hash has to live at least
-- ARGV[5]  the mark that the table must have, empty for none; left out if it may have any
-- ARGV[6…] more entries to set, each its name and then itself
-- reply    1; 0 if the table has another mark, and then nothing was changed
-- cluster  one key, so any hash slot will do
--
-- Lua, because gateways do not notice a change without its mark, because entries that were checked to
-- go together must not be joined by others in between, and because nothing may come between
-- reading how long the hash lives and having it live longer: other gateways write entries into it.

if ARGV[5] and (redis.call('HGET', KEYS[1], 'mark') or '') ~= ARGV[5] then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
for at = 6, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
end
redis.call('HSET', KEYS[1], 'mark', ARGV[3])
if redis.call('TTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end
return 1
