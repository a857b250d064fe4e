-- Finds out whether a call of decide.lua was run whose reply did not come, and sees to it that it
-- never is from now on.
--
-- A caller numbers its calls, and sends one after the other. Its fence is a text of two numbers:
-- the last call that has charged anything, and the last that was run or given up. Raising the
-- second turns away all calls up to it, which may still be on their way. The first stays, so that
-- the question can be asked again if this reply gets lost in turn.
--
-- KEYS[1]  the caller's fence
-- ARGV[1]  the number of the last call it has sent
-- reply    the number of the last call that was run, if it charged anything; those after it, up to
--          ARGV[1], have charged nothing and never will
-- cluster  one key, so any slot will do; decide.lua wants it in the slot of its buckets
--
-- Lua, because nobody may come between reading the fence and raising it.

local text = redis.call('MGET', KEYS[1])[1]
local run, fence = string.match(text or '', '^(%d+) (%d+)$')
run, fence = tonumber(run or 0), tonumber(fence or 0)
local sent = tonumber(ARGV[1])
if fence < sent then
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', run, sent), 'PX', 600000)
end
return run
