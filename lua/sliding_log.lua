-- sliding_log: the twin of src/limit/sliding_log.rs, and equal to it bit for bit.
--
-- The text has its own sum in front, so that only entries that have aged out since are looked at, and
-- however long the log is, a decision reads few of them. At the front may be entries that only numbers
-- of a longer period still count.
--
-- args   cost, count, deepest, period_us, kept_us, most: deepest is what may be counted at most; kept_us
--        is for how long any numbers of this log count an entry, most what any of them count
-- state  ends_at: when no numbers count the last entry any more; rest: the sum of the entries that
--        these numbers count; grows_at: when enough of them have aged out for more to be left;
--        entries: the text of all that are kept; added: what this call has added, which is all of the
--        same instant; older: the sum of the entries that only other numbers count, and from: where
--        in the text those begin that these count. A clamped state also has count, period_us and
--        kept_us: for which numbers it was worked out, and changed: whether it must be written.
-- reply  ends_at, rest, grows_at, passes_at: when the check would pass if it does not, else 0
-- text   "ends_at sum at:cost at:cost ...", oldest first

-- More than an entry takes: 16 digits, a colon and 10.
local LONGEST = 40

local sliding_log = {
  absent = {
    ends_at = 0,
    rest = 0,
    grows_at = 0,
    entries = '',
    added = 0,
    older = 0,
    from = 1,
    changed = false,
  },
}

function sliding_log.wire_args(numbers)
  return {
    cost = numbers[2],
    count = numbers[3],
    deepest = numbers[4],
    period_us = numbers[5],
    kept_us = numbers[6],
    most = numbers[7],
  }
end

function sliding_log.wire_state(state, reply, length, passes_at)
  reply[length + 1], reply[length + 2] = state.ends_at, state.rest
  reply[length + 3], reply[length + 4] = state.grows_at, passes_at or 0
  return length + 4
end

-- The entries from a place on: the instant and cost of the first, and where the next begins.
local function entry(entries, place)
  local at, cost, after = string.match(entries, '^(%d+):(%d+) ?()', place)
  at, cost = below(EXACT, at), below(COUNTS, cost)
  return cost and at, cost, after
end

-- The period is not known here: `clamp` looks at the entries.
function sliding_log.parse(text)
  local ends_at, sum, place = string.match(text, '^(%d+) (%d+) ()%d')
  ends_at, sum = below(EXACT, ends_at), below(COUNTS, sum)
  if ends_at and sum then
    local entries = string.sub(text, place)
    return { ends_at = ends_at, rest = sum, entries = entries, added = 0, older = 0, from = 1 }
  end
  return sliding_log.absent
end

-- Entries and what was added, as one text.
local function entries_of(state)
  if state.added == 0 then
    return state.entries
  end
  local added = string.format('%.0f:%.0f', now, state.added)
  return state.entries == '' and added or state.entries .. ' ' .. added
end

function sliding_log.text(state)
  return string.format('%.0f %.0f %s', state.ends_at, state.rest + state.older, entries_of(state))
end

-- Entries that lie ahead of now count as made now.
local function moved_to_now(entries)
  local kept, moved, place = {}, 0, 1
  while place <= #entries do
    local at, cost, after = entry(entries, place)
    if not at then
      return nil
    elseif at < now then
      kept[#kept + 1] = string.format('%.0f:%.0f', at, cost)
    else
      moved = moved + cost
    end
    place = after
  end
  kept[#kept + 1] = string.format('%.0f:%.0f', now, moved)
  return table.concat(kept, ' ')
end

-- When so much of the sum has aged out.
local function aged_out(args, state, excess)
  local place, last = state.from, state.ends_at - args.kept_us + args.period_us
  while place <= #state.entries do
    local at, cost, after = entry(state.entries, place)
    if not at then
      break
    end
    excess, place = excess - cost, after
    if excess <= 0 then
      return math.min(at + args.period_us, last)
    end
  end
  return last
end

-- Passes over the entries that are so old, from a place on: where the first begins that is not, its
-- instant, and the sum of those passed over. No instant if there is none.
local function pass_over(entries, place, span)
  local sum = 0
  while place <= #entries do
    local at, cost, after = entry(entries, place)
    if not at then
      break
    elseif at + span > now then
      return place, at, sum
    end
    sum, place = sum + cost, after
  end
  return place, nil, sum
end

-- Whether a state was worked out for these numbers: others of the same call may be its last.
local function is_view_of(args, state)
  return state.count == args.count
    and state.period_us == args.period_us
    and state.kept_us == args.kept_us
end

function sliding_log.clamp(args, state)
  if state == sliding_log.absent or is_view_of(args, state) then
    return state
  elseif state.ends_at <= now then
    return sliding_log.absent
  end
  local entries, sum, changed = entries_of(state), state.rest + state.older, false
  local tail = ' ' .. string.sub(entries, -LONGEST)
  local last = below(EXACT, string.match(tail, ' (%d+):%d+$'))
  if last and last > now then
    entries, last, changed = moved_to_now(entries), now, true
  end
  if not entries or not last then
    return sliding_log.absent
  end
  local place, oldest, gone = pass_over(entries, 1, args.kept_us)
  sum = sum - gone
  if not oldest or oldest > now or sum < 0 then
    return sliding_log.absent
  end
  entries = string.sub(entries, place)
  local from, first, older = pass_over(entries, 1, args.period_us)
  sum = sum - older
  local ends_at = last + args.kept_us
  local clamped = {
    ends_at = ends_at,
    rest = sum,
    grows_at = first and first + args.period_us or 0,
    entries = entries,
    added = 0,
    older = older,
    from = from,
    count = args.count,
    period_us = args.period_us,
    kept_us = args.kept_us,
    -- As long as it ends when it did, there is nothing to write: entries that have aged out are
    -- passed over again.
    changed = changed or ends_at ~= state.ends_at,
  }
  if sum > args.count then
    -- In debt, nothing is left before more than that has aged out.
    clamped.grows_at = aged_out(args, clamped, sum - args.count + 1)
  end
  return clamped
end

-- Of entries that only numbers of a longer period count, the newest are enough to have them refuse.
local function trimmed(args, state)
  local older, place = state.older, 1
  while older > 0 do
    local at, cost, after = entry(state.entries, place)
    -- Those of one instant are one entry, whichever calls have written them.
    local again, more, further = entry(state.entries, after or place)
    while at and again == at do
      cost, after = cost + more, further
      again, more, further = entry(state.entries, after)
    end
    if not at or cost > older or state.rest + older - cost < args.most then
      break
    end
    older, place = older - cost, after
  end
  return string.sub(state.entries, place), older, state.from - place + 1
end

local function with_cost(args, state, cost)
  local entries, older, from = trimmed(args, state)
  return {
    ends_at = now + args.kept_us,
    rest = state.rest + cost,
    grows_at = state.rest == 0 and now + args.period_us or state.grows_at,
    entries = entries,
    added = state.added + cost,
    older = older,
    from = from,
    count = args.count,
    period_us = args.period_us,
    kept_us = args.kept_us,
  }
end

-- A refusal also says when the cost would pass.
function sliding_log.evaluate(args, state)
  if args.cost > args.count then
    return nil, 0
  elseif state.rest + args.cost > args.count then
    return nil, aged_out(args, state, state.rest + args.cost - args.count)
  elseif args.cost == 0 then
    return state
  end
  return with_cost(args, state, args.cost)
end

-- The entries without the oldest units, so many of them, also out of an entry.
local function without_oldest(entries, units)
  local place = 1
  while units > 0 do
    local at, cost, after = entry(entries, place)
    if not at then
      break
    elseif cost > units then
      return string.format('%.0f:%.0f %s', at, cost - units, string.sub(entries, after))
    end
    units, place = units - cost, after
  end
  return string.sub(entries, place)
end

-- Where it makes the log deeper than it may be, the oldest units make room: the newest decide when a
-- request may pass again.
function sliding_log.charge_after(args, state)
  local cost = math.min(args.cost, args.deepest)
  if cost == 0 then
    return state
  end
  local charged = with_cost(args, state, cost)
  if charged.rest <= args.deepest then
    return charged
  end
  local sum = charged.rest + charged.older
  local kept = math.min(sum, args.most)
  return sliding_log.clamp(args, {
    ends_at = charged.ends_at,
    rest = kept,
    entries = without_oldest(entries_of(charged), sum - kept),
    added = 0,
    older = 0,
    from = 1,
  })
end

-- From the entry of the instant at which it was charged, if that has not aged out.
function sliding_log.refund(args, state, charged_at)
  local kept, refund, place = {}, args.cost, 1
  local last
  while place <= #state.entries do
    local at, cost, after = entry(state.entries, place)
    if not at then
      return state
    end
    if at == charged_at then
      local taken = math.min(refund, cost)
      refund, cost = refund - taken, cost - taken
    end
    if cost > 0 then
      last = at
      kept[#kept + 1] = string.format('%.0f:%.0f', at, cost)
    end
    place = after
  end
  local taken = args.cost - refund
  if taken == 0 then
    return state
  elseif not last then
    return sliding_log.absent
  end
  return sliding_log.clamp(args, {
    ends_at = last + args.kept_us,
    rest = state.rest + state.older - taken,
    entries = table.concat(kept, ' '),
    added = 0,
    older = 0,
    from = 1,
  })
end

