-- Corrects buckets after the fact, one by one and in order.
--
-- KEYS     a bucket for each correction
-- ARGV[1]  msgpack, for each key [what, charged_at, terms]: `what` is 1 to give back the cost that
--          was charged at the instant `charged_at`, 2 to owe the cost without asking whether it
--          passes, drawn in at empty; terms as in decide.lua
-- reply    now, in µs
-- cluster  all KEYS must be of one slot: the caller makes one call for each
--
-- Lua, because nobody may come between reading a bucket and writing it.
--
-- Giving back never leaves more than if the charge had not been made. So nothing is given back to
-- a state that had to be drawn in, or if the clock has stepped back since: how much of the charge
-- is still in there cannot be told.

local GIVE_BACK = 1

local algorithms = { token_bucket, sliding_window, fixed_window }

local function adjust(algorithm, what, charged_at, terms, state)
  local settled = algorithm.settle(terms, state)
  if what ~= GIVE_BACK then
    return terms[2] == 0 and settled or algorithm.owe(terms, settled)
  elseif settled ~= state or state[1] <= now or charged_at > now then
    return settled
  end
  return algorithm.give_back(terms, state, charged_at)
end

for i, asked in ipairs(cmsgpack.unpack(ARGV[1])) do
  local what, charged_at, terms = asked[1], asked[2], asked[3]
  local algorithm = algorithms[terms[1]]
  local text = read({ KEYS[i] })[1]
  local before = text and algorithm.parse(text) or algorithm.absent
  local after = adjust(algorithm, what, charged_at, terms, before)
  if after == before then
    -- Nothing to write.
  elseif after == algorithm.absent then
    redis.call('DEL', KEYS[i])
  else
    write(KEYS[i], algorithm, after)
  end
end

return now
