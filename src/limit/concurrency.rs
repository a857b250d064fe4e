//! `concurrency`: so many requests in flight at a time.
//!
//! The state is how many are (`rest`). It ends with the last of them and not with time, so its
//! `until` lies further ahead than any clock goes. Nobody knows when a request will be done:
//! whoever is refused is told to come again in a second.
//!
//! In Redis the twin keeps the count of each worker apart, with an instant at which it lapses
//! unless the worker says again that it holds them: what a dead gateway held comes back.

use super::policy::{Report, Retry, State, Verdict};
use crate::clock::Micros;

pub const MAX_LIMIT: u64 = 1_000_000_000;

/// Further ahead than any clock goes, and still whole in a double.
pub const HELD: Micros = Micros((1 << 53) - 1);
/// When to come again: it may be sooner, and it may be later.
const AGAIN_US: u64 = 1_000_000;

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

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// One node's part while `nodes` of them cannot agree; a `cost` that fits into the whole fits
    /// into it.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> Self {
        let whole = if cost <= self.limit { cost } else { 0 };
        Self { limit: (self.limit / nodes).max(whole).max(1) }
    }

    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::Refuse(Retry::Never);
        }
        match in_flight(state, now).saturating_add(cost) {
            held if held <= self.limit && cost == 0 => Verdict::Admit(state),
            held if held <= self.limit => Verdict::Admit(State::new(HELD, held)),
            _ => Verdict::Refuse(Retry::At(Micros(now.0 + AGAIN_US))),
        }
    }

    #[must_use]
    pub fn report(&self, state: State, now: Micros) -> Report {
        let held = in_flight(state, now);
        let ends = if held == 0 { now } else { Micros(now.0 + AGAIN_US) };
        let remaining = self.limit.saturating_sub(held);
        Report { remaining, grows_at: ends, full_at: ends }
    }

    #[must_use]
    pub(super) fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        State::new(HELD, in_flight(state, now).saturating_add(cost))
    }

    /// Slots are counted, not timed: what was taken comes back whatever any clock shows by then.
    #[must_use]
    pub(super) fn give_back(&self, state: State, cost: u64) -> State {
        match state.rest.saturating_sub(cost) {
            0 => State::default(),
            held => State { rest: held, ..state },
        }
    }
}

fn in_flight(state: State, now: Micros) -> u64 {
    if state.until <= now { 0 } else { state.rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_000);

    #[test]
    fn a_place_is_held_until_it_is_given_back() {
        let two = Concurrency::new(2).expect("a limit");
        let Verdict::Admit(one) = two.evaluate(State::default(), NOW, 1) else { panic!("free") };
        let year_on = Micros(NOW.0 + 366 * 86_400_000_000);
        let Verdict::Admit(full) = two.evaluate(one, year_on, 1) else { panic!("one is free") };
        let again = Retry::At(Micros(year_on.0 + 1_000_000));
        assert_eq!(two.evaluate(full, year_on, 1), Verdict::Refuse(again));
        assert_eq!(two.report(full, year_on).remaining, 0);
        assert_eq!(two.give_back(full, 1), one);
        assert_eq!(two.give_back(one, 1), State::default());
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
        let held = two.owe(State::default(), NOW, 2);
        assert!(matches!(one.evaluate(held, NOW, 0), Verdict::Refuse(Retry::At(_))));
        let held = one.give_back(held, 1);
        assert_eq!(one.evaluate(held, NOW, 0), Verdict::Admit(held));
    }

    #[test]
    fn what_is_given_back_twice_is_given_back_once() {
        let two = Concurrency::new(2).expect("a limit");
        assert_eq!(two.give_back(State::default(), 5), State::default());
    }
}
