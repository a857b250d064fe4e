//! `fixed_window`: `N` in each window of length `W`, the windows aligned to the epoch.
//!
//! The state is the end of the window (`until`) and the count in it (`rest`). A live state counts
//! in the window that `now` lies in, whatever window it was written for: after a step back of the
//! clock, or under a period that was changed, what was used stays used until the end of this
//! window, and no longer.

use super::policy::{Report, Retry, State, Verdict};
use super::rate::{MOST_COUNTED, Rate};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    rate: Rate,
    /// How far beyond `N` charges after the fact may push it.
    debt: u64,
}

impl FixedWindow {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate, debt: 0 }
    }

    /// The same with room for so much debt.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        Self { debt: debt.min(MOST_COUNTED - self.rate.count()), ..self }
    }

    /// What may be counted at most.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        self.rate.count() + self.debt
    }

    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        if state.until <= now { state } else { State::new(self.end(now), state.rest) }
    }

    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.rate.count() {
            return Verdict::Refuse(Retry::Never);
        }
        let count = used(state, now).min(self.deepest()) + cost;
        let end = self.end(now);
        if count > self.rate.count() {
            Verdict::Refuse(Retry::At(end))
        } else if cost == 0 {
            Verdict::Admit(self.settle(state, now))
        } else {
            Verdict::Admit(State::new(end, count))
        }
    }

    #[must_use]
    pub fn report(&self, state: State, now: Micros) -> Report {
        let used = used(state, now);
        let end = if used == 0 { now } else { self.end(now) };
        let remaining = self.rate.count().saturating_sub(used);
        Report { remaining, grows_at: end, full_at: end }
    }

    /// The settled state once the cost is charged, asked or not: at most as deep as may be.
    #[must_use]
    pub(super) fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let count = used(state, now).saturating_add(cost).min(self.deepest());
        State::new(self.end(now), count)
    }

    /// A live state without a cost that was charged some time ago. A window that has passed has
    /// given back by itself.
    #[must_use]
    pub(super) fn give_back(&self, state: State, cost: u64, charged_at: Micros) -> State {
        if self.end(charged_at) != state.until {
            return state;
        }
        match state.rest.saturating_sub(cost) {
            0 => State::default(),
            rest => State { rest, ..state },
        }
    }

    fn end(&self, now: Micros) -> Micros {
        let period = self.rate.period_us();
        Micros((now.0 / period + 1) * period)
    }
}

fn used(state: State, now: Micros) -> u64 {
    if state.until <= now { 0 } else { state.rest }
}

#[cfg(test)]
mod tests;
