//! The algorithms behind one name: what a bucket's state is and what may be asked of it.
//!
//! All of it is integers and pure: the same state, instant and cost always give the same verdict,
//! and a refusal names the first instant at which the cost would pass.

use crate::clock::Micros;

use super::fixed_window::FixedWindow;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;

/// How a limit decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    TokenBucket(TokenBucket),
    SlidingWindow(SlidingWindow),
    FixedWindow(FixedWindow),
}

/// The state of one bucket. `until` is the first instant at which the bucket is as good as
/// absent, whatever the algorithm, so an expired entry equals none and nothing needs a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    pub until: Micros,
    /// What the algorithm keeps beside it.
    pub rest: u64,
}

/// What a policy says of one cost at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass, and this is the state once it is charged.
    Admit(State),
    Refuse(Retry),
}

/// When a refused cost would pass if nobody else spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    At(Micros),
    /// The cost is more than the limit ever holds.
    Never,
}

/// What answers tell of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whole units left, never negative.
    pub remaining: u64,
    /// When `remaining` can next grow; now if the bucket is full.
    pub grows_at: Micros,
    /// When it is full again, or its window ends; now if it is full.
    pub full_at: Micros,
}

impl Policy {
    /// Decides one cost against one state. Pure: the caller keeps the state.
    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        match self {
            Policy::TokenBucket(it) => it.evaluate(state, now, cost),
            Policy::SlidingWindow(it) => it.evaluate(state, now, cost),
            Policy::FixedWindow(it) => it.evaluate(state, now, cost),
        }
    }

    /// The state as these numbers can hold it: one further ahead than an empty bucket, or of a
    /// window that is not this policy's, is drawn in. Only a changed limit or a clock that stepped
    /// back leaves such a state, and a store keeps the settled one even if it then refuses:
    /// otherwise the bucket would be empty anew at every look and never refill.
    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        match self {
            Policy::TokenBucket(it) => it.settle(state, now),
            Policy::SlidingWindow(it) => it.settle(state, now),
            Policy::FixedWindow(it) => it.settle(state, now),
        }
    }

    #[must_use]
    pub fn report(&self, state: State, now: Micros) -> Report {
        match self {
            Policy::TokenBucket(it) => it.report(state, now),
            Policy::SlidingWindow(it) => it.report(state, now),
            Policy::FixedWindow(it) => it.report(state, now),
        }
    }

    /// `q`: the burst, or the window's count.
    #[must_use]
    pub fn quota(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.burst(),
            Policy::SlidingWindow(it) => it.rate().count(),
            Policy::FixedWindow(it) => it.rate().count(),
        }
    }

    /// `w`: whole seconds, rounded up, in which an empty bucket becomes full.
    #[must_use]
    pub fn window_seconds(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.refill_seconds(),
            Policy::SlidingWindow(it) => it.rate().period_us().div_ceil(1_000_000),
            Policy::FixedWindow(it) => it.rate().period_us().div_ceil(1_000_000),
        }
    }

    /// The name that configurations and answers use.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Policy::TokenBucket(_) => "token_bucket",
            Policy::SlidingWindow(_) => "sliding_window",
            Policy::FixedWindow(_) => "fixed_window",
        }
    }
}
