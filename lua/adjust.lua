-- Corrects buckets after the fact, one by one and in order.
--
-- KEYS     a bucket for each correction, and the caller's fence if it has one
-- ARGV[1]  msgpack [corrections, call]
--            corrections  for each key [what, charged_at, terms]: `what` is 1 to give back the
--                         cost that was charged at the instant `charged_at`, 2 to owe the cost
--                         without asking whether it passes, drawn in where that may go no deeper,
--                         3 to hold exactly as many places as the cost says (concurrency); terms
--                         as in decide.lua
--            call         the number of this call, if the caller has a fence: one that was made
--                         already, with its reply lost, is not made again
-- reply    now, in µs
-- cluster  all KEYS must be of one slot: the caller makes one call for each
--
-- Lua, because nobody may come between reading a bucket and writing it.
--
-- Giving back restores what would be there had the charge not been made, where the bucket has a
-- journal (journal.lua) or counts each charge by itself, and never leaves more than that. So nothing
-- is given back to a state that had to be drawn in, or if the clock has stepped back since: how much
-- of the charge is still in there cannot be told. Slots in flight (concurrency) are counted: they
-- come back whatever the clock shows.

local GIVE_BACK, OWE, HOLD = 1, 2, 3

local argument = cmsgpack.unpack(ARGV[1])
local corrections, call = argument[1], argument[2]
if call then
  local made = string.match(read({ KEYS[#KEYS] })[1] or '', '^%d+$')
  if made and tonumber(made) >= call then
    return now
  end
  redis.call('SET', KEYS[#KEYS], string.format('%.0f', call), 'PX', FENCE)
end

local function adjust(algorithm, what, charged_at, terms, state)
  local settled = algorithm.settle(terms, state)
  if what == HOLD then
    return algorithm.hold(terms, settled), settled
  elseif what == OWE then
    return terms[2] == 0 and settled or algorithm.owe(terms, settled), settled
  elseif algorithm.hold then
    return algorithm.give_back(terms, settled), settled
  elseif drawn(settled, state) or settled[1] <= now or charged_at > now then
    return settled, settled
  end
  return algorithm.give_back(terms, settled, charged_at), settled
end

for i, asked in ipairs(corrections) do
  local what, charged_at, terms = asked[1], asked[2], asked[3]
  local algorithm = algorithm_of(terms)
  local text, journal = without_journal(read({ KEYS[i] })[1])
  local before = text and algorithm.parse(text) or algorithm.absent
  journal = journal and journal_of(algorithm, journal)
  local after, settled, kept
  if what == GIVE_BACK and journal and charged_at <= now then
    after, kept = replayed(journal, algorithm, terms, before, charged_at)
  end
  if not after then
    after, settled = adjust(algorithm, what, charged_at, terms, before)
    if what == OWE and journal and after ~= settled and settled == before then
      kept = with_charge(journal, algorithm, terms, before, false)
    end
  end
  if after == settled and not drawn(settled, before) then
    -- Nothing to write.
  elseif after == algorithm.absent then
    redis.call('DEL', KEYS[i])
  else
    write(KEYS[i], after, with_journal(algorithm, kept, algorithm.text(after)))
  end
end

return now
