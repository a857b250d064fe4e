-- fixed_window: the twin of src/limit/fixed_window.rs, and equal to it bit for bit.
--
-- A live state counts in the window that now lies in, whatever window it was written for.
--
-- args   cost, count, deepest, period_us; for the windows of a calendar period_us is 0, and bound_1,
--        bound_2, bound_3, bound_4 follow: deepest is what may be counted at most; bound_1 to bound_2
--        is the window that the caller takes now to lie in, and two more follow
-- state  ends_at, rest: the count
-- reply  ends_at, rest
-- text   "ends_at rest"

local fixed_window = { absent = { ends_at = 0, rest = 0 } }

function fixed_window.wire_args(numbers)
  return {
    cost = numbers[2],
    count = numbers[3],
    deepest = numbers[4],
    period_us = numbers[5],
    bound_1 = numbers[6],
    bound_2 = numbers[7],
    bound_3 = numbers[8],
    bound_4 = numbers[9],
  }
end

fixed_window.wire_state = write_pair

function fixed_window.parse(text)
  return parse_pair(COUNTS, text) or fixed_window.absent
end

fixed_window.text = pair_text

-- The end of the calendar window that an instant lies in. The caller's clock may be behind or ahead:
-- before bound_1 lies a window that ends there. What comes after bound_4 is not known here, so windows
-- as long as the last one go on: an end that has passed already would refuse nobody.
local function calendar_window_end(args, instant)
  if instant < args.bound_1 then
    return args.bound_1
  elseif instant < args.bound_2 then
    return args.bound_2
  elseif instant < args.bound_3 then
    return args.bound_3
  elseif instant < args.bound_4 then
    return args.bound_4
  end
  return args.bound_4 + window_end(instant - args.bound_4, args.bound_4 - args.bound_3)
end

local function window_end_of(args, instant)
  local period_us = args.period_us
  if period_us > 0 then
    return window_end(instant, period_us)
  end
  return calendar_window_end(args, instant)
end

function fixed_window.clamp(args, state)
  local ends_at = state.ends_at
  if ends_at <= now then
    return state
  end
  local window_ends = window_end_of(args, now)
  return ends_at == window_ends and state or { ends_at = window_ends, rest = state.rest }
end

local function used(state)
  return state.ends_at > now and state.rest or 0
end

function fixed_window.evaluate(args, state)
  local count = math.min(used(state), args.deepest) + args.cost
  if count > args.count then
    return nil
  elseif args.cost == 0 then
    return state
  end
  return { ends_at = window_end_of(args, now), rest = count }
end

function fixed_window.charge_after(args, state)
  local count = used(state)
  count = math.max(math.min(count + args.cost, args.deepest), count)
  return { ends_at = window_end_of(args, now), rest = count }
end

-- A window that has passed takes its charges with it. What was charged before bound_1 was charged in
-- such a one, if the caller's clock is right; if it is not, nobody gets more than is due.
function fixed_window.refund(args, state, charged_at)
  local passed = args.period_us == 0 and charged_at < args.bound_1
  if passed or window_end_of(args, charged_at) ~= state.ends_at then
    return state
  end
  local count = state.rest - args.cost
  return count > 0 and { ends_at = state.ends_at, rest = count } or fixed_window.absent
end

