-- leaky_bucket: the twin of src/limit/leaky_bucket.rs, which decides as a token bucket does. When an
-- admitted request leaves is computed by the gateway, from the state in the reply.

local leaky_bucket = make_token_bucket()

