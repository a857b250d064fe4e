//! `fixed_window`: `N` in each window of length `W`, the windows aligned to the epoch; or in each
//! day or month of a time zone.
//!
//! The state is the end of the window (`until`) and the count in it (`rest`). A live state counts
//! in the window that `now` lies in, whatever window it was written for: after a step back of the
//! clock, or under a period that was changed, what was used stays used until the end of this
//! window, and no longer.

use super::calendar::Calendar;
use super::policy::{Report, Retry, State, Verdict};
use super::rate::{MAX_COUNT, MOST_COUNTED, Rate, RateError};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    count: u64,
    windows: Windows,
    /// How far beyond `N` charges after the fact may push it.
    debt: u64,
}

/// Where windows begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Windows {
    /// All as long as the rate's period, from the epoch on.
    Every(Rate),
    Calendar(Calendar),
}

impl FixedWindow {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { count: rate.count(), windows: Windows::Every(rate), debt: 0 }
    }

    /// So many in each window of the calendar.
    ///
    /// # Errors
    /// If the count is out of range.
    pub fn calendar(count: u64, calendar: Calendar) -> Result<Self, RateError> {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(RateError::Count);
        }
        Ok(Self { count, windows: Windows::Calendar(calendar), debt: 0 })
    }

    /// The same with room for so much debt.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        Self { debt: debt.min(MOST_COUNTED - self.count), ..self }
    }

    /// What may be counted at most.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        self.count + self.debt
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn windows(&self) -> Windows {
        self.windows
    }

    /// Whole seconds, rounded up, that a window lasts.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        match self.windows {
            Windows::Every(rate) => rate.period_us().div_ceil(1_000_000),
            Windows::Calendar(calendar) => calendar.seconds(),
        }
    }

    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        if state.until <= now { state } else { State::new(self.end(now), state.rest) }
    }

    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.count {
            return Verdict::Refuse(Retry::Never);
        }
        let count = used(state, now).min(self.deepest()) + cost;
        let end = self.end(now);
        if count > self.count {
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
        let remaining = self.count.saturating_sub(used);
        Report { remaining, grows_at: end, full_at: end }
    }

    /// The settled state once the cost is charged, asked or not: at most as deep as may be, unless
    /// other numbers have made it deeper.
    #[must_use]
    pub(super) fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let used = used(state, now);
        let count = used.saturating_add(cost).min(self.deepest()).max(used);
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
        match self.windows {
            Windows::Every(rate) => {
                let period = rate.period_us();
                Micros((now.0 / period + 1) * period)
            }
            Windows::Calendar(calendar) => calendar.end(now),
        }
    }
}

fn used(state: State, now: Micros) -> u64 {
    if state.until <= now { 0 } else { state.rest }
}

#[cfg(test)]
mod tests;
