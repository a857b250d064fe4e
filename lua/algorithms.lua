-- The algorithms by their numbers, the first of a check's terms. The rest of that number says how
-- the check is meant: 16 on top if it asks whether it would pass and spends nothing, 32 if it only
-- watches: whether it passes decides nothing for its request.

local algorithms =
  { token_bucket, sliding_window, fixed_window, refill_bucket, sliding_log, concurrency }

local function algorithm_of(terms)
  return algorithms[terms[1] % 16]
end

local function spends(terms)
  return terms[1] % 32 < 16
end

local function enforced(terms)
  return terms[1] < 32
end

