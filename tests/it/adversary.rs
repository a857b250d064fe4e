//! At scale and around failures: what only many keys, many held requests, several workers, a
//! gateway that stands still or a store that fails halfway bring to light.

mod gateway_stalls;
mod held;
mod outage;
mod slots;
mod slow_redis;
