-- What gateways have taken out of a bucket in advance: the twin of src/limit/lease.rs.
--
-- A gateway takes units of a bucket in advance and spends them in memory: a lease. What is leased and
-- has not been reported spent or returned is outstanding, and a bucket refills only as far as leaves
-- room for it: level + outstanding is at most the burst, at any instant. So however many gateways
-- hold leases, no interval admits more than burst + rate × t.
--
-- A lease ends at an instant. What is outstanding of it then counts as spent: a gateway that has died
-- has lost it, and one that lives has stopped to spend it a little earlier, by its own clock.
--
-- Behind the text of a state stand its grants, as in "1794814088523726 0|L1794814089000000:5000":
-- until when, and how much. Grants that end at the same instant are one. An amount is in what the
-- algorithm's `cap_refill` counts in: µs in which it refills (token_bucket), units (refill_bucket).
-- Windows refill nothing before they end, so nothing is capped. Behind the grants may stand a
-- journal (journal.lua).

-- No lease lasts longer, in µs. One that seems to was made before the clock was set back.
local LONGEST_LEASE = 60000000

-- As many as gateways with several intervals make. Beyond that, two are merged into the later one.
local MOST_GRANTS = 16

local function grants_of(text)
  local grants = {}
  for ends, amount in string.gmatch(text, '(%d+):(%d+)') do
    ends, amount = below(EXACT, ends), below(EXACT, amount)
    if ends and amount then
      grants[#grants + 1] = { math.min(ends, now + LONGEST_LEASE), amount }
    end
  end
  return grants
end

-- The text of a state, its grants and the text of its journal, the latter two if it has any.
local function split_text(text)
  local bar = text and string.find(text, '|', 1, true)
  if not bar then
    return text, nil, nil
  end
  local state, rest = string.sub(text, 1, bar - 1), string.sub(text, bar + 1)
  if string.sub(rest, 1, 1) ~= 'L' then
    return state, nil, rest
  end
  bar = string.find(rest, '|', 1, true)
  local grants = grants_of(bar and string.sub(rest, 2, bar - 1) or string.sub(rest, 2))
  return state, grants, bar and string.sub(rest, bar + 1)
end

local function with_grants(grants, text)
  if not grants or #grants == 0 then
    return text
  end
  local parts = {}
  for i, grant in ipairs(grants) do
    parts[i] = string.format('%.0f:%.0f', grant[1], grant[2])
  end
  return text .. '|L' .. table.concat(parts, ' ')
end

-- The state once grants that have ended count as spent, and the grants that are left, ordered by
-- their ends. A grant caps the refill until its end, and no longer.
local function expire_grants(algorithm, args, state, grants)
  local outstanding, left = 0, {}
  for _, grant in ipairs(grants) do
    outstanding = outstanding + grant[2]
  end
  for _, grant in ipairs(grants) do
    if grant[1] <= now then
      state = algorithm.cap_refill(args, state, grant[1], outstanding)
      outstanding = outstanding - grant[2]
    else
      left[#left + 1] = grant
    end
  end
  return state, left
end

-- The clamped state, refilled no further than what is outstanding leaves room for: if that is more than
-- the bucket holds by these numbers, it is empty.
local function refill_capped(algorithm, args, state, grants)
  local outstanding = 0
  for _, grant in ipairs(grants) do
    outstanding = outstanding + grant[2]
  end
  if outstanding == 0 then
    return state
  end
  return algorithm.clamp(args, algorithm.cap_refill(args, state, now, outstanding))
end

-- Writes a bucket with its grants, and keeps it until it is full again: what is outstanding when the
-- last of them ends refills only from then on.
local function write_bucket(key, algorithm, args, state, grants, text)
  local ends_at = state.ends_at
  if grants and #grants > 0 then
    local outstanding = 0
    for _, grant in ipairs(grants) do
      outstanding = outstanding + grant[2]
    end
    for _, grant in ipairs(grants) do
      state = algorithm.cap_refill(args, state, grant[1], outstanding)
      outstanding = outstanding - grant[2]
    end
    ends_at = math.max(ends_at, state.ends_at, grants[#grants][1])
  end
  write(key, ends_at, text)
end

