-- fixed_window: the twin of src/limit/fixed_window.rs, and equal to it bit for bit.
--
-- A state is {ends, count}. A live one counts in the window that now lies in, whatever window it
-- was written for.
--
-- terms: {3, cost, count, deepest, period in µs}: deepest is what may be counted at most
-- text: "ends count"

local fixed_window = { absent = { 0, 0 }, told = 2 }

function fixed_window.parse(text)
  return pair(COUNTS, text) or fixed_window.absent
end

fixed_window.text = pair_text

function fixed_window.settle(terms, state)
  local ends = window_end(now, terms[5])
  if state[1] <= now or state[1] == ends then
    return state
  end
  return { ends, state[2] }
end

local function count_and_cost(terms, state)
  return (state[1] > now and math.min(state[2], terms[4]) or 0) + terms[2]
end

-- The settled state once the cost is charged, or nil if it does not pass.
function fixed_window.charge(terms, state)
  local count = count_and_cost(terms, state)
  if count > terms[3] then
    return nil
  elseif terms[2] == 0 then
    return state
  end
  return { window_end(now, terms[5]), count }
end

function fixed_window.owe(terms, state)
  local count = math.min(count_and_cost(terms, state), terms[4])
  return { window_end(now, terms[5]), count }
end

-- A window that has passed has given back by itself.
function fixed_window.give_back(terms, state, charged_at)
  if window_end(charged_at, terms[5]) ~= state[1] then
    return state
  end
  local count = state[2] - terms[2]
  return count > 0 and { state[1], count } or fixed_window.absent
end

