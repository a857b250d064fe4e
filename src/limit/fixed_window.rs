//! `fixed_window`: `N` in each window of length `W`, the windows aligned to the epoch; or in each
//! day or month of a time zone.
//!
//! The state is the end of the window (`ends_at`) and the count in it (`rest`). A live state counts
//! in the window that `now` lies in, whatever window it was written for: after a step back of the
//! clock, or under a period that was changed, what was used stays used until the end of this
//! window, and no longer.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::calendar::Calendar;
use super::rate::{MAX_COUNT, MOST_COUNTED, Rate, RateError};
use super::wire::{COUNTS, EXACT, WireArgs, WireCheck, WireState};
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
    pub fn deepest(&self) -> u64 {
        self.count + self.debt
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn windows(&self) -> Windows {
        self.windows
    }

    /// Whole seconds, rounded up, that a window lasts.
    pub fn seconds(&self) -> u64 {
        match self.windows {
            Windows::Every(rate) => rate.period_us().div_ceil(1_000_000),
            Windows::Calendar(calendar) => calendar.seconds(),
        }
    }

    pub fn window_seconds(&self) -> Option<u64> {
        Some(self.seconds())
    }

    /// The windows that so many units need, at the least.
    pub fn span(&self, units: u64) -> Duration {
        match self.windows {
            Windows::Every(rate) => rate.span(units),
            // No month is shorter than 28 days, and no day than 23 hours by much.
            Windows::Calendar(calendar) => {
                let shortest_us = calendar.seconds() * 900_000;
                Duration::from_micros((units / self.count).saturating_mul(shortest_us))
            }
        }
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let used = used(state, now);
        let end = if used == 0 { now } else { self.window_end(now) };
        let remaining = self.count.saturating_sub(used);
        Report { remaining, grows_at: end, full_at: end }
    }

    fn window_end(&self, now: Micros) -> Micros {
        match self.windows {
            Windows::Every(rate) => {
                let period = rate.period_us();
                Micros((now.0 / period + 1) * period)
            }
            Windows::Calendar(calendar) => calendar.end(now),
        }
    }
}

impl Algorithm for FixedWindow {
    const WIRE_ID: u64 = 3;
    const REPLY_NUMBERS: usize = 2;

    fn clamp(&self, state: State, now: Micros) -> State {
        if state.ends_at <= now { state } else { State::new(self.window_end(now), state.rest) }
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.count {
            return Verdict::Refuse(Retry::Never);
        }
        let count = used(state, now).min(self.deepest()) + cost;
        let end = self.window_end(now);
        if count > self.count {
            Verdict::Refuse(Retry::At(end))
        } else if cost == 0 {
            Verdict::Admit(self.clamp(state, now))
        } else {
            Verdict::Admit(State::new(end, count))
        }
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let used = used(state, now);
        let count = used.saturating_add(cost).min(self.deepest()).max(used);
        State::new(self.window_end(now), count)
    }

    /// A window that has passed takes its charges with it.
    fn refund(&self, state: State, _now: Micros, cost: u64, charged_at: Micros) -> State {
        if self.window_end(charged_at) != state.ends_at {
            return state;
        }
        match state.rest.saturating_sub(cost) {
            0 => State::default(),
            rest => State { rest, ..state },
        }
    }

    /// cost, count, deepest, period_us. For the windows of a calendar period_us is 0, and bound_1,
    /// bound_2, bound_3, bound_4 follow: the window around the caller's time, and the ends of the
    /// next two.
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        let (cost, count, deepest) = (check.cost, self.count, self.deepest());
        match self.windows {
            Windows::Every(rate) => WireArgs::new([cost, count, deepest, rate.period_us()]),
            Windows::Calendar(calendar) => {
                let [b1, b2, b3, b4] = calendar.bounds(check.around).map(|bound| bound.0);
                WireArgs::new([cost, count, deepest, 0, b1, b2, b3, b4])
            }
        }
    }

    /// ends_at, rest
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, rest) = (Micros(next(EXACT)?), next(COUNTS)?);
        Some(State::new(ends_at, rest).into())
    }
}

fn used(state: State, now: Micros) -> u64 {
    if state.ends_at <= now { 0 } else { state.rest }
}

#[cfg(test)]
mod tests;
