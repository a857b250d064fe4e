//! The algorithms behind one name: what a bucket's state is and what may be asked of it.
//!
//! All of it is integers and pure: the same state, instant and cost always give the same verdict,
//! and a refusal names the first instant at which the cost would pass.

use std::time::Duration;

use crate::clock::Micros;

use super::fixed_window::FixedWindow;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;

/// How a limit decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// How one of `nodes` that cannot agree decides on its own: by this policy and this cost, on
    /// the same states. A token bucket is divided; in a window everything costs more, since the
    /// others spend as well. No share is so small that the cost never fits.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> (Policy, u64) {
        match self {
            Policy::TokenBucket(it) => (Policy::TokenBucket(it.share(nodes, cost)), cost),
            Policy::SlidingWindow(_) | Policy::FixedWindow(_) => {
                let quota = self.quota();
                let dearer = if cost > quota { cost } else { (cost * nodes).min(quota) };
                (*self, dearer)
            }
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

    /// The state once the cost is charged, whether it passes or not: at most empty.
    #[must_use]
    pub fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let (state, cost) = (self.settle(state, now), self.bounded(cost));
        if cost == 0 {
            return state;
        }
        match self {
            Policy::TokenBucket(it) => it.owe(state, now, cost),
            Policy::SlidingWindow(it) => it.owe(state, now, cost),
            Policy::FixedWindow(it) => it.owe(state, now, cost),
        }
    }

    /// What comes back in a span of time, in whole units. A window gives nothing back before it
    /// ends.
    #[must_use]
    pub fn refilled(&self, span: Duration) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.refilled(span),
            Policy::SlidingWindow(_) | Policy::FixedWindow(_) => 0,
        }
    }

    /// The state without a cost that was charged at `charged_at`. However late, and whatever was
    /// charged or given back since, it never leaves more than if the charge had not been made. So
    /// nothing is given back to a state that had to be drawn in, or if the clock has stepped back
    /// since: how much of the charge is still in there cannot be told.
    #[must_use]
    pub fn give_back(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        let settled = self.settle(state, now);
        if settled != state || state.until <= now || charged_at > now {
            return settled;
        }
        let cost = self.bounded(cost);
        match self {
            Policy::TokenBucket(it) => it.give_back(state, now, cost, charged_at),
            Policy::SlidingWindow(it) => it.give_back(state, now, cost, charged_at),
            Policy::FixedWindow(it) => it.give_back(state, cost, charged_at),
        }
    }

    /// A cost that no limit passes is as good as any other such: one above the quota.
    #[must_use]
    pub fn bounded(&self, cost: u64) -> u64 {
        cost.min(self.quota() + 1)
    }

    /// `q`: the burst, or the window's count.
    #[must_use]
    pub fn quota(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.burst(),
            Policy::SlidingWindow(it) => it.rate().count(),
            Policy::FixedWindow(it) => it.count(),
        }
    }

    /// `w`: whole seconds, rounded up, in which an empty bucket becomes full.
    #[must_use]
    pub fn window_seconds(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.refill_seconds(),
            Policy::SlidingWindow(it) => it.rate().period_us().div_ceil(1_000_000),
            Policy::FixedWindow(it) => it.seconds(),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Rate;

    const NOW: Micros = Micros(1_700_000_000_000_000);
    const LATER: Micros = Micros(NOW.0 + 1_000_000);

    /// Five a minute, by each algorithm.
    fn policies() -> [Policy; 3] {
        let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
        [
            Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket")),
            Policy::SlidingWindow(SlidingWindow::new(rate)),
            Policy::FixedWindow(FixedWindow::new(rate)),
        ]
    }

    #[test]
    fn a_clock_that_stepped_back_gives_nothing_back() {
        for policy in policies() {
            let spent = policy.owe(State::default(), NOW, 3);
            assert_eq!(policy.give_back(spent, NOW, 3, LATER), spent);
            assert_eq!(policy.give_back(spent, NOW, 3, NOW), State::default());
        }
    }

    #[test]
    fn a_state_that_is_drawn_in_gets_nothing_back() {
        for policy in policies() {
            let spent = policy.owe(State::default(), NOW, 5);
            let hour_back = Micros(NOW.0 - 3_600_000_000);
            let settled = policy.settle(spent, hour_back);
            assert_ne!(settled, spent);
            assert_eq!(policy.give_back(spent, hour_back, 5, hour_back), settled);
        }
    }

    #[test]
    fn an_absent_bucket_has_nothing_to_give_back() {
        for policy in policies() {
            let nothing = policy.give_back(State::default(), LATER, 3, NOW);
            assert_eq!(nothing, State::default());
        }
    }

    #[test]
    fn whatever_is_owed_the_bucket_is_empty_at_most() {
        for policy in policies() {
            let empty = policy.owe(State::default(), NOW, policy.quota());
            assert_eq!(policy.owe(State::default(), NOW, u64::MAX), empty);
            assert_eq!(policy.owe(empty, NOW, u64::MAX), empty);
            assert_eq!(policy.owe(empty, NOW, 0), empty);
        }
    }
}
