//! `concurrency`: so many requests in flight at a time.
//!
//! The state is how many slots are taken (`rest`). It ends with the last of these requests and not
//! with time, so `ends_at` lies further ahead than any clock goes. When a request will be done is
//! not known: a refusal says to retry in a second.
//!
//! In Redis the twin counts the slots of each worker apart, with an instant at which they lapse
//! unless the worker renews them: the slots of a dead gateway become free.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::wire::{COUNTS, EXACT, WireArgs, WireCheck, WireState};
use crate::clock::Micros;

pub const MAX_LIMIT: u64 = 1_000_000_000;

/// Further ahead than any clock goes, and still whole in a double.
pub const HELD: Micros = Micros((1 << 53) - 1);
/// How long Redis keeps the slots of a worker that does not renew them.
pub const LEASE: Duration = Duration::from_secs(10);
/// When to retry: a slot may be free sooner or later than that.
const RETRY_US: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concurrency {
    limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit must be between 1 and {MAX_LIMIT}")]
pub struct LimitError;

impl Concurrency {
    /// # Errors
    /// If the limit is out of range.
    pub fn new(limit: u64) -> Result<Self, LimitError> {
        if (1..=MAX_LIMIT).contains(&limit) { Ok(Self { limit }) } else { Err(LimitError) }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Requests in flight take as long as they take.
    pub fn window_seconds(&self) -> Option<u64> {
        None
    }

    pub fn span(&self, _units: u64) -> Duration {
        Duration::ZERO
    }

    /// One node's part while `nodes` of them cannot agree; a `cost` that fits into the whole fits
    /// into it.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> Self {
        let whole = if cost <= self.limit { cost } else { 0 };
        Self { limit: (self.limit / nodes).max(whole).max(1) }
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let held = in_flight(state, now);
        let free_at = if held == 0 { now } else { Micros(now.0 + RETRY_US) };
        let remaining = self.limit.saturating_sub(held);
        Report { remaining, grows_at: free_at, full_at: free_at }
    }
}

impl Algorithm for Concurrency {
    const WIRE_ID: u64 = 6;
    const REPLY_NUMBERS: usize = 2;

    fn clamp(&self, state: State, _now: Micros) -> State {
        state
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Refuse(Retry::Never);
        }
        match in_flight(state, now).saturating_add(cost) {
            held if held <= self.limit && cost == 0 => Verdict::Admit(state),
            held if held <= self.limit => Verdict::Admit(State::new(HELD, held)),
            _ => Verdict::Refuse(Retry::At(Micros(now.0 + RETRY_US))),
        }
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        take(state, now, cost)
    }

    /// Slots are counted, not timed: what was taken comes back whatever any clock shows by then.
    fn refund(&self, state: State, _now: Micros, cost: u64, _charged_at: Micros) -> State {
        release(state, cost)
    }

    /// cost, limit, holder, lease_us
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        WireArgs::new([check.cost, self.limit, check.holder, LEASE.as_micros() as u64])
    }

    /// ends_at, rest
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, rest) = (Micros(next(EXACT)?), next(COUNTS)?);
        Some(State::new(ends_at, rest).into())
    }
}

/// The state with so many more slots taken, whether they were free or not.
pub fn take(state: State, now: Micros, slots: u64) -> State {
    State::new(HELD, in_flight(state, now).saturating_add(slots))
}

/// The state with so many slots released.
pub fn release(state: State, slots: u64) -> State {
    match state.rest.saturating_sub(slots) {
        0 => State::default(),
        held => State { rest: held, ..state },
    }
}

fn in_flight(state: State, now: Micros) -> u64 {
    if state.ends_at <= now { 0 } else { state.rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_000);

    #[test]
    fn a_slot_is_held_until_it_is_refunded() {
        let two = Concurrency::new(2).expect("a limit");
        let Verdict::Admit(one) = two.evaluate(State::default(), NOW, 1) else { panic!("free") };
        let year_on = Micros(NOW.0 + 366 * 86_400_000_000);
        let Verdict::Admit(full) = two.evaluate(one, year_on, 1) else { panic!("one is free") };
        let again = Retry::At(Micros(year_on.0 + 1_000_000));
        assert_eq!(two.evaluate(full, year_on, 1), Verdict::Refuse(again));
        assert_eq!(two.report(full, year_on).remaining, 0);
        assert_eq!(two.refund(full, NOW, 1, NOW), one);
        assert_eq!(two.refund(one, NOW, 1, NOW), State::default());
    }

    #[test]
    fn a_cost_above_the_limit_never_passes() {
        let two = Concurrency::new(2).expect("a limit");
        assert_eq!(two.evaluate(State::default(), NOW, 3), Verdict::Refuse(Retry::Never));
        assert_eq!(Concurrency::new(0), Err(LimitError));
    }

    #[test]
    fn a_lowered_limit_refuses_even_a_cost_of_nothing_until_enough_have_ended() {
        let (two, one) = (Concurrency::new(2).expect("a limit"), Concurrency::new(1).expect("one"));
        let held = two.charge_after(State::default(), NOW, 2);
        assert!(matches!(one.evaluate(held, NOW, 0), Verdict::Refuse(Retry::At(_))));
        let held = one.refund(held, NOW, 1, NOW);
        assert_eq!(one.evaluate(held, NOW, 0), Verdict::Admit(held));
    }

    #[test]
    fn slots_that_are_free_already_stay_free() {
        let two = Concurrency::new(2).expect("a limit");
        assert_eq!(two.refund(State::default(), NOW, 5, NOW), State::default());
    }
}
