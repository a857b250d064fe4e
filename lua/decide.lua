-- Decides many requests, one after another, each with all its checks at once: a request is
-- charged in all its buckets, or in none.
--
-- KEYS     the buckets of all requests, without doubles, and the caller's fence if it has one
-- ARGV[1]  msgpack [terms, requests, call]
--            terms     an array for each distinct pair of policy and cost: see the algorithms
--            requests  for each a flat array [key, terms, key, terms, ...]: places in KEYS and in
--                      terms, counted from 1; no key comes twice in a request
--            call      the number of this call, if the caller has a fence: see fence.lua
-- reply    msgpack [now, admitted, state..., admitted, state..., ...]: for each request 1 or 0,
--          then the state of each of its checks, charged if it was admitted and else as it was:
--          ends and rest (token_bucket), ends and count (fixed_window), or ends, previous and
--          current (sliding_window)
-- cluster  all KEYS must be of one slot: the caller makes one call for each
--
-- Lua, because a decision reads all its buckets before it writes any, and nobody may come between;
-- and because one call for many requests costs Redis a fraction of what many calls do.
--
-- A refusal writes nothing. The one exception is a state that no bucket of this limit can have,
-- left by a changed limit or by a clock that stepped back: it is drawn in, and kept so, for
-- otherwise it would be drawn in anew at each look and never refill.

local algorithms = { token_bucket, sliding_window, fixed_window }
local asked = cmsgpack.unpack(ARGV[1])
local terms, requests = asked[1], asked[2]
local texts = read(KEYS)
local call, buckets = asked[3], #KEYS
local fence, past
if call then
  fence, past = string.match((texts[buckets] or '') .. ' ', '^(%d+)( .*)$')
  fence = below(EXACT, fence)
  past = fence and past or ''
  if fence and call <= fence then
    return redis.error_reply('FENCED this call has been given up')
  end
  buckets = buckets - 1
end
local states, changed, charged, verdicts = {}, {}, {}, {}
local reply, length = { now }, 1

for r = 1, #requests do
  local request = requests[r]
  local admitted = true
  for i = 1, #request, 2 do
    local key, its = request[i], terms[request[i + 1]]
    local algorithm = algorithms[its[1]]
    local state = states[key]
    if not state then
      state = texts[key] and algorithm.parse(texts[key]) or algorithm.absent
    end
    local settled = algorithm.settle(its, state)
    if settled ~= state then
      changed[key] = algorithm
    end
    states[key] = settled
    charged[i] = algorithm.charge(its, settled)
    admitted = admitted and charged[i] ~= nil
  end
  length = length + 1
  reply[length] = admitted and 1 or 0
  verdicts[r] = reply[length]
  for i = 1, #request, 2 do
    local key = request[i]
    if admitted and charged[i] ~= states[key] then
      states[key] = charged[i]
      changed[key] = algorithms[terms[request[i + 1]][1]]
    end
    local state = states[key]
    reply[length + 1], reply[length + 2] = state[1], state[2]
    length = length + 2
    if state[3] then
      length = length + 1
      reply[length] = state[3]
    end
  end
end

local wrote = false
for key = 1, buckets do
  if changed[key] then
    write(KEYS[key], changed[key], states[key])
    wrote = true
  end
end
if call and wrote then
  local number = string.format('%.0f', call)
  local entries = { number, number .. ':' .. table.concat(verdicts) }
  for entry in string.gmatch(past, '%d+:[01]+') do
    if #entries <= REMEMBERED then
      entries[#entries + 1] = entry
    end
  end
  redis.call('SET', KEYS[buckets + 1], table.concat(entries, ' '), 'PX', FENCE)
end

return cmsgpack.pack(reply)
