-- token_bucket: the twin of src/limit/token_bucket.rs, and equal to it bit for bit.
--
-- Spans of time are pairs: whole µs, rounded up, and the parts of 2^-32 µs that this added (rest).
-- In this form a state is the instant at which the bucket is full, and its deficit is the pair
-- (ends_at - now, rest). Of two pairs the one with more whole µs is longer; of equals, the one with
-- the smaller rest.
--
-- args   cost, cost_rest, empty, empty_rest, deepest, deepest_rest: the times in which the cost, all
--        tokens, and the largest deficit refill; grace: for how many µs what has refilled is not lost
--        to a full bucket; reach, reach_rest: the largest deficit under any numbers of this bucket,
--        left out if it is that of deepest
-- state  ends_at, rest
-- reply  ends_at, rest
-- text   "ends_at rest"

local token_bucket = { absent = { ends_at = 0, rest = 0 } }

function token_bucket.wire_args(numbers)
  return {
    cost = numbers[2],
    cost_rest = numbers[3],
    empty = numbers[4],
    empty_rest = numbers[5],
    deepest = numbers[6],
    deepest_rest = numbers[7],
    grace = numbers[8],
    reach = numbers[9] or numbers[6],
    reach_rest = numbers[10] or numbers[7],
  }
end

token_bucket.wire_state = write_pair

function token_bucket.parse(text)
  return parse_pair(UNIT, text) or token_bucket.absent
end

token_bucket.text = pair_text

-- The deficit at an instant, with a span on top.
local function deficit_with(state, at, span, rest)
  local ends_at = state.ends_at
  if ends_at > at then
    span, rest = span + ends_at - at, rest + state.rest
    if rest >= UNIT then
      span, rest = span - 1, rest - UNIT
    end
  end
  return span, rest
end

local function beyond_deepest(args, span, rest)
  local deepest = args.deepest
  return span > deepest or span == deepest and rest < args.deepest_rest
end

-- A full bucket once the cost is charged, full since `grace` µs ago at the most. It may end before
-- now, and says since when it is full.
local function charged_with_grace(args, state)
  local full, part = now - args.grace, 0
  if state.ends_at > full then
    full, part = state.ends_at, state.rest
  end
  local ends_at, rest = full + args.cost, args.cost_rest + part
  if rest >= UNIT then
    ends_at, rest = ends_at - 1, rest - UNIT
  end
  return { ends_at = ends_at, rest = rest }
end

function token_bucket.clamp(args, state)
  local span, reach = state.ends_at - now, args.reach
  if span > reach or span == reach and state.rest < args.reach_rest then
    return { ends_at = now + reach, rest = args.reach_rest }
  end
  return state
end

function token_bucket.evaluate(args, state)
  local cost, empty = args.cost, args.empty
  local span, rest = deficit_with(state, now, cost, args.cost_rest)
  if span > empty or span == empty and rest < args.empty_rest then
    return nil
  elseif cost == 0 then
    return state
  elseif args.grace > 0 and state.ends_at > 0 and state.ends_at <= now then
    return charged_with_grace(args, state)
  end
  return { ends_at = now + span, rest = rest }
end

function token_bucket.charge_after(args, state)
  local span, rest = deficit_with(state, now, args.cost, args.cost_rest)
  if beyond_deepest(args, span, rest) then
    if beyond_deepest(args, state.ends_at - now, state.rest) then
      return state
    end
    span, rest = args.deepest, args.deepest_rest
  end
  if state.ends_at - now == span and state.rest == rest then
    return state
  end
  return { ends_at = now + span, rest = rest }
end

-- What has refilled since the charge would have refilled without it too.
function token_bucket.refund(args, state, charged_at)
  local refund = args.cost - (now - charged_at)
  if refund <= 0 then
    return state
  end
  local span, rest = state.ends_at - now - refund, state.rest - args.cost_rest
  if rest < 0 then
    span, rest = span + 1, rest + UNIT
  end
  return span > 0 and { ends_at = now + span, rest = rest } or token_bucket.absent
end

-- What a charge adds, and a state once it was made at an instant: see journal.lua.
function token_bucket.journal_cost(args)
  return args.cost, args.cost_rest
end

function token_bucket.journal_charge(_, state, at, span, rest)
  span, rest = deficit_with(state, at, span, rest)
  return { ends_at = at + span, rest = rest }
end

-- Full no sooner than `amount` µs after the instant: see outstanding.lua.
function token_bucket.cap_refill(_, state, at, amount)
  local full = at + amount
  if state.ends_at < full or state.ends_at == full and state.rest > 0 then
    return { ends_at = full, rest = 0 }
  end
  return state
end

