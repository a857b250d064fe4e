-- token_bucket with refill: the twin of src/limit/refill.rs, and equal to it bit for bit.
--
-- A state is {ends, overflow}: the refill at which the bucket is full, and by how much that one
-- overflows. The refills before it lie whole periods apart.
--
-- terms: {4, cost, burst, deepest, every in µs, amount, refills, overflow}: deepest is what may be
-- missing at most, and the last two how far any numbers of this bucket let it be from full
-- text: "ends overflow"

local refill_bucket = { absent = { 0, 0 }, told = 2 }

function refill_bucket.parse(text)
  return pair(COUNTS, text) or refill_bucket.absent
end

refill_bucket.text = pair_text

-- What is missing at an instant, and when the next refill comes; of a full bucket, when it would.
local function missing_at(terms, state, at)
  if state[1] <= at then
    return 0, at + terms[5]
  end
  local refills = math.ceil((state[1] - at) / terms[5])
  local overflow = math.min(state[2], terms[6] - 1)
  return refills * terms[6] - overflow, state[1] - (refills - 1) * terms[5]
end

local function missing(terms, state)
  return missing_at(terms, state, now)
end

local function lacking(terms, units, next_refill)
  local refills = math.ceil(units / terms[6])
  return { next_refill + (refills - 1) * terms[5], refills * terms[6] - units }
end

function refill_bucket.settle(terms, state)
  if state[1] <= now then
    return state
  end
  local refills = math.ceil((state[1] - now) / terms[5])
  if refills > terms[7] or refills == terms[7] and state[2] < terms[8] then
    return { state[1] - (refills - terms[7]) * terms[5], terms[8] }
  end
  return state
end

-- The settled state once the cost is charged, or nil if it does not pass.
function refill_bucket.charge(terms, state)
  local units, next_refill = missing(terms, state)
  units = units + terms[2]
  if units > terms[3] then
    return nil
  elseif terms[2] == 0 then
    return state
  end
  return lacking(terms, units, next_refill)
end

function refill_bucket.owe(terms, state)
  local units, next_refill = missing(terms, state)
  if units >= terms[4] then
    return state
  end
  return lacking(terms, math.min(units + terms[2], terms[4]), next_refill)
end

-- What a charge adds, and a state once it was made at an instant: see journal.lua.
function refill_bucket.cost(terms)
  return terms[2], 0
end

function refill_bucket.add(terms, state, at, cost)
  local units, next_refill = missing_at(terms, state, at)
  return lacking(terms, units + cost, next_refill)
end

-- All of it if no refill has come since the charge; else, what has been refilled since would have
-- been without the charge. What stays missing counts as missing since now: see the Rust.
function refill_bucket.give_back(terms, state, charged_at)
  local units, next_refill = missing(terms, state)
  local given = terms[2]
  if next_refill - terms[5] > charged_at then
    given = given - math.ceil((now - charged_at) / terms[5]) * terms[6]
  end
  if given <= 0 then
    return state
  end
  units = units - given
  return units > 0 and lacking(terms, units, now + terms[5]) or refill_bucket.absent
end

