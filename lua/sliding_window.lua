-- sliding_window: the twin of src/limit/sliding_window.rs, and equal to it bit for bit.
--
-- The state is that of the window of the last charge: older is the count of the window before it, last
-- its own; ends_at is the end of the window after it, and mark tells of which period it is. (In Rust
-- the three are packed into `rest`.) A live state of another period, or from a clock that stepped
-- back, counts whole in this window.
--
-- args   cost, count, deepest, period_us, mark, reach: deepest is what may be counted in a window at
--        most, mark is that of the period, and reach what any numbers of this bucket may count in one
-- state  ends_at, older, last, mark
-- reply  ends_at, older, last
-- text   "ends_at older last mark"

local MARKS = 16

-- A period has up to 45 bits and a count 30: their product is compared in two limbs.
local LIMB = 4194304

local sliding_window = { absent = { ends_at = 0, older = 0, last = 0, mark = 0 } }

function sliding_window.wire_args(numbers)
  return {
    cost = numbers[2],
    count = numbers[3],
    deepest = numbers[4],
    period_us = numbers[5],
    mark = numbers[6],
    reach = numbers[7],
  }
end

function sliding_window.wire_state(state, reply, length)
  reply[length + 1], reply[length + 2], reply[length + 3] = state.ends_at, state.older, state.last
  return length + 3
end

function sliding_window.parse(text)
  local ends_at, older, last, mark = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  ends_at, older = below(EXACT, ends_at), below(COUNTS, older)
  last, mark = below(COUNTS, last), below(MARKS, mark)
  if ends_at and older and last and mark then
    return { ends_at = ends_at, older = older, last = last, mark = mark }
  end
  return sliding_window.absent
end

function sliding_window.text(state)
  return string.format('%.0f %.0f %.0f %.0f', state.ends_at, state.older, state.last, state.mark)
end

-- Whether the state is of this period, and of the window that ends at `ends` or the previous.
local function knows(args, state, ends)
  local ends_at = state.ends_at
  return state.mark == args.mark and (ends_at == ends or ends_at == ends + args.period_us)
end

function sliding_window.clamp(args, state)
  if state.ends_at <= now then
    return state
  end
  local ends = window_end(now, args.period_us)
  if knows(args, state, ends) then
    return state
  end
  local last = math.min(state.older + state.last, args.reach)
  return { ends_at = ends + args.period_us, older = 0, last = last, mark = args.mark }
end

-- Of a clamped state, the count of the window before this one, of this one, and its end.
local function view(args, state)
  local ends, most = window_end(now, args.period_us), args.reach
  if state.ends_at <= now then
    return 0, 0, ends
  elseif state.ends_at == ends then
    return math.min(state.last, most), 0, ends
  end
  return math.min(state.older, most), math.min(state.last, most), ends
end

local function product(count, span)
  local low = count * (span % LIMB)
  local rest = low % LIMB
  return count * math.floor(span / LIMB) + (low - rest) / LIMB, rest
end

local function pack(args, previous, current, ends)
  return { ends_at = ends + args.period_us, older = previous, last = current, mark = args.mark }
end

function sliding_window.evaluate(args, state)
  local previous, current, ends = view(args, state)
  current = current + args.cost
  local room = args.count - current
  if room < 0 then
    return nil
  elseif previous > 0 then
    local fading, fading_low = product(previous, ends - now)
    local free, free_low = product(room, args.period_us)
    if fading > free or fading == free and fading_low > free_low then
      return nil
    end
  end
  if args.cost == 0 then
    return state
  end
  return pack(args, previous, current, ends)
end

function sliding_window.charge_after(args, state)
  local previous, current, ends = view(args, state)
  current = math.max(math.min(current + args.cost, args.deepest), current)
  return pack(args, previous, current, ends)
end

-- From the window in which it was charged: the state's last, or the one before. What was charged
-- earlier shows no more.
function sliding_window.refund(args, state, charged_at)
  local shows_until = window_end(charged_at, args.period_us) + args.period_us
  local ends_at, older, last = state.ends_at, state.older, state.last
  if shows_until == ends_at then
    last = math.max(last - args.cost, 0)
  elseif shows_until == ends_at - args.period_us and shows_until > now then
    older = math.max(older - args.cost, 0)
  else
    return state
  end
  if older == 0 and last == 0 then
    return sliding_window.absent
  end
  return { ends_at = ends_at, older = older, last = last, mark = args.mark }
end

