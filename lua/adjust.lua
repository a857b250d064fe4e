-- Corrects buckets after the fact, one by one and in order.
--
-- KEYS     a bucket for each correction, and the caller's fence if it has one
-- ARGV[1]  msgpack [corrections, call]
--            corrections  for each key [what, charged_at, numbers]: `what` is 1 to refund the cost
--                         that was charged at the instant `charged_at`, 2 to charge the cost without
--                         asking whether it passes, as deep as that may go, 3 to hold exactly as many
--                         slots as the cost says (concurrency); numbers as in decide.lua
--            call         the number of this call, if the caller has a fence: one that was made
--                         already, with its reply lost, is not made again
-- reply    now, in µs
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because nothing may come between reading a bucket and writing it.
--
-- A refund restores what would be there had the charge not been made, where the bucket has a journal
-- (journal.lua) or counts each charge by itself, and never leaves more than that. So nothing is
-- refunded to a state that had to be clamped, or if the clock has stepped back since: how much of the
-- charge is still in there is not known. Slots (concurrency) are counted: they come back whatever the
-- clock shows.

local REFUND, CHARGE_AFTER, HOLD = 1, 2, 3

local argument = cmsgpack.unpack(ARGV[1])
local corrections, call = argument[1], argument[2]
if call then
  local made = string.match(read({ KEYS[#KEYS] })[1] or '', '^%d+$')
  if made and tonumber(made) >= call then
    return now
  end
  redis.call('SET', KEYS[#KEYS], string.format('%.0f', call), 'PX', FENCE)
end

local function adjust(algorithm, what, charged_at, args, state)
  local clamped = algorithm.clamp(args, state)
  if what == HOLD then
    return algorithm.hold(args, clamped), clamped
  elseif what == CHARGE_AFTER then
    return args.cost == 0 and clamped or algorithm.charge_after(args, clamped), clamped
  elseif algorithm.hold then
    return algorithm.refund(args, clamped), clamped
  elseif was_clamped(clamped, state) or clamped.ends_at <= now or charged_at > now then
    return clamped, clamped
  end
  return algorithm.refund(args, clamped, charged_at), clamped
end

for i, correction in ipairs(corrections) do
  local what, charged_at, numbers = correction[1], correction[2], correction[3]
  local algorithm = algorithm_of(numbers)
  local args = algorithm.wire_args(numbers)
  local text, grants, journal = split_text(read({ KEYS[i] })[1])
  local before = text and algorithm.parse(text) or algorithm.absent
  local is_changed = false
  if grants then
    before, grants = expire_grants(algorithm, args, before, grants)
    local in_range = algorithm.clamp(args, before)
    is_changed = was_clamped(in_range, before)
    before = refill_capped(algorithm, args, in_range, grants)
  end
  journal = journal and journal_of(algorithm, journal)
  local after, clamped, kept
  if what == REFUND and journal and charged_at <= now then
    after, kept = replayed(journal, algorithm, args, before, charged_at)
  end
  if not after then
    after, clamped = adjust(algorithm, what, charged_at, args, before)
    if what == CHARGE_AFTER and journal and after ~= clamped and clamped == before then
      kept = with_charge(journal, algorithm, args, before, false)
    end
  end
  if after == clamped and not is_changed and not was_clamped(clamped, before) then
    -- Nothing to write.
  elseif after == algorithm.absent and not (grants and grants[1]) then
    redis.call('DEL', KEYS[i])
  else
    local whole = with_journal(algorithm, kept, with_grants(grants, algorithm.text(after)))
    write_bucket(KEYS[i], algorithm, args, after, grants, whole)
  end
end

return now
