//! At scale and around failures: what only many keys, many held requests, several workers, a
//! gateway that stands still or a store that fails halfway bring to light.

mod gateway_stalls;
mod held_slots;
mod late_replies;
mod many_keys_outage;
mod returned_slots;
mod slow_redis;
mod stalled_calls;
