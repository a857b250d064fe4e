-- refill_bucket (token_bucket with `refill`): the twin of src/limit/refill_bucket.rs, and equal to it
-- bit for bit.
--
-- The refills lie whole periods apart; the last, at ends_at, makes the bucket full, and overflows by
-- rest.
--
-- args   cost, burst, deepest, every_us, amount, reach_refills, reach_overflow: deepest is what may be
--        missing at most, and the last two how far from full any numbers of this bucket let it be
-- state  ends_at, rest
-- reply  ends_at, rest
-- text   "ends_at rest"

local refill_bucket = { absent = { ends_at = 0, rest = 0 } }

function refill_bucket.wire_args(numbers)
  return {
    cost = numbers[2],
    burst = numbers[3],
    deepest = numbers[4],
    every_us = numbers[5],
    amount = numbers[6],
    reach_refills = numbers[7],
    reach_overflow = numbers[8],
  }
end

refill_bucket.wire_state = write_pair

function refill_bucket.parse(text)
  return parse_pair(COUNTS, text) or refill_bucket.absent
end

refill_bucket.text = pair_text

-- What is missing at an instant, and when the next refill comes; for a full bucket, when it would.
local function missing(args, state, at)
  local ends_at, every_us = state.ends_at, args.every_us
  if ends_at <= at then
    return 0, at + every_us
  end
  local refills, amount = math.ceil((ends_at - at) / every_us), args.amount
  local overflow = math.min(state.rest, amount - 1)
  return refills * amount - overflow, ends_at - (refills - 1) * every_us
end

local function state_missing(args, units, next_refill)
  local amount = args.amount
  local refills = math.ceil(units / amount)
  return { ends_at = next_refill + (refills - 1) * args.every_us, rest = refills * amount - units }
end

function refill_bucket.clamp(args, state)
  local ends_at = state.ends_at
  if ends_at <= now then
    return state
  end
  local refills, reach = math.ceil((ends_at - now) / args.every_us), args.reach_refills
  if refills > reach or refills == reach and state.rest < args.reach_overflow then
    return { ends_at = ends_at - (refills - reach) * args.every_us, rest = args.reach_overflow }
  end
  return state
end

function refill_bucket.evaluate(args, state)
  local units, next_refill = missing(args, state, now)
  units = units + args.cost
  if units > args.burst then
    return nil
  elseif args.cost == 0 then
    return state
  end
  return state_missing(args, units, next_refill)
end

function refill_bucket.charge_after(args, state)
  local units, next_refill = missing(args, state, now)
  if units >= args.deepest then
    return state
  end
  return state_missing(args, math.min(units + args.cost, args.deepest), next_refill)
end

-- All but what has been refilled since the charge, and would have been without it. The refills stay
-- when they are: see the Rust.
function refill_bucket.refund(args, state, charged_at)
  local units, next_refill = missing(args, state, now)
  local refills = math.ceil((next_refill - args.every_us - charged_at) / args.every_us)
  local refund = args.cost - math.max(refills, 0) * args.amount
  if refund <= 0 then
    return state
  end
  units = units - refund
  return units > 0 and state_missing(args, units, next_refill) or refill_bucket.absent
end

-- What a charge adds, and a state once it was made at an instant: see journal.lua.
function refill_bucket.journal_cost(args)
  return args.cost, 0
end

function refill_bucket.journal_charge(args, state, at, cost)
  local units, next_refill = missing(args, state, at)
  return state_missing(args, units + cost, next_refill)
end

-- At least so many units missing at the instant: see outstanding.lua.
function refill_bucket.cap_refill(args, state, at, amount)
  local units, next_refill = missing(args, state, at)
  return units < amount and state_missing(args, amount, next_refill) or state
end

