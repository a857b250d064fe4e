-- What the scripts share: the clock, reading buckets and writing them.
--
-- A bucket is one string of plain decimal numbers, so that redis-cli shows what it holds. A state
-- is a table that is never changed in place: whether a bucket must be written is whether its table
-- is still the one that was read. Its `ends_at` is the instant in µs from which the bucket is as good
-- as absent, whatever Redis still keeps under the key: expiry only frees memory and decides nothing.
--
-- Numbers are doubles. All here are whole and below 2^53, where sums, differences and remainders
-- are exact.

local EXACT = 9007199254740992

-- Counts of windows are at most 10^9.
local COUNTS = 1073741824

-- Parts of a µs in which token buckets count.
local UNIT = 4294967296

-- Redis expires keys by a clock of its own, coarser than TIME and standing still while a script
-- runs. So a key is kept this much longer, in ms, than its state says.
local MARGIN = 1000

-- How long a fence stands, in ms: longer than any call can be on its way.
local FENCE = 600000

-- Calls whose verdicts a fence keeps: as many as can be on their way at once.
local REMEMBERED = 4

-- What a fence says of a pair: its first was charged, its second, or neither: see fence.lua.
local FENCE_LETTERS = 'fsn'

-- As many values as `unpack` surely finds room for on the stack.
local AT_ONCE = 1000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The number that some digits spell, or nil if it is not below a bound.
local function below(bound, digits)
  local number = tonumber(digits)
  return number and number < bound and number or nil
end

-- The state that a text of two numbers spells, the second below a bound; nil if it is none.
local function parse_pair(bound, text)
  local ends_at, rest = string.match(text, '^(%d+) (%d+)$')
  ends_at, rest = below(EXACT, ends_at), below(bound, rest)
  return ends_at and rest and { ends_at = ends_at, rest = rest } or nil
end

local function pair_text(state)
  return string.format('%.0f %.0f', state.ends_at, state.rest)
end

-- Writes a state of two numbers into a reply that has so many already, and returns its new length.
local function write_pair(state, reply, length)
  reply[length + 1], reply[length + 2] = state.ends_at, state.rest
  return length + 2
end

-- The end of the window that an instant lies in. Windows are aligned to the epoch.
local function window_end(instant, period)
  return instant - instant % period + period
end

-- The texts under some keys; false for none. MGET and not GET: to it, a key of another type is
-- one without a text, and the next write puts it right.
local function read(keys)
  local texts = {}
  for first = 1, #keys, AT_ONCE do
    local some = redis.call('MGET', unpack(keys, first, math.min(first + AT_ONCE - 1, #keys)))
    for i = 1, #some do
      texts[first + i - 1] = some[i]
    end
  end
  return texts
end

-- Whether clamping has changed a state. A log is a new table each time it is clamped, and says itself
-- whether it has changed.
local function was_clamped(clamped, state)
  return clamped ~= state and clamped.changed ~= false
end

local function write(key, ends_at, text)
  -- The state of a request that has waited may have ended.
  local ttl = math.max(math.ceil((ends_at - now) / 1000), 0) + MARGIN
  redis.call('SET', key, text, 'PX', string.format('%.0f', ttl))
end

