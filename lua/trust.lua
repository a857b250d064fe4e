-- Adds up what gateways have counted of users, and tells what is known of them.
-- The twin of TrustRecord in src/limit/trust/record.rs.
--
-- KEYS     the record of each user
-- ARGV[1]  msgpack, for each user a list of [day, successes, failures, violations]: what a gateway has
--          counted since its last report, by day; empty to only ask
-- reply    for each user its record
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because nothing may come between reading a record and writing it: counts of two gateways must
-- both be in it.
--
-- A record is "day successes failures violations" for each day that has any, the newest first, with ';'
-- between them. Days are those of UTC, from the epoch on. Calls count for 7 days and violations for 30;
-- what is older goes with the next report, and the whole record 31 days after the last one.

local DAY = 86400000000
local CALL_DAYS, VIOLATION_DAYS = 7, 30
local MOST_CALLS, MOST_VIOLATIONS = 4294967295, 65535

local today = math.floor(now / DAY)

-- Adds to a day what still counts of it. The clocks of gateways may be ahead of this one.
local function add(days, day, successes, failures, violations)
  local age = today - day
  if age < -1 or age >= VIOLATION_DAYS then
    return
  end
  if age >= CALL_DAYS then
    successes, failures = 0, 0
  end
  local sum = days[day] or { 0, 0, 0 }
  days[day] = {
    math.min(sum[1] + successes, MOST_CALLS),
    math.min(sum[2] + failures, MOST_CALLS),
    math.min(sum[3] + violations, MOST_VIOLATIONS),
  }
end

local function parse(text)
  local days = {}
  for day, successes, failures, violations in string.gmatch(text or '', '(%d+) (%d+) (%d+) (%d+)') do
    day, successes, failures = below(EXACT, day), below(EXACT, successes), below(EXACT, failures)
    violations = below(EXACT, violations)
    if day and successes and failures and violations then
      add(days, day, successes, failures, violations)
    end
  end
  return days
end

local function text_of(days)
  local parts = {}
  for day = today + 1, today - VIOLATION_DAYS + 1, -1 do
    local sum = days[day]
    if sum and sum[1] + sum[2] + sum[3] > 0 then
      parts[#parts + 1] = string.format('%.0f %.0f %.0f %.0f', day, unpack(sum))
    end
  end
  return table.concat(parts, ';')
end

local reports = cmsgpack.unpack(ARGV[1])
local texts = read(KEYS)
local reply = {}
for i, report in ipairs(reports) do
  local days = parse(texts[i] or nil)
  for _, counts in ipairs(report) do
    add(days, unpack(counts))
  end
  reply[i] = text_of(days)
  if #report > 0 then
    write(KEYS[i], now + (VIOLATION_DAYS + 1) * DAY, reply[i])
  end
end
return reply
