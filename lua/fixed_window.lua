-- fixed_window: the twin of src/limit/fixed_window.rs, and equal to it bit for bit.
--
-- A state is {ends, count}. A live one counts in the window that now lies in, whatever window it
-- was written for.
--
-- terms: {3, cost, count, deepest, period in µs}, or {3, cost, count, deepest, 0, b1, b2, b3, b4}
--        for windows of a calendar: deepest is what may be counted at most; b1 to b2 is the window
--        that the caller takes now to lie in, and two more follow
-- text: "ends count"

local fixed_window = { absent = { 0, 0 }, told = 2 }

-- The end of the window that an instant lies in. The caller's clock may be behind or ahead: before
-- b1 lies a window that ends there. What comes after b4 is not known here, so windows as long as
-- the last one go on: an end that has passed already would refuse nobody.
local function window_end_of(terms, instant)
  if terms[5] > 0 then
    return window_end(instant, terms[5])
  end
  for bound = 6, 9 do
    if instant < terms[bound] then
      return terms[bound]
    end
  end
  return terms[9] + window_end(instant - terms[9], terms[9] - terms[8])
end

function fixed_window.parse(text)
  return pair(COUNTS, text) or fixed_window.absent
end

fixed_window.text = pair_text

function fixed_window.settle(terms, state)
  local ends = window_end_of(terms, now)
  if state[1] <= now or state[1] == ends then
    return state
  end
  return { ends, state[2] }
end

local function used(state)
  return state[1] > now and state[2] or 0
end

-- The settled state once the cost is charged, or nil if it does not pass.
function fixed_window.charge(terms, state)
  local count = math.min(used(state), terms[4]) + terms[2]
  if count > terms[3] then
    return nil
  elseif terms[2] == 0 then
    return state
  end
  return { window_end_of(terms, now), count }
end

function fixed_window.owe(terms, state)
  local count = used(state)
  count = math.max(math.min(count + terms[2], terms[4]), count)
  return { window_end_of(terms, now), count }
end

-- A window that has passed has given back by itself. What was charged before b1 was charged in such
-- a one, if the caller's clock is right; if it is not, nobody gets more than is due.
function fixed_window.give_back(terms, state, charged_at)
  local passed = terms[5] == 0 and charged_at < terms[6]
  if passed or window_end_of(terms, charged_at) ~= state[1] then
    return state
  end
  local count = state[2] - terms[2]
  return count > 0 and { state[1], count } or fixed_window.absent
end

