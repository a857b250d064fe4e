//! `sliding_window`: two counters, the previous window's weighed by how much of it still shows.
//!
//! Windows of length `W` are aligned to the epoch. At `elapsed` into a window the level is
//! `previous·(W − elapsed)/W + current`, and comparisons are made on products, so they are exact.
//!
//! The state is that of the window of the last charge: `ends_at` is the end of the window *after*
//! it, when nothing of it shows any more, and `rest` packs the count of the window before (`older`),
//! its own count (`last`), and a `mark` of the period. So a state of this period has one of two ends: this
//! window's, if the last charge was made in the previous one, or the next window's. Any other
//! live state comes from another period or a clock that stepped back; its age is not known, so
//! all it counted is taken as used in this window, as far as that may go: never fresh, never
//! emptier than empty.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::rate::{MOST_COUNTED, Rate};
use super::wire::{COUNTS, EXACT, WireArgs, WireCheck, WireState};
use crate::clock::Micros;

/// A count is at most 10^9, below 2^30: two of them leave four bits for the mark.
const COUNT_BITS: u32 = 30;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    rate: Rate,
    /// How far beyond `N` charges after the fact may push it.
    debt: u64,
    /// What any of the numbers that alternate on this bucket lets one window count at most.
    reach: u64,
}

/// What a state means at one instant.
#[derive(Debug, Clone, Copy)]
struct View {
    previous: u64,
    current: u64,
    /// The end of the window that the instant lies in.
    end: u64,
}

impl SlidingWindow {
    pub fn new(rate: Rate) -> Self {
        Self { rate, debt: 0, reach: rate.count() }
    }

    /// The same with room for so much debt.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        let debt = debt.min(MOST_COUNTED - self.rate.count());
        Self { debt, reach: self.rate.count() + debt, ..self }
    }

    /// The same on a bucket on which other numbers alternate with these, whose windows are as long.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        Self { reach: self.reach.max(other.reach), ..self }
    }

    /// What may be counted in one window at most.
    pub fn deepest(&self) -> u64 {
        self.rate.count() + self.debt
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn window_seconds(&self) -> Option<u64> {
        Some(self.rate.period_us().div_ceil(1_000_000))
    }

    /// The windows that so many units need, at the least.
    pub fn span(&self, units: u64) -> Duration {
        self.rate.span(units)
    }

    /// What the window weighs, rounded up: what is left of the previous one, and the current.
    pub fn estimate(&self, state: State, now: Micros) -> u64 {
        self.weigh(self.view(state, now), now)
    }

    fn weigh(&self, view: View, now: Micros) -> u64 {
        let fading = product(view.previous, view.end - now.0);
        fading.div_ceil(u128::from(self.rate.period_us())) as u64 + view.current
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let view = self.view(state, now);
        let remaining = self.rate.count().saturating_sub(self.weigh(view, now));
        if view.previous == 0 && view.current == 0 {
            return Report { remaining, grows_at: now, full_at: now };
        }
        let full_at = if view.current == 0 { view.end } else { view.end + self.rate.period_us() };
        let grows_at = self.first_pass(view, remaining + 1);
        Report { remaining, grows_at, full_at: Micros(full_at) }
    }

    /// A state of this period, from its two counts.
    pub fn state(&self, ends_at: Micros, older: u64, last: u64) -> State {
        State::new(ends_at, self.mark() << (2 * COUNT_BITS) | older << COUNT_BITS | last)
    }

    fn view(&self, state: State, now: Micros) -> View {
        let end = self.window_end(now);
        if state.ends_at <= now {
            return View { previous: 0, current: 0, end };
        }
        // Counts above that are from before it was lowered: the bucket is as deep as may be.
        let most = self.reach;
        let (older, last) = (older(state), last(state));
        if !self.knows(state, end) {
            View { previous: 0, current: (older + last).min(most), end }
        } else if state.ends_at.0 == end {
            View { previous: last.min(most), current: 0, end }
        } else {
            View { previous: older.min(most), current: last.min(most), end }
        }
    }

    fn pack(&self, view: View) -> State {
        let ends_at = Micros(view.end + self.rate.period_us());
        self.state(ends_at, view.previous, view.current)
    }

    /// Whether the state is of this period, and of the window that ends at `end` or the previous.
    fn knows(&self, state: State, end: u64) -> bool {
        let ours = state.rest >> (2 * COUNT_BITS) == self.mark();
        ours && (state.ends_at.0 == end || state.ends_at.0 == end + self.rate.period_us())
    }

    /// Four bits of the period, mixed. Without them a state of a shorter period whose end happens
    /// to be this window's would pass for one that has almost faded. Four bits cannot tell all
    /// periods apart; the factor was searched for so that no two of the everyday ones that are
    /// within a factor of sixty of each other are alike.
    pub fn mark(&self) -> u64 {
        self.rate.period_us().wrapping_mul(0x52b8_adee_c0cb_651f) >> (2 * COUNT_BITS)
    }

    fn window_end(&self, now: Micros) -> u64 {
        let period = self.rate.period_us();
        (now.0 / period + 1) * period
    }

    fn passes(&self, view: View, now: Micros, cost: u64) -> bool {
        self.rate.count().checked_sub(view.current + cost).is_some_and(|room| {
            product(view.previous, view.end - now.0) <= product(room, self.rate.period_us())
        })
    }

    /// The first instant at which a refused cost of at most `N` would pass: in this window once
    /// the previous has faded enough, or, if the current count alone leaves no room for it, in
    /// the next window once the current has.
    fn first_pass(&self, view: View, cost: u64) -> Micros {
        let (fading, room, end) = match self.rate.count().checked_sub(view.current + cost) {
            Some(room) => (view.previous, room, view.end),
            None => (view.current, self.rate.count() - cost, view.end + self.rate.period_us()),
        };
        // fading·(end − t)/W ≤ room, solved for the largest whole end − t.
        let before_end = product(room, self.rate.period_us()) / u128::from(fading);
        Micros(end - before_end as u64)
    }
}

impl Algorithm for SlidingWindow {
    const WIRE_ID: u64 = 2;
    const REPLY_NUMBERS: usize = 3;

    fn clamp(&self, state: State, now: Micros) -> State {
        if state.ends_at <= now || self.knows(state, self.window_end(now)) {
            return state;
        }
        self.pack(self.view(state, now))
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.rate.count() {
            return Verdict::Refuse(Retry::Never);
        }
        let view = self.view(state, now);
        if !self.passes(view, now, cost) {
            Verdict::Refuse(Retry::At(self.first_pass(view, cost)))
        } else if cost == 0 {
            Verdict::Admit(self.clamp(state, now))
        } else {
            Verdict::Admit(self.pack(View { current: view.current + cost, ..view }))
        }
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let view = self.view(state, now);
        let current = view.current.saturating_add(cost).min(self.deepest()).max(view.current);
        self.pack(View { current, ..view })
    }

    /// From the window in which it was charged: the state's last, or the one before. What was
    /// charged earlier shows no more.
    fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        let (mut older, mut last) = (older(state), last(state));
        let shows_until = self.window_end(charged_at) + self.rate.period_us();
        if shows_until == state.ends_at.0 {
            last = last.saturating_sub(cost);
        } else if shows_until + self.rate.period_us() == state.ends_at.0 && shows_until > now.0 {
            older = older.saturating_sub(cost);
        } else {
            return state;
        }
        if (older, last) == (0, 0) {
            return State::default();
        }
        self.state(state.ends_at, older, last)
    }

    /// cost, count, deepest, period_us, mark, reach
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        let (count, period_us) = (self.rate.count(), self.rate.period_us());
        let (deepest, mark, reach) = (self.deepest(), self.mark(), self.reach);
        WireArgs::new([check.cost, count, deepest, period_us, mark, reach])
    }

    /// ends_at, older, last: the mark is this period's.
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, older, last) = (Micros(next(EXACT)?), next(COUNTS)?, next(COUNTS)?);
        Some(self.state(ends_at, older, last).into())
    }
}

/// The count of the window before the last charge's.
fn older(state: State) -> u64 {
    (state.rest >> COUNT_BITS) & COUNT_MASK
}

/// The count of the last charge's window.
fn last(state: State) -> u64 {
    state.rest & COUNT_MASK
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[cfg(test)]
mod tests;
