-- Takes units out of buckets in advance, extends what was taken, and takes back what was not spent.
--
-- KEYS     a bucket for each lease, none twice
-- ARGV[1]  msgpack [deadline, lease, lease, ...]
--            deadline  the instant, in µs, after which the caller waits no more: then nothing is done,
--                      and the reply is [now]; 0 if it is not known
--            lease     for each key a flat array: the numbers of a check as in decide.lua, preceded by
--                      how many they are; then life, for how many µs units are given; released_until,
--                      released: the grant that ends with this call, and its amount; kept: how much of
--                      it goes on in the new grant; returned, returned_rest, taken_at: the cost that
--                      was not spent and when it was charged, 0 for now; then steps, which are taken
--                      one after another if they fit, up to the first that is enough, each units,
--                      amount, cost, cost_rest, tested, tested_rest, enough: what these units amount
--                      to in a grant, what they cost, what must be left for them to be given, and 1
--                      if no further step is wanted then
-- reply    msgpack [now, units, until, amount, found, state..., ...]: for each lease the units that were
--          given, 0 if no step fits; until when the new grant is, 0 if there is none, and what it
--          amounts to; 1 if the released grant was still there, else 0: then nothing of it is kept
--          or returned; and the state of the bucket, in the order that the algorithm's file states
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because nothing may come between reading a bucket and writing it.
--
-- Units that were kept or given are outstanding until the grant's end: see outstanding.lua. To the
-- bucket they are charged like any others. A grant that has ended counts as spent, so nothing of it
-- can be kept or returned any more: the bucket may have been full since. A call that asks for nothing
-- clamps nothing: it may be made by numbers that have been replaced.

local LEASE_NUMBERS, STEP_NUMBERS = 7, 7

local asked = cmsgpack.unpack(ARGV[1])
if asked[1] > 0 and now > asked[1] then
  return cmsgpack.pack({ now })
end

-- Takes an amount off the grant that ends then. False if it has ended, or was merged with a later one.
local function release(grants, ends, amount)
  for i, grant in ipairs(grants) do
    if grant[1] == ends and grant[2] >= amount then
      grant[2] = grant[2] - amount
      if grant[2] == 0 then
        table.remove(grants, i)
      end
      return true
    end
  end
  return false
end

local function add(grants, ends, amount)
  local at = 1
  while grants[at] and grants[at][1] < ends do
    at = at + 1
  end
  if grants[at] and grants[at][1] == ends then
    grants[at][2] = grants[at][2] + amount
  else
    table.insert(grants, at, { ends, amount })
  end
  if #grants > MOST_GRANTS then
    local first = table.remove(grants, 1)
    grants[1][2] = grants[1][2] + first[2]
  end
end

-- Takes the steps that fit: their units, what these amount to, and the state once they are charged.
local function take(algorithm, args, state, lease, first_step)
  local units, amount = 0, 0
  for i = first_step, #lease, STEP_NUMBERS do
    args.cost, args.cost_rest = lease[i + 4], lease[i + 5]
    if algorithm.evaluate(args, state) then
      args.cost, args.cost_rest = lease[i + 2], lease[i + 3]
      state = algorithm.evaluate(args, state)
      units, amount = units + lease[i], amount + lease[i + 1]
      if lease[i + 6] == 1 then
        break
      end
    end
  end
  return units, amount, state
end

local texts = read(KEYS)
local reply, length = { now }, 1
for i = 1, #KEYS do
  local lease = asked[i + 1]
  local numbers, at = {}, lease[1] + 1
  for j = 2, at do
    numbers[j - 1] = lease[j]
  end
  local life, released_until, released, kept = lease[at + 1], lease[at + 2], lease[at + 3], lease[at + 4]
  local returned, returned_rest, taken_at = lease[at + 5], lease[at + 6], lease[at + 7]
  local algorithm = algorithm_of(numbers)
  local args = algorithm.wire_args(numbers)
  local text, grants = split_text(texts[i])
  local state = text and algorithm.parse(text) or algorithm.absent
  if grants then
    state, grants = expire_grants(algorithm, args, state, grants)
  else
    grants = {}
  end
  local clamped = algorithm.clamp(args, state)
  local is_known = not was_clamped(clamped, state)
  local first_step = at + LEASE_NUMBERS + 1
  if lease[first_step] then
    state = refill_capped(algorithm, args, clamped, grants)
  elseif is_known then
    state = refill_capped(algorithm, args, state, grants)
  end
  local found = released_until == 0
  if not found then
    found = release(grants, math.min(released_until, now + LONGEST_LEASE), released)
  end
  if returned > 0 and found and is_known and state.ends_at > now and taken_at <= now then
    args.cost, args.cost_rest = returned, returned_rest
    state = algorithm.refund(args, state, taken_at > 0 and taken_at or now)
  end
  local units, amount
  units, amount, state = take(algorithm, args, state, lease, first_step)
  if found then
    amount = amount + kept
  end
  local ends = 0
  if units > 0 or amount > 0 then
    -- Of gateways that ask at about the same time the grants are one.
    ends = window_end(now + life, math.ceil(life / 4))
    if amount > 0 then
      add(grants, ends, amount)
    end
  end
  if state.ends_at <= now and #grants == 0 then
    redis.call('DEL', KEYS[i])
  else
    local whole = with_grants(grants, algorithm.text(state))
    write_bucket(KEYS[i], algorithm, args, state, grants, whole)
  end
  reply[length + 1], reply[length + 2] = units, ends
  reply[length + 3], reply[length + 4] = amount, found and 1 or 0
  length = algorithm.wire_state(state, reply, length + 4)
end

return cmsgpack.pack(reply)
