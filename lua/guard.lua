-- Adds up what gateways have counted for their guards, and notices offences of all of them together.
-- The twin of src/limit/guard.rs.
--
-- KEYS     the counter of each key
-- ARGV[1]  msgpack, for each key [window_us, threshold, penalty_us, requests, window_end, stage, ends,
--          offence]: the guard's numbers, how many requests a gateway has counted since its last report
--          and in which window, and what it has noticed by itself
-- reply    for each key window_end, count, stage, ends, offence, and 1 if the stage has changed, else 0
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because nothing may come between reading a counter and writing it: two gateways that add up to
-- an offence must find one.
--
-- The state is "window_end count previous stage ends offence": the window that is counted, the requests
-- in it and in the one before, of which gateways report the rest when it is over; the stage (0 clean,
-- 1 warned, 2 blocked) and when it ends; the end of the window of the last offence.

local CLEAN, WARNED, BLOCKED = 0, 1, 2

local function parse(text)
  local window_end, count, previous, stage, ends, offence =
    string.match(text or '', '^(%d+) (%d+) (%d+) (%d) (%d+) (%d+)$')
  window_end, count, previous = below(EXACT, window_end), below(EXACT, count), below(EXACT, previous)
  stage, ends, offence = below(BLOCKED + 1, stage), below(EXACT, ends), below(EXACT, offence)
  if window_end and count and previous and stage and ends and offence then
    return { window_end, count, previous, stage, ends, offence }
  end
  return { 0, 0, 0, CLEAN, 0, 0 }
end

-- The state now: stages that have ended are gone, and a new window counts from zero.
local function at(numbers, state)
  local ending, count, previous, stage, ends, offence = unpack(state)
  if stage ~= CLEAN and ends <= now then
    if stage == BLOCKED then
      count, previous, offence = 0, 0, 0
    end
    stage, ends = CLEAN, 0
  end
  local current = window_end(now, numbers.window_us)
  if current > ending then
    previous = current - ending == numbers.window_us and count or 0
    ending, count = current, 0
  end
  return { ending, count, previous, stage, ends, offence }
end

local function offend(numbers, state, window_end)
  local blocked = state[4] ~= CLEAN
  state[4] = blocked and BLOCKED or WARNED
  state[5] = now + (blocked and 2 or 1) * numbers.penalty_us
  state[6] = window_end
end

-- What a gateway has noticed by itself. Nothing gets weaker by it.
local function merge(numbers, state, stage, ends, offence)
  if ends <= now then
    return
  elseif stage == WARNED and state[4] == WARNED and offence > state[6] then
    offend(numbers, state, offence)
  elseif stage > state[4] or (stage == state[4] and ends > state[5]) then
    state[4], state[5], state[6] = stage, ends, offence
  end
end

local function add(numbers, state, requests, window_end)
  if state[4] == BLOCKED then
    return
  end
  local counted
  if window_end >= state[1] then
    state[2] = state[2] + requests
    counted, window_end = state[2], state[1]
  elseif window_end == state[1] - numbers.window_us then
    state[3] = state[3] + requests
    counted = state[3]
  else
    return
  end
  if counted > numbers.threshold and window_end > state[6] then
    offend(numbers, state, window_end)
  end
end

local reports = cmsgpack.unpack(ARGV[1])
local texts = read(KEYS)
local reply = {}
for i, report in ipairs(reports) do
  local numbers = { window_us = report[1], threshold = report[2], penalty_us = report[3] }
  local state = at(numbers, parse(texts[i]))
  local before = state[4]
  merge(numbers, state, report[6], report[7], report[8])
  add(numbers, state, report[4], report[5])
  local length = #reply
  for field, from in ipairs({ 1, 2, 4, 5, 6 }) do
    reply[length + field] = state[from]
  end
  reply[length + 6] = state[4] ~= before and 1 or 0
  local text = string.format('%.0f %.0f %.0f %.0f %.0f %.0f', unpack(state))
  write(KEYS[i], { ends_at = math.max(state[5], state[1] + numbers.window_us) }, text)
end
return reply
