-- Finds out which calls of decide.lua were run although their replies were lost, and keeps the others
-- from being run from now on.
--
-- A caller numbers its calls, and sends one after the other. Its fence is a text such as
-- "17 16:1101:1794814088523726 15:1:1794814088520012": calls up to 17 are turned away; 16 and 15
-- are the last that have charged anything, each at its instant in µs, and of the four requests of
-- 16 all but the third were admitted. Behind the 1 of a request with pairs stands a letter for each of
-- them, as in "1fs": f if its first was charged, s if its second was, n if neither was. Raising the
-- first number turns away calls that may still be on their way. The rest stays, so that the question
-- can be asked again if this reply gets lost too.
--
-- KEYS[1]  the caller's fence
-- ARGV[1]  the number of the last call it has sent
-- reply    the fence as it was; calls it does not name, up to ARGV[1], have charged nothing and
--          never will, unless four later ones have
-- cluster  one key, so any hash slot will do; decide.lua wants it in that of its buckets
--
-- Lua, because nothing may come between reading the fence and raising it.

local text = read(KEYS)[1] or ''
local fence, past = string.match(text .. ' ', '^(%d+)( .*)$')
fence = below(EXACT, fence)
if not fence then
  fence, past, text = 0, '', ''
end
if fence < tonumber(ARGV[1]) then
  local raised = string.gsub(ARGV[1] .. past, ' +$', '')
  redis.call('SET', KEYS[1], raised, 'PX', FENCE)
end
return text
