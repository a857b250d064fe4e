-- sliding_window: the twin of src/limit/sliding_window.rs, and equal to it bit for bit.
--
-- A state is {ends, previous, current, mark}: of the window of the last charge, the count before
-- it and its own; `ends` is the end of the window after it, and the mark tells of which period it
-- is. A live state of another period, or from a clock that stepped back, counts whole in this
-- window.
--
-- terms: {2, cost, count, deepest, period in µs, mark of the period, reach}: deepest is what may be
-- counted in a window at most, and reach what any numbers of this bucket may count in one
-- text: "ends previous current mark"

local MARKS = 16

-- A period has up to 45 bits and a count 30: their product is compared in two limbs.
local LIMB = 4194304

local sliding_window = { absent = { 0, 0, 0, 0 }, told = 3 }

function sliding_window.parse(text)
  local ends, previous, current, mark = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  ends, previous = below(EXACT, ends), below(COUNTS, previous)
  current, mark = below(COUNTS, current), below(MARKS, mark)
  if ends and previous and current and mark then
    return { ends, previous, current, mark }
  end
  return sliding_window.absent
end

function sliding_window.text(state)
  return string.format('%.0f %.0f %.0f %.0f', state[1], state[2], state[3], state[4])
end

-- Whether the state is of this period, and of the window that ends at `ends` or the previous.
local function known(terms, state, ends)
  return state[4] == terms[6] and (state[1] == ends or state[1] == ends + terms[5])
end

function sliding_window.settle(terms, state)
  local ends = window_end(now, terms[5])
  if state[1] <= now or known(terms, state, ends) then
    return state
  end
  return { ends + terms[5], 0, math.min(state[2] + state[3], terms[7]), terms[6] }
end

-- Of a settled state, the count of the window before this one, of this one, and its end.
local function view(terms, state)
  local ends, most = window_end(now, terms[5]), terms[7]
  if state[1] <= now then
    return 0, 0, ends
  elseif state[1] == ends then
    return math.min(state[3], most), 0, ends
  end
  return math.min(state[2], most), math.min(state[3], most), ends
end

local function product(count, span)
  local low = count * (span % LIMB)
  local rest = low % LIMB
  return count * math.floor(span / LIMB) + (low - rest) / LIMB, rest
end

-- The settled state once the cost is charged, or nil if it does not pass.
function sliding_window.charge(terms, state)
  local previous, current, ends = view(terms, state)
  current = current + terms[2]
  local room = terms[3] - current
  if room < 0 then
    return nil
  elseif previous > 0 then
    local fading, fading_low = product(previous, ends - now)
    local free, free_low = product(room, terms[5])
    if fading > free or fading == free and fading_low > free_low then
      return nil
    end
  end
  if terms[2] == 0 then
    return state
  end
  return { ends + terms[5], previous, current, terms[6] }
end

function sliding_window.owe(terms, state)
  local previous, current, ends = view(terms, state)
  current = math.max(math.min(current + terms[2], terms[4]), current)
  return { ends + terms[5], previous, current, terms[6] }
end

-- From the window in which it was charged: the state's last, or the one before. What was charged
-- earlier shows no more.
function sliding_window.give_back(terms, state, charged_at)
  local shows_until = window_end(charged_at, terms[5]) + terms[5]
  local previous, current = state[2], state[3]
  if shows_until == state[1] then
    current = math.max(current - terms[2], 0)
  elseif shows_until == state[1] - terms[5] and shows_until > now then
    previous = math.max(previous - terms[2], 0)
  else
    return state
  end
  if previous == 0 and current == 0 then
    return sliding_window.absent
  end
  return { state[1], previous, current, terms[6] }
end

