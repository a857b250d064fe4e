-- The journal of a bucket: what lets a charge be taken out again as if it had never been made.
--
-- A request whose buckets lie in several hash slots of a cluster is charged in each of them before it
-- is known whether all admit it: tentatively. What a token bucket would hold without such a
-- charge does not follow from its state, for it depends on when it would have been full. So beside
-- the state of a bucket with a tentative charge stand the state before it and all charges since,
-- and to give one back is to make them again without it.
--
-- It is kept for a second after the last tentative charge, and has few entries, each with the sum
-- of one call's charges. What is older has become part of the state that it begins with. Windows
-- and logs need none: they count each charge by itself.
--
-- text: behind that of the state and its grants "|before|keeps|at:cost:rest at:cost:rest ...": the state before,
-- until when it is kept, and the charges; costs are as in the args, and of a
-- refill_bucket the rest is 0

-- In µs. Not longer than a key outlives its state.
local JOURNAL_KEEPS = 1000000

local JOURNAL_ENTRIES = 16

local function journal_of(algorithm, text)
  local before, keeps, rest = string.match(text or '', '^([%d ]+)|(%d+)|(.*)$')
  keeps = below(EXACT, keeps)
  if not keeps or not algorithm.journal_charge then
    return nil
  end
  local entries = {}
  for at, cost, part in string.gmatch(rest, '(%d+):(%d+):(%d+)') do
    entries[#entries + 1] = { tonumber(at), tonumber(cost), tonumber(part) }
  end
  return { before = algorithm.parse(before), keeps = keeps, entries = entries }
end

local function with_journal(algorithm, journal, text)
  if not journal then
    return text
  end
  local parts = {}
  for i, it in ipairs(journal.entries) do
    parts[i] = string.format('%.0f:%.0f:%.0f', it[1], it[2], it[3])
  end
  local before = algorithm.text(journal.before)
  return string.format('%s|%s|%.0f|%s', text, before, journal.keeps, table.concat(parts, ' '))
end

-- The journal once a charge is made now, on a bucket that was in the state `before`; nil if there
-- is none to keep.
local function with_charge(journal, algorithm, args, before, tentative)
  if not algorithm.journal_charge then
    return nil
  elseif not journal or journal.keeps <= now then
    if not tentative then
      return nil
    end
    journal = { before = before, keeps = 0, entries = {} }
  end
  if tentative then
    journal.keeps = now + JOURNAL_KEEPS
  end
  local entries = journal.entries
  local last, cost, rest = entries[#entries], algorithm.journal_cost(args)
  if last and last[1] == now then
    last[2], last[3] = last[2] + cost, last[3] + rest
    if last[3] >= UNIT then
      last[2], last[3] = last[2] - 1, last[3] - UNIT
    end
  else
    entries[#entries + 1] = { now, cost, rest }
  end
  while #entries > JOURNAL_ENTRIES do
    local oldest = table.remove(entries, 1)
    journal.before = algorithm.journal_charge(args, journal.before, oldest[1], oldest[2], oldest[3])
  end
  return journal
end

-- The state without a cost that was charged at an instant, and the journal that is left; nil if
-- the journal does not know of it, or does not lead to the state that the bucket has: something
-- else has changed that.
local function replayed(journal, algorithm, args, state, charged_at)
  local whole, state_without, entries, found = journal.before, journal.before, {}, false
  for _, it in ipairs(journal.entries) do
    local at, cost, rest = it[1], it[2], it[3]
    whole = algorithm.journal_charge(args, whole, at, cost, rest)
    if at == charged_at and not found then
      local taken, part = algorithm.journal_cost(args)
      cost, rest, found = cost - taken, rest - part, true
      if rest < 0 then
        cost, rest = cost + 1, rest + UNIT
      end
    end
    if cost < 0 then
      return nil
    elseif cost > 0 then
      state_without = algorithm.journal_charge(args, state_without, at, cost, rest)
      entries[#entries + 1] = { at, cost, rest }
    end
  end
  if not found or whole.ends_at ~= state.ends_at or whole.rest ~= state.rest then
    return nil
  end
  return state_without, { before = journal.before, keeps = journal.keeps, entries = entries }
end

