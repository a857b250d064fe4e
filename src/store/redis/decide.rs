//! Deciding requests by Redis, on each worker.
//!
//! A request joins a call ([`call_queue`]), the worker's [`call_pipeline`] sends it over its
//! [`worker_link`], and [`conclude`] makes a decision of what came back, which is kept in case Redis
//! fails ([`known_states`]). What is known to be refused is not even asked ([`known_refusals`]), and
//! nothing is asked of buckets that owe something ([`unpaid`]). What a decision leaves to be done is in
//! [`refunds`] and, for slots of `concurrency` limits, in [`held_slots`] and [`resync`]. Units that are
//! taken in advance go over the [`lease_link`].

pub(super) mod call_outcomes;
pub(super) mod call_pipeline;
pub(super) mod call_queue;
pub(super) mod conclude;
pub(super) mod held_slots;
pub(super) mod known_refusals;
pub(super) mod known_states;
pub(super) mod lease_link;
pub(super) mod lease_notes;
pub(super) mod refunds;
pub(super) mod reply_order;
pub(super) mod resync;
mod signal;
mod unpaid;
pub(super) mod worker_link;
