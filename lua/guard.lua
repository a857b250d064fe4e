-- Adds up what gateways have counted for their guards, and notices offences of all of them together.
-- The twin of src/limit/guard.rs.
--
-- KEYS     the counter of each key
-- ARGV[1]  msgpack, for each key [window_us, threshold, penalty_us, requests, window_end, stage, ends,
--          offence, offence_count, lifted]: the guard's numbers, how many requests a gateway has counted
--          since its last report and in which window, what it has noticed by itself, and when an
--          operator has lifted a penalty
-- reply    the time, and for each key window_end, count, stage, ends, offence, offence_count, lifted,
--          and 1 if the stage has changed, else 0
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because nothing may come between reading a counter and writing it: two gateways that add up to
-- an offence must find one.
--
-- The state is "window_end count previous stage ends offence offence_count lifted": the window that is
-- counted, the requests in it and in the one before, of which gateways report the rest when it is over;
-- the stage (0 clean, 1 warned, 2 blocked) and when it ends; the end of the window of the last offence,
-- and the requests with which it was noticed; when a penalty was lifted.

local CLEAN, WARNED, BLOCKED = 0, 1, 2
local FIELDS = { 'window_end', 'count', 'previous', 'stage', 'ends', 'offence', 'offence_count', 'lifted' }
local TOLD = { 'window_end', 'count', 'stage', 'ends', 'offence', 'offence_count', 'lifted' }

-- How long it is known that a penalty was lifted, in µs: by then every gateway has heard of it.
local LIFTED = 60000000

local function clear(state)
  for _, field in ipairs(FIELDS) do
    if field ~= 'window_end' and field ~= 'lifted' then
      state[field] = 0
    end
  end
end

local function parse(text)
  local state = {}
  local numbers = { string.match(text or '', '^(%d+) (%d+) (%d+) (%d) (%d+) (%d+) (%d+) (%d+)$') }
  for i, field in ipairs(FIELDS) do
    state[field] = below(field == 'stage' and BLOCKED + 1 or EXACT, numbers[i])
    if not state[field] then
      state = { window_end = 0, lifted = 0 }
      clear(state)
      return state
    end
  end
  return state
end

local function format(state)
  local numbers = {}
  for i, field in ipairs(FIELDS) do
    numbers[i] = string.format('%.0f', state[field])
  end
  return table.concat(numbers, ' ')
end

-- The state now: stages that have ended are gone, and a new window counts from zero. What lies too far
-- ahead is of a clock that was set back, or of a guard that had other numbers.
local function advance(numbers, state)
  state.ends = math.min(state.ends, now + state.stage * numbers.penalty_us)
  state.lifted = math.min(state.lifted, now)
  if state.stage ~= CLEAN and state.ends <= now then
    if state.stage == BLOCKED then
      state.count, state.previous, state.offence, state.offence_count = 0, 0, 0, 0
    end
    state.stage, state.ends = CLEAN, 0
  end
  local current = window_end(now, numbers.window_us)
  local next_end = current + numbers.window_us
  if current > state.window_end or state.window_end > next_end then
    state.previous = current - state.window_end == numbers.window_us and state.count or 0
    state.window_end, state.count = current, 0
  end
  state.offence = math.min(state.offence, next_end)
end

local function began(numbers, state)
  return state.ends - state.stage * numbers.penalty_us
end

-- An operator has lifted penalties. One that began later stays.
local function lift(numbers, state, lifted)
  lifted = math.min(lifted, now)
  if lifted > state.lifted then
    state.lifted = lifted
    if state.stage == CLEAN or began(numbers, state) <= lifted then
      clear(state)
    end
  end
end

local function offend(numbers, state, window_end, count)
  local blocked = state.stage ~= CLEAN
  state.stage = blocked and BLOCKED or WARNED
  state.ends = now + (blocked and 2 or 1) * numbers.penalty_us
  state.offence, state.offence_count = window_end, count
end

-- What a gateway has noticed by itself. Nothing gets weaker by it.
local function merge(numbers, state, told)
  told.ends = math.min(told.ends, now + told.stage * numbers.penalty_us)
  told.offence = math.min(told.offence, window_end(now, numbers.window_us) + numbers.window_us)
  if told.ends <= now or began(numbers, told) <= state.lifted then
    return
  elseif told.stage == WARNED and state.stage == WARNED and told.offence > state.offence then
    offend(numbers, state, told.offence, told.offence_count)
  elseif told.stage > state.stage or (told.stage == state.stage and told.ends > state.ends) then
    state.stage, state.ends = told.stage, told.ends
    state.offence, state.offence_count = told.offence, told.offence_count
  end
end

local function add(numbers, state, requests, window_end)
  if state.stage == BLOCKED then
    return
  end
  local counted
  if window_end >= state.window_end then
    state.count = state.count + requests
    counted, window_end = state.count, state.window_end
  elseif window_end == state.window_end - numbers.window_us then
    state.previous = state.previous + requests
    counted = state.previous
  else
    return
  end
  if counted > numbers.threshold and window_end > state.offence then
    offend(numbers, state, window_end, counted)
  end
end

local reports = cmsgpack.unpack(ARGV[1])
local texts = read(KEYS)
local reply = { now }
for i, report in ipairs(reports) do
  local numbers = { window_us = report[1], threshold = report[2], penalty_us = report[3] }
  local told = { stage = report[6], ends = report[7], offence = report[8], offence_count = report[9] }
  local state = parse(texts[i])
  advance(numbers, state)
  local before = state.stage
  lift(numbers, state, report[10])
  merge(numbers, state, told)
  add(numbers, state, report[4], report[5])
  for _, field in ipairs(TOLD) do
    table.insert(reply, state[field])
  end
  table.insert(reply, state.stage ~= before and 1 or 0)
  local ends_at = math.max(state.ends, state.window_end + numbers.window_us, state.lifted + LIFTED)
  write(KEYS[i], ends_at, format(state))
end
return reply
