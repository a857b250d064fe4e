-- Decides many requests, one after another, each with all its checks at once: a request is
-- charged in all its buckets, or in none.
--
-- KEYS     the buckets of all requests, without doubles, and the caller's fence if it has one
-- ARGV[1]  msgpack [checks, requests, call, deadline, tentative]
--            checks    an array of numbers for each distinct pair of policy and cost: one for the
--                      algorithm and how the check is meant (algorithms.lua), then its args in the
--                      order that the algorithm's file states
--            requests  for each a flat array [key, check, key, check, ...]: positions in KEYS and in
--                      checks, counted from 1; no key comes twice in a request; the second of a pair
--                      follows its first
--            call      the number of this call, if the caller has a fence: see fence.lua; else 0
--            deadline  the instant, in µs, after which the caller waits no more: then nothing is
--                      decided, and the reply is [now]; 0 if it is not known
--            tentative  which requests, counted from 1, may yet be refunded because another hash slot
--                      refuses them: see journal.lua
-- reply    msgpack [now, verdict, state..., verdict, state..., ...]: for each request 1 if it was
--          admitted, else 0, and on top of it 2, 4, 8, ... if the first, second, third, ... of its
--          checks is not enforced, is not one of a pair, and would have refused; if it has pairs, a
--          number with two bits for each of them, 0 if its first admits, 1 if only its second does, 2
--          if neither does; then the state of each check, charged if it was, else as it was: in the
--          order that the algorithm's file states
-- cluster  all KEYS must be of one hash slot: the caller makes one call for each
--
-- Lua, because a decision reads all its buckets before it writes any, and nothing may come between;
-- and because one call for many requests costs Redis a fraction of what many calls do.
--
-- A refusal writes nothing. The one exception is a state that no bucket of this limit can have,
-- left by a changed limit or by a clock that stepped back: it is clamped, and kept so, for
-- otherwise it would be clamped anew at each look and never refill.
--
-- Of a pair, the second is evaluated only if the first refuses, and a pair refuses if both do. So one
-- of its buckets is charged at most, and which one is part of the same decision.
--
-- Bound checks belong to one limit that only watches: if one of them refuses, none is charged.

-- On top of the first number of a check that is one of a pair: see algorithms.lua.
local FIRST, SECOND = 64, 128

-- A verdict has to stay exact in a double, so checks beyond these that are not enforced have no bit.
local VERDICT_BITS = 50

local asked = cmsgpack.unpack(ARGV[1])
if asked[4] and asked[4] > 0 and now > asked[4] then
  return cmsgpack.pack({ now })
end
local checks, requests = asked[1], asked[2]
local algorithm_of_check, args_of_check = {}, {}
-- Nil while no check is one of a pair, which most never are.
local choice_of_check
for i = 1, #checks do
  local algorithm = algorithm_of(checks[i])
  algorithm_of_check[i], args_of_check[i] = algorithm, algorithm.wire_args(checks[i])
  local choice = checks[i][1] % 256
  if choice >= FIRST then
    choice_of_check = choice_of_check or {}
    choice_of_check[i] = choice >= SECOND and SECOND or FIRST
  end
end
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
local journals, grants_of_key, args_of_key, tentative = {}, {}, {}, {}
for _, request in ipairs(asked[5] or {}) do
  tentative[request] = true
end
local reply, length = { now }, 1

for r = 1, #requests do
  local request = requests[r]
  local admitted, would_refuse, bit = true, 0, 2
  local bound_refused = false
  local came_of_pairs, pair_bit, letters = 0, 1, ''
  for i = 1, #request, 2 do
    local key, check = request[i], request[i + 1]
    local algorithm, args = algorithm_of_check[check], args_of_check[check]
    local state = states[key]
    if not state then
      local text, grants, journal = split_text(texts[key])
      state = text and algorithm.parse(text) or algorithm.absent
      journals[key] = journal and journal_of(algorithm, journal)
      if grants then
        state, grants_of_key[key] = expire_grants(algorithm, args, state, grants)
        args_of_key[key] = args
      end
    end
    local clamped = algorithm.clamp(args, state)
    if was_clamped(clamped, state) then
      changed[key], journals[key] = algorithm, nil
    end
    if grants_of_key[key] then
      clamped = refill_capped(algorithm, args, clamped, grants_of_key[key])
    end
    states[key] = clamped
    local choice = choice_of_check and choice_of_check[check]
    if choice == SECOND and charged[i - 2] then
      charged[i], passes[i] = nil, nil
    else
      charged[i], passes[i] = algorithm.evaluate(args, clamped)
      if charged[i] == nil and choice ~= FIRST then
        bound_refused = bound_refused or bound(checks[check])
        if enforced(checks[check]) then
          admitted = false
        elseif not choice and i < 2 * VERDICT_BITS then
          would_refuse = would_refuse + bit
        end
      end
    end
    bit = bit * 2
    if choice == SECOND then
      local came = charged[i - 2] and 0 or charged[i] and 1 or 2
      came_of_pairs = came_of_pairs + came * pair_bit
      pair_bit = pair_bit * 4
      letters = letters .. string.sub(FENCE_LETTERS, came + 1, came + 1)
    end
  end
  verdicts[r] = admitted and 1 or 0
  length = length + 1
  reply[length] = verdicts[r] + would_refuse
  if pair_bit > 1 then
    length = length + 1
    reply[length] = came_of_pairs
    verdicts[r] = admitted and '1' .. letters or 0
  end
  for i = 1, #request, 2 do
    local key, check = request[i], request[i + 1]
    local algorithm = algorithm_of_check[check]
    local spared = bound_refused and bound(checks[check])
    if admitted and charged[i] and charged[i] ~= states[key] and spends(checks[check]) and not spared then
      if journals[key] or tentative[r] then
        local args = args_of_check[check]
        journals[key] = with_charge(journals[key], algorithm, args, states[key], tentative[r])
      end
      states[key] = charged[i]
      changed[key] = algorithm
    end
    length = algorithm.wire_state(states[key], reply, length, passes[i])
  end
end

local wrote = false
for key = 1, buckets do
  if changed[key] then
    local text = with_grants(grants_of_key[key], changed[key].text(states[key]))
    text = with_journal(changed[key], journals[key], text)
    write_bucket(KEYS[key], changed[key], args_of_key[key], states[key], grants_of_key[key], text)
    wrote = true
  end
end
if call and wrote then
  local number = string.format('%.0f', call)
  local entry_of_this = string.format('%s:%s:%.0f', number, table.concat(verdicts), now)
  local entries = { number, entry_of_this }
  for entry in string.gmatch(past, '%d+:[01' .. FENCE_LETTERS .. ']+:%d+') do
    if #entries <= REMEMBERED then
      entries[#entries + 1] = entry
    end
  end
  redis.call('SET', KEYS[buckets + 1], table.concat(entries, ' '), 'PX', FENCE)
end

return cmsgpack.pack(reply)
