-- token_bucket: the twin of src/limit/token_bucket.rs, and equal to it bit for bit. leaky_bucket is
-- the same: when a request leaves is the caller's business.
--
-- Spans of time are pairs: whole µs, rounded up, and the parts of 2^-32 µs that this added. In
-- this form a state is the instant at which the bucket is full, {ends, rest}, and what it owes is
-- the pair (ends - now, rest). Of two pairs the one with more whole µs is longer; of equals, the
-- one with the smaller rest.
--
-- terms: {1, cost, its rest, empty, its rest, deepest, its rest, grace, reach, its rest}: the times in
-- which the cost, all tokens, and all that may be owed refill; for how many µs what has refilled is
-- not lost to a full bucket, for one who comes late: at most the time of one token, see the Rust (of
-- a bucket that is absent nobody knows since when it is full); and, if that is more than deepest,
-- what other numbers of this bucket let it owe
-- text: "ends rest"

local UNIT = 4294967296

local token_bucket = { absent = { 0, 0 }, told = 2 }

function token_bucket.parse(text)
  return pair(UNIT, text) or token_bucket.absent
end

token_bucket.text = pair_text

-- Whether a span is longer than an empty bucket owes.
local function beyond_empty(terms, span, rest)
  return span > terms[4] or span == terms[4] and rest < terms[5]
end

-- Whether it is longer than any bucket may owe.
local function beyond_deepest(terms, span, rest)
  return span > terms[6] or span == terms[6] and rest < terms[7]
end

-- What the bucket owes at an instant, with a span on top.
local function owed_with(state, at, span, rest)
  if state[1] > at then
    span, rest = span + state[1] - at, rest + state[2]
    if rest >= UNIT then
      span, rest = span - 1, rest - UNIT
    end
  end
  return span, rest
end

-- The same now, with the cost.
local function owed_and_cost(terms, state)
  return owed_with(state, now, terms[2], terms[3])
end

-- A full bucket once the cost is charged, full since `grace` µs ago at the most. It may end before
-- now, and says since when it is full.
local function charged_late(terms, state)
  local full, part = now - terms[8], 0
  if state[1] > full then
    full, part = state[1], state[2]
  end
  local ends, rest = full + terms[2], terms[3] + part
  if rest >= UNIT then
    ends, rest = ends - 1, rest - UNIT
  end
  return { ends, rest }
end

function token_bucket.settle(terms, state)
  local reach, part = terms[9] or terms[6], terms[10] or terms[7]
  local span = state[1] - now
  if span > reach or span == reach and state[2] < part then
    return { now + reach, part }
  end
  return state
end

-- The settled state once the cost is charged, or nil if it does not pass.
function token_bucket.charge(terms, state)
  local span, rest = owed_and_cost(terms, state)
  if beyond_empty(terms, span, rest) then
    return nil
  elseif terms[2] == 0 then
    return state
  elseif terms[8] > 0 and state[1] > 0 and state[1] <= now then
    return charged_late(terms, state)
  end
  return { now + span, rest }
end

function token_bucket.owe(terms, state)
  local span, rest = owed_and_cost(terms, state)
  if beyond_deepest(terms, span, rest) then
    if beyond_deepest(terms, state[1] - now, state[2]) then
      return state
    end
    span, rest = terms[6], terms[7]
  end
  return { now + span, rest }
end

-- What a charge adds, and a state once it was made at an instant: see journal.lua.
function token_bucket.cost(terms)
  return terms[2], terms[3]
end

function token_bucket.add(_, state, at, span, rest)
  span, rest = owed_with(state, at, span, rest)
  return { at + span, rest }
end

-- What has refilled since the charge would have refilled without it too.
function token_bucket.give_back(terms, state, charged_at)
  local given = terms[2] - (now - charged_at)
  if given <= 0 then
    return state
  end
  local span, rest = state[1] - now - given, state[2] - terms[3]
  if rest < 0 then
    span, rest = span + 1, rest + UNIT
  end
  return span > 0 and { now + span, rest } or token_bucket.absent
end

