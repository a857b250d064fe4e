//! What scripts are sent and what they answer, as bytes.
//!
//! [`script`] has the scripts of `lua/`, [`batch`] the decisions of many requests as one call,
//! [`adjustment`] corrections after the fact, [`check_args`] and [`reply`] the numbers in both directions,
//! [`pair_choices`] which of two buckets was charged.

pub mod adjustment;
pub mod batch;
pub mod check_args;
pub mod lease_call;
pub(super) mod msgpack;
pub mod pair_choices;
pub mod reply;
pub mod script;
