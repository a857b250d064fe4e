-- Changes what operators have decided about callers, and says that it has changed.
--
-- KEYS[1]  the hash of rulings
-- ARGV[1]  what the ruling is called
-- ARGV[2]  the ruling; empty to take it back
-- ARGV[3]  a mark that no change had before: whoever has seen it has nothing to read
-- ARGV[4]  for how many seconds the hash has to live at least
-- reply    nothing
-- cluster  one key, so any slot will do
--
-- Lua, because a change without its mark is heard of by nobody, and because nobody may come between
-- reading how long the hash lives and having it live longer: others have written rulings into it.

if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('HSET', KEYS[1], 'mark', ARGV[3])
if redis.call('TTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end
