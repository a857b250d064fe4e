-- sliding_log: the twin of src/limit/sliding_log.rs, and equal to it bit for bit.
--
-- A state is {ends, sum, next, entries, added}: when the last entry ages out, the sum of those that
-- have not yet, when enough of them do for more to be left, their text, and what this call has
-- added, which is all of the same instant. The text has its own sum in front, so that only entries
-- that have aged out since are looked at, and however long the log is, a decision reads few of them.
--
-- terms: {5, cost, count, deepest, period in µs}: deepest is what may be counted at most
-- text: "ends sum at:cost at:cost ...", oldest first

-- More than an entry takes: 16 digits, a colon and 10.
local LONGEST = 40

local sliding_log = { absent = { 0, 0, 0, '', 0, changed = false }, told = 3, foretells = true }

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
    return { ends, sum, nil, string.sub(text, place), 0 }
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
  return string.format('%.0f %.0f %s', state[1], state[2], entries_of(state))
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
  local place = 1
  while place <= #state[4] do
    local at, cost, after = entry(state[4], place)
    if not at then
      break
    end
    excess, place = excess - cost, after
    if excess <= 0 then
      return math.min(at + terms[5], state[1])
    end
  end
  return state[1]
end

function sliding_log.settle(terms, state)
  if state[3] then
    return state
  elseif state[1] <= now then
    return sliding_log.absent
  end
  local entries, sum, changed = state[4], state[2], false
  local tail = ' ' .. string.sub(entries, -LONGEST)
  local last = below(EXACT, string.match(tail, ' (%d+):%d+$'))
  if last and last > now then
    entries, last, changed = drawn_in(entries), now, true
  end
  local place, oldest = 1, nil
  while entries and last do
    local at, cost, after = entry(entries, place)
    if not at then
      break
    elseif at + terms[5] > now then
      oldest = at
      break
    end
    sum, place = sum - cost, after
  end
  if not oldest or oldest > now or sum < 0 then
    return sliding_log.absent
  end
  local settled = { last + terms[5], sum, oldest + terms[5], string.sub(entries, place), 0 }
  if sum > terms[3] then
    -- In debt, nothing is left before more than that has aged out.
    settled[3] = aged_out(terms, settled, sum - terms[3] + 1)
  end
  -- As long as it ends when it did, there is nothing to write: entries that have aged out are
  -- passed over again.
  settled.changed = changed or settled[1] ~= state[1]
  return settled
end

local function with_cost(terms, state, cost)
  local ends = now + terms[5]
  local next_out = state[2] == 0 and ends or state[3]
  return { ends, state[2] + cost, next_out, state[4], state[5] + cost }
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
  local entries = table.concat(kept, ' ')
  local oldest = entry(entries, 1)
  return { last + terms[5], state[2] - taken, oldest + terms[5], entries, 0 }
end

