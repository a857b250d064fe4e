-- The algorithms by their numbers on the wire (`WIRE_ID` in Rust), and what each of them is.
--
-- Every algorithm has, by the names of the trait `Algorithm` in src/limit/algorithm.rs:
--
-- wire_args(numbers)               the arguments of a check by their names, from the numbers in which
--                                  they came; the first number is for `algorithm_of` and below
-- wire_state(state, reply, length, passes_at)
--                                  writes the state into a reply that has so many numbers already,
--                                  and returns how many it has then
-- clamp(args, state)               the state, brought into what these numbers allow
-- evaluate(args, state)            the clamped state once the cost is charged, or nil if it does not
--                                  pass; a log also says when it would
-- charge_after(args, state)        the clamped state once the cost is charged without asking whether
--                                  it passes
-- refund(args, state, charged_at)  the clamped state without a cost that was charged at that instant
--
-- Only Redis keeps states as text: parse(text), text(state), and the state `absent`. Buckets that need
-- a journal have journal_cost(args) and journal_charge(args, state, at, cost, rest); concurrency has
-- hold(args, state).
--
-- A check's first number is that of its algorithm; 16 on top if it asks whether it would pass and
-- spends nothing; 32 if it is not enforced: whether it passes decides nothing for its request; 64 if
-- it is the first of a pair, 128 if the second: the first of them that admits is charged; 256 if it is
-- bound: it is not enforced, and charged only if all bound checks of its request admit.
--
-- Redis runs a script from its first line at each call. So the file of an algorithm is the body of a
-- function, make_NAME, and a call makes only the algorithms that it needs.

local makers = {
  make_token_bucket,
  make_sliding_window,
  make_fixed_window,
  make_refill_bucket,
  make_sliding_log,
  make_concurrency,
  make_leaky_bucket,
}
local algorithms = {}

local function algorithm_of(numbers)
  local id = numbers[1] % 16
  local algorithm = algorithms[id]
  if not algorithm then
    algorithm = makers[id]()
    algorithms[id] = algorithm
  end
  return algorithm
end

local function spends(numbers)
  return numbers[1] % 32 < 16
end

local function enforced(numbers)
  return numbers[1] % 64 < 32
end

local function bound(numbers)
  return numbers[1] >= 256
end

