//! The algorithms behind one name: what a bucket's state is and what may be asked of it.
//!
//! All of it is integers and pure: the same state, instant and cost always give the same verdict,
//! and a refusal names the first instant at which the cost would pass.

use std::time::Duration;

use crate::clock::Micros;

use super::concurrency::Concurrency;
use super::fixed_window::{FixedWindow, Windows};
use super::refill::RefillBucket;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;

/// How a limit decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    TokenBucket(TokenBucket),
    /// A token bucket that refills at whole periods.
    RefillBucket(RefillBucket),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    FixedWindow(FixedWindow),
    /// A token bucket whose requests wait until as many as came before them have refilled: then
    /// they leave at a steady rate.
    LeakyBucket(TokenBucket),
    Concurrency(Concurrency),
}

/// Asks the algorithm.
macro_rules! each {
    ($policy:expr, $it:ident => $ask:expr) => {
        match $policy {
            Policy::TokenBucket($it) | Policy::LeakyBucket($it) => $ask,
            Policy::RefillBucket($it) => $ask,
            Policy::SlidingWindow($it) => $ask,
            Policy::SlidingLog($it) => $ask,
            Policy::FixedWindow($it) => $ask,
            Policy::Concurrency($it) => $ask,
        }
    };
}

/// The state of one bucket. `until` is the first instant at which the bucket is as good as
/// absent, whatever the algorithm, so an expired entry equals none and nothing needs a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    pub until: Micros,
    /// What the algorithm keeps beside it.
    pub rest: u64,
    /// When what is left of a log can next grow; of no other algorithm. Stores do not keep it.
    pub next: Micros,
}

impl State {
    #[must_use]
    pub const fn new(until: Micros, rest: u64) -> Self {
        Self { until, rest, next: Micros(0) }
    }
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
        self.evaluate_late(state, now, cost, 0)
    }

    /// Decides a cost that could have passed so many microseconds ago, and was not asked for then
    /// because nobody can wake up at an exact instant. Callers who wait until the promised instant
    /// are not to lose what refills while they wake up, up to [one unit](TokenBucket::grace).
    #[must_use]
    #[inline]
    pub fn evaluate_late(&self, state: State, now: Micros, cost: u64, late: u64) -> Verdict {
        match self {
            Policy::TokenBucket(it) => it.evaluate_late(state, now, cost, late),
            Policy::LeakyBucket(it) => it.evaluate(state, now, cost),
            Policy::RefillBucket(it) => it.evaluate(state, now, cost),
            Policy::SlidingWindow(it) => it.evaluate(state, now, cost),
            Policy::SlidingLog(it) => it.evaluate(state, now, cost),
            Policy::FixedWindow(it) => it.evaluate(state, now, cost),
            Policy::Concurrency(it) => it.evaluate(state, now, cost),
        }
    }

    /// The state, clamped to the deepest that any of the numbers of this bucket allows: see
    /// [`Policy::beside`]. One that lies beyond, or is of a window of another length, was left by a
    /// limit that has changed or a clock that stepped back, and a store keeps the clamped one even
    /// if it then refuses: otherwise the bucket would be empty anew at every look and never refill.
    /// Any other state stays as it is, bit by bit.
    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.settle(state, now),
            Policy::RefillBucket(it) => it.settle(state, now),
            Policy::SlidingWindow(it) => it.settle(state, now),
            Policy::SlidingLog(it) => it.settle(state, now),
            Policy::FixedWindow(it) => it.settle(state, now),
            Policy::Concurrency(_) => state,
        }
    }

    /// How one of `nodes` that cannot agree decides on its own: by this policy and this cost, on
    /// the same states. A token bucket is divided, and so are places; with all others everything
    /// costs more, since the others spend as well. No share is so small that the cost never fits.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> (Policy, u64) {
        match self {
            Policy::TokenBucket(it) => (Policy::TokenBucket(it.share(nodes, cost)), cost),
            Policy::LeakyBucket(it) => (Policy::LeakyBucket(it.share(nodes, cost)), cost),
            Policy::Concurrency(it) => (Policy::Concurrency(it.share(nodes, cost)), cost),
            Policy::RefillBucket(_)
            | Policy::SlidingWindow(_)
            | Policy::SlidingLog(_)
            | Policy::FixedWindow(_) => {
                let quota = self.quota();
                let dearer = if cost > quota { cost } else { (cost * nodes).min(quota) };
                (*self, dearer)
            }
        }
    }

    #[must_use]
    pub fn report(&self, state: State, now: Micros) -> Report {
        each!(self, it => it.report(state, now))
    }

    /// The state once the cost is charged, whether it passes or not: at most as deep as may be.
    #[must_use]
    pub fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let (state, cost) = (self.settle(state, now), self.bounded(cost));
        if cost == 0 {
            return state;
        }
        each!(self, it => it.owe(state, now, cost))
    }

    /// What comes back in a span of time, in whole units. A window gives nothing back before it
    /// ends.
    #[must_use]
    pub fn refilled(&self, span: Duration) -> u64 {
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.refilled(span),
            Policy::RefillBucket(it) => it.refilled(span),
            Policy::SlidingWindow(_)
            | Policy::SlidingLog(_)
            | Policy::FixedWindow(_)
            | Policy::Concurrency(_) => 0,
        }
    }

    /// Whether what is owed comes back bit by bit, and not with the end of a window.
    #[must_use]
    pub fn refills(&self) -> bool {
        matches!(self, Policy::TokenBucket(_) | Policy::LeakyBucket(_) | Policy::RefillBucket(_))
    }

    /// In which time so many units come back once the first has, at the least: whoever waits
    /// behind others cannot pass sooner.
    #[must_use]
    pub fn span(&self, units: u64) -> Duration {
        let windows = |count: u64, period_us: u64| {
            Duration::from_micros((units / count).saturating_mul(period_us))
        };
        let of = |rate: super::Rate| windows(rate.count(), rate.period_us());
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.span(units),
            Policy::RefillBucket(it) => it.span(units),
            Policy::SlidingWindow(it) => of(it.rate()),
            Policy::SlidingLog(it) => of(it.rate()),
            Policy::FixedWindow(it) => match it.windows() {
                Windows::Every(rate) => of(rate),
                // No month is shorter than 28 days, and no day than 23 hours by much.
                Windows::Calendar(_) => windows(it.count(), it.seconds() * 900_000),
            },
            Policy::Concurrency(_) => Duration::ZERO,
        }
    }

    /// How long an admitted request waits its turn, given the state with its charge.
    #[must_use]
    pub fn turn(&self, charged: State, now: Micros, cost: u64) -> Duration {
        match self {
            Policy::LeakyBucket(it) => it.turn(charged, now, cost),
            _ => Duration::ZERO,
        }
    }

    /// The state without a cost that was charged at `charged_at`. However late, and whatever was
    /// charged or given back since, it never leaves more than if the charge had not been made. So
    /// nothing is given back to a state that had to be drawn in, or if the clock has stepped back
    /// since: how much of the charge is still in there cannot be told. A log is more than its
    /// state: [`SlidingLog::give_back_log`]. Slots in flight are counted, so no clock has a say in
    /// whether they come back.
    #[must_use]
    pub fn give_back(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        if let Policy::Concurrency(it) = self {
            return it.give_back(state, cost);
        }
        let settled = self.settle(state, now);
        if settled != state || state.until <= now || charged_at > now {
            return settled;
        }
        let cost = self.bounded(cost);
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => {
                it.give_back(state, now, cost, charged_at)
            }
            Policy::RefillBucket(it) => it.give_back(state, now, cost, charged_at),
            Policy::SlidingWindow(it) => it.give_back(state, now, cost, charged_at),
            Policy::SlidingLog(it) => it.give_back(state, cost),
            Policy::FixedWindow(it) => it.give_back(state, cost, charged_at),
            Policy::Concurrency(it) => it.give_back(state, cost),
        }
    }

    /// All that a bucket may owe: its quota, and room for debts.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.deepest(),
            Policy::RefillBucket(it) => it.deepest(),
            Policy::SlidingWindow(it) => it.deepest(),
            Policy::SlidingLog(it) => it.deepest(),
            Policy::FixedWindow(it) => it.deepest(),
            Policy::Concurrency(it) => it.limit(),
        }
    }

    /// A cost beyond all that a bucket may owe is as good as any other such.
    #[must_use]
    pub fn bounded(&self, cost: u64) -> u64 {
        cost.min(self.deepest() + 1)
    }

    /// The same limit with room for debts: charges after the fact may push it so far below zero.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        match self {
            Policy::TokenBucket(it) => Policy::TokenBucket(it.with_debt(debt)),
            Policy::LeakyBucket(it) => Policy::LeakyBucket(it.with_debt(debt)),
            Policy::RefillBucket(it) => Policy::RefillBucket(it.with_debt(debt)),
            Policy::SlidingWindow(it) => Policy::SlidingWindow(it.with_debt(debt)),
            Policy::SlidingLog(it) => Policy::SlidingLog(it.with_debt(debt)),
            Policy::FixedWindow(it) => Policy::FixedWindow(it.with_debt(debt)),
            Policy::Concurrency(_) => self,
        }
    }

    /// `q`: the burst, the window's count, or the places.
    #[must_use]
    pub fn quota(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.burst(),
            Policy::RefillBucket(it) => it.burst(),
            Policy::SlidingWindow(it) => it.rate().count(),
            Policy::SlidingLog(it) => it.rate().count(),
            Policy::FixedWindow(it) => it.count(),
            Policy::Concurrency(it) => it.limit(),
        }
    }

    /// `w`: whole seconds, rounded up, in which an empty bucket becomes full. Requests in flight
    /// take as long as they take.
    #[must_use]
    pub fn window_seconds(&self) -> Option<u64> {
        Some(match self {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => it.refill_seconds(),
            Policy::RefillBucket(it) => it.refill_seconds(),
            Policy::SlidingWindow(it) => it.rate().period_us().div_ceil(1_000_000),
            Policy::SlidingLog(it) => it.rate().period_us().div_ceil(1_000_000),
            Policy::FixedWindow(it) => it.seconds(),
            Policy::Concurrency(_) => return None,
        })
    }

    /// Whether what is charged is held until its request has ended, and then given back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Policy::Concurrency(_))
    }

    /// Whether a refusal can be foretold from the state it was made by: only time can end it.
    #[must_use]
    pub fn is_foretold(&self) -> bool {
        !matches!(self, Policy::SlidingLog(_) | Policy::Concurrency(_))
    }

    /// The name that configurations and answers use.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Policy::TokenBucket(_) | Policy::RefillBucket(_) => "token_bucket",
            Policy::SlidingWindow(_) => "sliding_window",
            Policy::SlidingLog(_) => "sliding_log",
            Policy::FixedWindow(_) => "fixed_window",
            Policy::LeakyBucket(_) => "leaky_bucket",
            Policy::Concurrency(_) => "concurrency",
        }
    }

    /// What tells apart states that mean nothing to each other.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Policy::RefillBucket(_) => "token_bucket with refill",
            _ => self.algorithm(),
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
    fn policies() -> [Policy; 5] {
        let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
        [
            Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket")),
            Policy::SlidingWindow(SlidingWindow::new(rate)),
            Policy::FixedWindow(FixedWindow::new(rate)),
            Policy::LeakyBucket(TokenBucket::new(rate, 5).expect("a bucket")),
            Policy::RefillBucket(
                RefillBucket::new(Duration::from_secs(60), 1, 5).expect("a bucket"),
            ),
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
