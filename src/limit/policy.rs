//! How a limit decides: one of the algorithms, with its numbers.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, State, Verdict};
use super::concurrency::Concurrency;
use super::fixed_window::FixedWindow;
use super::leaky_bucket::LeakyBucket;
use super::refill_bucket::RefillBucket;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use super::wire::{WireArgs, WireCheck, WireState};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    TokenBucket(TokenBucket),
    /// A token bucket that refills at whole periods.
    RefillBucket(RefillBucket),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    FixedWindow(FixedWindow),
    LeakyBucket(LeakyBucket),
    Concurrency(Concurrency),
}

/// Calls the same function of whichever algorithm it is, without dynamic dispatch.
macro_rules! dispatch {
    ($policy:expr, $it:ident => $call:expr) => {
        match $policy {
            Policy::TokenBucket($it) => $call,
            Policy::RefillBucket($it) => $call,
            Policy::SlidingWindow($it) => $call,
            Policy::SlidingLog($it) => $call,
            Policy::FixedWindow($it) => $call,
            Policy::LeakyBucket($it) => $call,
            Policy::Concurrency($it) => $call,
        }
    };
}

/// The constant of whichever algorithm it is.
macro_rules! constant {
    ($policy:expr, $name:ident) => {
        match $policy {
            Policy::TokenBucket(_) => TokenBucket::$name,
            Policy::RefillBucket(_) => RefillBucket::$name,
            Policy::SlidingWindow(_) => SlidingWindow::$name,
            Policy::SlidingLog(_) => SlidingLog::$name,
            Policy::FixedWindow(_) => FixedWindow::$name,
            Policy::LeakyBucket(_) => LeakyBucket::$name,
            Policy::Concurrency(_) => Concurrency::$name,
        }
    };
}

/// What every algorithm does; see [`Algorithm`].
impl Policy {
    /// Decides one cost against one state. Pure: the caller keeps the state.
    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        self.evaluate_waited(state, now, cost, 0)
    }

    /// Decides a cost that could have passed `waited` microseconds ago, and was not asked for then
    /// because timers wake late. A request that waits until the promised instant must not lose what
    /// refills while its timer wakes, up to [one unit](TokenBucket::grace).
    #[must_use]
    #[inline]
    pub fn evaluate_waited(&self, state: State, now: Micros, cost: u64, waited: u64) -> Verdict {
        match self {
            Policy::TokenBucket(it) => it.evaluate_waited(state, now, cost, waited),
            other => dispatch!(other, it => it.evaluate(state, now, cost)),
        }
    }

    /// The state, clamped to the deepest that any of the numbers of this bucket allows: see
    /// [`Policy::beside`]. One that lies beyond, or is of a window of another length, was left by a
    /// limit that has changed or a clock that stepped back, and a store keeps the clamped one even
    /// if it then refuses: otherwise the bucket would be empty anew at every look and never refill.
    /// Any other state stays as it is, bit by bit.
    #[must_use]
    pub fn clamp(&self, state: State, now: Micros) -> State {
        dispatch!(self, it => it.clamp(state, now))
    }

    /// The state once the cost is charged, whether it passes or not: at most as deep as may be.
    #[must_use]
    pub fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let (state, cost) = (self.clamp(state, now), self.bounded(cost));
        if cost == 0 {
            return state;
        }
        dispatch!(self, it => it.charge_after(state, now, cost))
    }

    /// The state without a cost that was charged at `charged_at`. However late, and whatever was
    /// charged or refunded since, it never leaves more than if the charge had not been made. So
    /// nothing is refunded to a state that had to be clamped, or if the clock has stepped back
    /// since: how much of the charge is still in there is not known. A log is more than its state:
    /// [`SlidingLog::refund_log`]. Slots are counted, so they come back whatever the clock shows.
    #[must_use]
    pub fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        if let Policy::Concurrency(it) = self {
            return it.refund(state, now, cost, charged_at);
        }
        let clamped = self.clamp(state, now);
        if clamped != state || state.ends_at <= now || charged_at > now {
            return clamped;
        }
        let cost = self.bounded(cost);
        dispatch!(self, it => it.refund(state, now, cost, charged_at))
    }

    /// See [`Algorithm::WIRE_ID`].
    pub fn wire_id(&self) -> u64 {
        constant!(self, WIRE_ID)
    }

    /// See [`Algorithm::REPLY_NUMBERS`].
    pub fn reply_numbers(&self) -> usize {
        constant!(self, REPLY_NUMBERS)
    }

    /// See [`Algorithm::wire_args`].
    pub fn wire_args(&self, check: &WireCheck) -> WireArgs {
        dispatch!(self, it => it.wire_args(check))
    }

    /// See [`Algorithm::wire_state`].
    pub fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        dispatch!(self, it => it.wire_state(next))
    }
}

/// What the numbers come to: for headers, queues, shares and debts.
impl Policy {
    pub fn report(&self, state: State, now: Micros) -> Report {
        dispatch!(self, it => it.report(state, now))
    }

    /// How one of `nodes` that cannot agree decides on its own: by this policy and this cost, on
    /// the same states. A token bucket is divided, and so are slots; with all others everything
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
                // What is charged after the fact is dearer too, and so are debts.
                let debt = self.deepest() - quota;
                (self.with_debt(debt.saturating_mul(nodes)).beside(self), dearer)
            }
        }
    }

    /// What one of `nodes` that cannot agree charges after the fact, by which policy: as much of its
    /// share as the cost is of the whole, also if that is more than a share has.
    #[must_use]
    pub fn share_after(&self, nodes: u64, cost: u64) -> (Policy, u64) {
        let (share, _) = self.share(nodes, cost);
        match share {
            Policy::TokenBucket(_) | Policy::LeakyBucket(_) | Policy::Concurrency(_) => {
                (share, cost)
            }
            Policy::RefillBucket(_)
            | Policy::SlidingWindow(_)
            | Policy::SlidingLog(_)
            | Policy::FixedWindow(_) => (share, cost.saturating_mul(nodes)),
        }
    }

    /// What comes back in a span of time, in whole units. A window gives nothing back before it
    /// ends.
    pub fn refilled(&self, span: Duration) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.refilled(span),
            Policy::LeakyBucket(it) => it.refilled(span),
            Policy::RefillBucket(it) => it.refilled(span),
            Policy::SlidingWindow(_)
            | Policy::SlidingLog(_)
            | Policy::FixedWindow(_)
            | Policy::Concurrency(_) => 0,
        }
    }

    /// Whether what was spent comes back bit by bit, and not with the end of a window.
    pub fn refills(&self) -> bool {
        matches!(self, Policy::TokenBucket(_) | Policy::LeakyBucket(_) | Policy::RefillBucket(_))
    }

    /// In which time so many units come back once the first has, at the least: a request that is
    /// queued behind that many cannot pass sooner.
    pub fn span(&self, units: u64) -> Duration {
        dispatch!(self, it => it.span(units))
    }

    /// How long an admitted request waits for its turn, given the state with its charge.
    pub fn turn(&self, charged: State, now: Micros, cost: u64) -> Duration {
        match self {
            Policy::LeakyBucket(it) => it.turn(charged, now, cost),
            _ => Duration::ZERO,
        }
    }

    /// The most that may be used of a bucket: its quota, and room for debts.
    pub fn deepest(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.deepest(),
            Policy::LeakyBucket(it) => it.deepest(),
            Policy::RefillBucket(it) => it.deepest(),
            Policy::SlidingWindow(it) => it.deepest(),
            Policy::SlidingLog(it) => it.deepest(),
            Policy::FixedWindow(it) => it.deepest(),
            Policy::Concurrency(it) => it.limit(),
        }
    }

    /// The cost, or one above all that may be used: greater costs make no difference.
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

    /// `q`: the burst, the window's count, or the slots.
    pub fn quota(&self) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.burst(),
            Policy::LeakyBucket(it) => it.burst(),
            Policy::RefillBucket(it) => it.burst(),
            Policy::SlidingWindow(it) => it.rate().count(),
            Policy::SlidingLog(it) => it.rate().count(),
            Policy::FixedWindow(it) => it.count(),
            Policy::Concurrency(it) => it.limit(),
        }
    }

    /// `w`: whole seconds, rounded up, in which an empty bucket becomes full. None for slots:
    /// requests take as long as they take.
    pub fn window_seconds(&self) -> Option<u64> {
        dispatch!(self, it => it.window_seconds())
    }

    /// Whether what is charged is held until its request has ended, and then refunded.
    pub fn is_held(&self) -> bool {
        matches!(self, Policy::Concurrency(_))
    }

    /// Whether a refusal can be predicted from the state it was made by: only time can end it.
    pub fn is_predictable(&self) -> bool {
        !matches!(self, Policy::SlidingLog(_) | Policy::Concurrency(_))
    }

    /// The name that configurations and answers use.
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
    pub fn kind(&self) -> &'static str {
        match self {
            Policy::RefillBucket(_) => "token_bucket with refill",
            _ => self.algorithm(),
        }
    }
}

#[cfg(test)]
mod tests;
