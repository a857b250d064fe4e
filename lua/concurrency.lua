-- concurrency: the twin of src/limit/concurrency.rs, as many gateways see it.
--
-- A state is {ends, sum, holders}: when the last holder lapses, how many requests are in flight, and
-- for each holder, which is a worker of a gateway, {holder, count, lapses}. A holder says again and
-- again that it is alive, and how many it has (`hold`); one that does not lapses, and its places are
-- free.
--
-- terms: {6, cost, limit, holder, lease in µs}
-- text: "ends holder:count:lapses holder:count:lapses ..."

local concurrency = { absent = { 0, 0, {} }, told = 2 }

function concurrency.parse(text)
  local sum, holders, ends = 0, {}, 0
  for holder, count, lapses in string.gmatch(text, ' (%d+):(%d+):(%d+)') do
    holder, count, lapses = below(EXACT, holder), below(COUNTS, count), below(EXACT, lapses)
    if holder and count and lapses and lapses > now then
      holders[#holders + 1] = { holder, count, lapses }
      sum, ends = sum + count, math.max(ends, lapses)
    end
  end
  return sum > 0 and { ends, sum, holders } or concurrency.absent
end

function concurrency.text(state)
  local parts = { string.format('%.0f', state[1]) }
  for _, it in ipairs(state[3]) do
    parts[#parts + 1] = string.format('%.0f:%.0f:%.0f', it[1], it[2], it[3])
  end
  return table.concat(parts, ' ')
end

function concurrency.settle(_, state)
  return state
end

-- The state once this holder has so many, from now on for a lease.
local function with(terms, state, change)
  local lapses = now + terms[5]
  local sum, ends, holders, mine = 0, 0, {}, 0
  for _, it in ipairs(state[3]) do
    if it[1] == terms[4] then
      mine = it[2]
    else
      holders[#holders + 1] = it
      sum, ends = sum + it[2], math.max(ends, it[3])
    end
  end
  mine = change(mine)
  if mine > 0 then
    holders[#holders + 1] = { terms[4], mine, lapses }
    sum, ends = sum + mine, math.max(ends, lapses)
  end
  return sum > 0 and { ends, sum, holders } or concurrency.absent
end

-- The state once the cost is held, or nil if it does not pass.
function concurrency.charge(terms, state)
  if state[2] + terms[2] > terms[3] then
    return nil
  elseif terms[2] == 0 then
    return state
  end
  return concurrency.owe(terms, state)
end

function concurrency.owe(terms, state)
  return with(terms, state, function(mine) return mine + terms[2] end)
end

function concurrency.give_back(terms, state)
  return with(terms, state, function(mine) return math.max(mine - terms[2], 0) end)
end

-- This holder has exactly so many.
function concurrency.hold(terms, state)
  return with(terms, state, function() return terms[2] end)
end

