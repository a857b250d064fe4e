-- sliding_log: the twin of src/limit/sliding_log.rs, and equal to it bit for bit.
--
-- A state is {ends, sum, next, entries, added, older, from}: when no numbers count the last entry any
-- more, the sum of those that these count, when enough of them have aged out for more to be left,
-- the text of all that are kept, and what this call has added, which is all of the same instant. At
-- the front of the text may be entries that only numbers of a longer period still count: `older` is
-- their sum, and those that these numbers count begin at `from`. A settled state also says for which
-- numbers it was worked out. The text has its own sum in front, so that only entries that
-- have aged out since are looked at, and however long the log is, a decision reads few of them.
--
-- terms: {5, cost, count, deepest, period in µs, kept in µs, most}: deepest is what may be counted at
-- most; kept is for how long any numbers of this log count an entry, most what any of them count
-- text: "ends sum at:cost at:cost ...", oldest first

-- More than an entry takes: 16 digits, a colon and 10.
local LONGEST = 40

local sliding_log =
  { absent = { 0, 0, 0, '', 0, 0, 1, changed = false }, told = 3, foretells = true }

-- The entries from a place on: the instant and cost of the first, and where the next begins.
local function entry(entries, place)
  local at, cost, after = string.match(entries, '^(%d+):(%d+) ?()', place)
  at, cost = below(EXACT, at), below(COUNTS, cost)
  return cost and at, cost, after
end

-- The period is not known here: `settle` looks at the entries.
function sliding_log.parse(text)
  local ends, sum, place = string.match(text, '^(%d+) (%d+) ()%d')
  ends, sum = below(EXACT, ends), below(COUNTS, sum)
  if ends and sum then
    return { ends, sum, nil, string.sub(text, place), 0, 0, 1 }
  end
  return sliding_log.absent
end

-- Entries and what was added, as one text.
local function entries_of(state)
  if state[5] == 0 then
    return state[4]
  end
  local added = string.format('%.0f:%.0f', now, state[5])
  return state[4] == '' and added or state[4] .. ' ' .. added
end

function sliding_log.text(state)
  return string.format('%.0f %.0f %s', state[1], state[2] + state[6], entries_of(state))
end

-- Entries that lie ahead of now count as made now.
local function drawn_in(entries)
  local kept, drawn, place = {}, 0, 1
  while place <= #entries do
    local at, cost, after = entry(entries, place)
    if not at then
      return nil
    elseif at < now then
      kept[#kept + 1] = string.format('%.0f:%.0f', at, cost)
    else
      drawn = drawn + cost
    end
    place = after
  end
  kept[#kept + 1] = string.format('%.0f:%.0f', now, drawn)
  return table.concat(kept, ' ')
end

-- When so much of the sum has aged out.
local function aged_out(terms, state, excess)
  local place, last = state[7], state[1] - terms[6] + terms[5]
  while place <= #state[4] do
    local at, cost, after = entry(state[4], place)
    if not at then
      break
    end
    excess, place = excess - cost, after
    if excess <= 0 then
      return math.min(at + terms[5], last)
    end
  end
  return last
end

-- Passes over the entries that are so old, from a place on: where the first begins that is not, its
-- instant, and the sum of those passed over. No instant if there is none.
local function pass_over(entries, place, span)
  local sum = 0
  while place <= #entries do
    local at, cost, after = entry(entries, place)
    if not at then
      break
    elseif at + span > now then
      return place, at, sum
    end
    sum, place = sum + cost, after
  end
  return place, nil, sum
end

-- Whether a state was worked out for these numbers: others of the same call may be its last.
local function is_view_of(terms, state)
  return state.count == terms[3] and state.period == terms[5] and state.kept == terms[6]
end

local function view_of(terms, state)
  state.count, state.period, state.kept = terms[3], terms[5], terms[6]
  return state
end

function sliding_log.settle(terms, state)
  if state == sliding_log.absent or is_view_of(terms, state) then
    return state
  elseif state[1] <= now then
    return sliding_log.absent
  end
  local entries, sum, changed = entries_of(state), state[2] + state[6], false
  local tail = ' ' .. string.sub(entries, -LONGEST)
  local last = below(EXACT, string.match(tail, ' (%d+):%d+$'))
  if last and last > now then
    entries, last, changed = drawn_in(entries), now, true
  end
  if not entries or not last then
    return sliding_log.absent
  end
  local place, oldest, gone = pass_over(entries, 1, terms[6])
  sum = sum - gone
  if not oldest or oldest > now or sum < 0 then
    return sliding_log.absent
  end
  entries = string.sub(entries, place)
  local from, first, older = pass_over(entries, 1, terms[5])
  sum = sum - older
  local next_out = first and first + terms[5] or 0
  local settled = view_of(terms, { last + terms[6], sum, next_out, entries, 0, older, from })
  if sum > terms[3] then
    -- In debt, nothing is left before more than that has aged out.
    settled[3] = aged_out(terms, settled, sum - terms[3] + 1)
  end
  -- As long as it ends when it did, there is nothing to write: entries that have aged out are
  -- passed over again.
  settled.changed = changed or settled[1] ~= state[1]
  return settled
end

-- Of entries that only numbers of a longer period count, the newest are enough to have them refuse.
local function trimmed(terms, state)
  local older, place = state[6], 1
  while older > 0 do
    local at, cost, after = entry(state[4], place)
    -- Those of one instant are one entry, whichever calls have written them.
    local again, more, further = entry(state[4], after or place)
    while at and again == at do
      cost, after = cost + more, further
      again, more, further = entry(state[4], after)
    end
    if not at or cost > older or state[2] + older - cost < terms[7] then
      break
    end
    older, place = older - cost, after
  end
  return string.sub(state[4], place), older, state[7] - place + 1
end

local function with_cost(terms, state, cost)
  local next_out = state[2] == 0 and now + terms[5] or state[3]
  local entries, older, from = trimmed(terms, state)
  local sum, added = state[2] + cost, state[5] + cost
  return view_of(terms, { now + terms[6], sum, next_out, entries, added, older, from })
end

-- The settled state once the cost is charged; or nil if it does not pass, and when it would.
function sliding_log.charge(terms, state)
  if terms[2] > terms[3] then
    return nil, 0
  elseif state[2] + terms[2] > terms[3] then
    return nil, aged_out(terms, state, state[2] + terms[2] - terms[3])
  elseif terms[2] == 0 then
    return state
  end
  return with_cost(terms, state, terms[2])
end

function sliding_log.owe(terms, state)
  local cost = math.min(terms[2], terms[4] - state[2])
  return cost > 0 and with_cost(terms, state, cost) or state
end

-- From the entry of the instant at which it was charged, if that has not aged out.
function sliding_log.give_back(terms, state, charged_at)
  local kept, given, place = {}, terms[2], 1
  local last
  while place <= #state[4] do
    local at, cost, after = entry(state[4], place)
    if not at then
      return state
    end
    if at == charged_at then
      local taken = math.min(given, cost)
      given, cost = given - taken, cost - taken
    end
    if cost > 0 then
      last = at
      kept[#kept + 1] = string.format('%.0f:%.0f', at, cost)
    end
    place = after
  end
  local taken = terms[2] - given
  if taken == 0 then
    return state
  elseif not last then
    return sliding_log.absent
  end
  local sum = state[2] + state[6] - taken
  return sliding_log.settle(terms, { last + terms[6], sum, nil, table.concat(kept, ' '), 0, 0, 1 })
end

