-- concurrency: the twin of src/limit/concurrency.rs, as many gateways see it.
--
-- A holder is a worker of a gateway, and has {holder, count, lapses_at}. It renews its slots and says
-- how many it has (`hold`); if it does not, they lapse and are free.
--
-- args   cost, limit, holder, lease_us
-- state  ends_at: when the last holder lapses; rest: how many slots are taken; holders
-- reply  ends_at, rest
-- text   "ends_at holder:count:lapses_at holder:count:lapses_at ..."

local concurrency = { absent = { ends_at = 0, rest = 0, holders = {} } }

function concurrency.wire_args(numbers)
  return { cost = numbers[2], limit = numbers[3], holder = numbers[4], lease_us = numbers[5] }
end

concurrency.wire_state = write_pair

function concurrency.parse(text)
  local sum, holders, ends_at = 0, {}, 0
  for holder, count, lapses_at in string.gmatch(text, ' (%d+):(%d+):(%d+)') do
    holder, count = below(EXACT, holder), below(COUNTS, count)
    lapses_at = below(EXACT, lapses_at)
    if holder and count and lapses_at and lapses_at > now then
      holders[#holders + 1] = { holder, count, lapses_at }
      sum, ends_at = sum + count, math.max(ends_at, lapses_at)
    end
  end
  return sum > 0 and { ends_at = ends_at, rest = sum, holders = holders } or concurrency.absent
end

function concurrency.text(state)
  local parts = { string.format('%.0f', state.ends_at) }
  for _, it in ipairs(state.holders) do
    parts[#parts + 1] = string.format('%.0f:%.0f:%.0f', it[1], it[2], it[3])
  end
  return table.concat(parts, ' ')
end

-- A clock that was set back leaves leases that end later than any that is made now.
function concurrency.clamp(args, state)
  local latest = now + args.lease_us
  if state.ends_at <= latest then
    return state
  end
  local holders = {}
  for i, it in ipairs(state.holders) do
    holders[i] = { it[1], it[2], math.min(it[3], latest) }
  end
  return { ends_at = latest, rest = state.rest, holders = holders }
end

-- The state once this holder has as many slots as `change` makes of its own, for a lease from now.
local function with_own(args, state, change)
  local holder, lapses_at = args.holder, now + args.lease_us
  local sum, ends_at, holders, own = 0, 0, {}, 0
  for _, it in ipairs(state.holders) do
    if it[1] == holder then
      own = it[2]
    else
      holders[#holders + 1] = it
      sum, ends_at = sum + it[2], math.max(ends_at, it[3])
    end
  end
  own = change(own)
  if own > 0 then
    holders[#holders + 1] = { holder, own, lapses_at }
    sum, ends_at = sum + own, math.max(ends_at, lapses_at)
  end
  return sum > 0 and { ends_at = ends_at, rest = sum, holders = holders } or concurrency.absent
end

function concurrency.evaluate(args, state)
  if state.rest + args.cost > args.limit then
    return nil
  elseif args.cost == 0 then
    return state
  end
  return concurrency.charge_after(args, state)
end

function concurrency.charge_after(args, state)
  return with_own(args, state, function(own) return own + args.cost end)
end

function concurrency.refund(args, state)
  return with_own(args, state, function(own) return math.max(own - args.cost, 0) end)
end

-- This holder has exactly as many slots as the cost says.
function concurrency.hold(args, state)
  return with_own(args, state, function() return args.cost end)
end

