-- Decides many requests, one after another, each with all its checks at once: a request is
-- charged in all its buckets, or in none.
--
-- KEYS     the buckets of all requests, without doubles, and the caller's fence if it has one
-- ARGV[1]  msgpack [terms, requests, call, deadline, tentative]
--            terms     an array for each distinct pair of policy and cost: see the algorithms
--            requests  for each a flat array [key, terms, key, terms, ...]: places in KEYS and in
--                      terms, counted from 1; no key comes twice in a request
--            call      the number of this call, if the caller has a fence: see fence.lua; else 0
--            deadline  the instant, in µs, after which the caller waits no more: then nothing is
--                      decided, and the reply is [now]; 0 if it is not known
--            tentative  which requests, counted from 1, may yet be given back because another slot
--                      refuses them: see journal.lua
-- reply    msgpack [now, verdict, state..., verdict, state..., ...]: for each request 1 if it was
--          admitted, else 0, and on top of it 2, 4, 8, ... if the first, second, third, ... of its
--          checks only watches and would have refused; then the state of each check, charged if it
--          was, else as it was: ends and rest (token_bucket), ends and overflow (with refill), ends
--          and count (fixed_window, concurrency), ends, previous and current (sliding_window), or
--          ends, sum, next, and when it would pass if it does not (sliding_log)
-- cluster  all KEYS must be of one slot: the caller makes one call for each
--
-- Lua, because a decision reads all its buckets before it writes any, and nobody may come between;
-- and because one call for many requests costs Redis a fraction of what many calls do.
--
-- A refusal writes nothing. The one exception is a state that no bucket of this limit can have,
-- left by a changed limit or by a clock that stepped back: it is drawn in, and kept so, for
-- otherwise it would be drawn in anew at each look and never refill.

-- Watching checks beyond these are not told apart in a verdict, which has to stay exact.
local TOLD_APART = 50

local asked = cmsgpack.unpack(ARGV[1])
if asked[4] and asked[4] > 0 and now > asked[4] then
  return cmsgpack.pack({ now })
end
local terms, requests = asked[1], asked[2]
local texts = read(KEYS)
local call, buckets = asked[3] and asked[3] > 0 and asked[3], #KEYS
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
local states, changed, charged, passes, verdicts = {}, {}, {}, {}, {}
local journals, tentative = {}, {}
for _, request in ipairs(asked[5] or {}) do
  tentative[request] = true
end
local reply, length = { now }, 1

for r = 1, #requests do
  local request = requests[r]
  local admitted, watched, bit = true, 0, 2
  for i = 1, #request, 2 do
    local key, its = request[i], terms[request[i + 1]]
    local algorithm = algorithm_of(its)
    local state = states[key]
    if not state then
      local text, journal = without_journal(texts[key])
      state = text and algorithm.parse(text) or algorithm.absent
      journals[key] = journal and journal_of(algorithm, journal)
    end
    local settled = algorithm.settle(its, state)
    if drawn(settled, state) then
      changed[key], journals[key] = algorithm, nil
    end
    states[key] = settled
    charged[i], passes[i] = algorithm.charge(its, settled)
    if charged[i] == nil then
      if enforced(its) then
        admitted = false
      elseif i < 2 * TOLD_APART then
        watched = watched + bit
      end
    end
    bit = bit * 2
  end
  verdicts[r] = admitted and 1 or 0
  length = length + 1
  reply[length] = verdicts[r] + watched
  for i = 1, #request, 2 do
    local key, its = request[i], terms[request[i + 1]]
    local algorithm = algorithm_of(its)
    if admitted and charged[i] and charged[i] ~= states[key] and spends(its) then
      if journals[key] or tentative[r] then
        journals[key] = with_charge(journals[key], algorithm, its, states[key], tentative[r])
      end
      states[key] = charged[i]
      changed[key] = algorithm
    end
    local state = states[key]
    for n = 1, algorithm.told do
      reply[length + n] = state[n]
    end
    length = length + algorithm.told
    if algorithm.foretells then
      length = length + 1
      reply[length] = passes[i] or 0
    end
  end
end

local wrote = false
for key = 1, buckets do
  if changed[key] then
    local text = changed[key].text(states[key])
    write(KEYS[key], states[key], with_journal(changed[key], journals[key], text))
    wrote = true
  end
end
if call and wrote then
  local number = string.format('%.0f', call)
  local entry_of_this = string.format('%s:%s:%.0f', number, table.concat(verdicts), now)
  local entries = { number, entry_of_this }
  for entry in string.gmatch(past, '%d+:[01]+:%d+') do
    if #entries <= REMEMBERED then
      entries[#entries + 1] = entry
    end
  end
  redis.call('SET', KEYS[buckets + 1], table.concat(entries, ' '), 'PX', FENCE)
end

return cmsgpack.pack(reply)
