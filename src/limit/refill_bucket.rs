//! `token_bucket` with `refill`: a bucket that refills by `amount` at each whole `every` since its
//! first use, up to `burst`.
//!
//! The state is when the bucket is full again (`ends_at`), and by how much the last refill then
//! overflows (`rest`). Refills are at `ends_at`, `ends_at - every` and so on, so at any instant the
//! number of those still to come says what is missing, and time alone changes nothing in the
//! state. A full bucket equals none: its next use is its first.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::token_bucket::{CENTURY, MAX_BURST};
use super::wire::{COUNTS, EXACT, WireArgs, WireCheck, WireState};
use crate::clock::Micros;

pub const MIN_EVERY: Duration = Duration::from_millis(1);
pub const MAX_EVERY: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RefillBucket {
    every_us: u64,
    amount: u64,
    burst: u64,
    /// How far below zero charges after the fact may push it.
    debt: u64,
    /// How far from full any of the numbers that alternate on this bucket lets it be.
    reach: Reach,
}

/// How far a bucket may be from full: so many refills, of which the last overflows by so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reach {
    refills: u64,
    overflow: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefillError {
    #[error("`every` must be between 1ms and 366 days")]
    Every,
    #[error("`amount` must be between 1 and {MAX_BURST}")]
    Amount,
    #[error("the burst must be between 1 and {MAX_BURST}")]
    Burst,
    #[error("the burst would take more than 100 years to refill")]
    TooSlow,
}

/// What a live state means at one instant.
#[derive(Debug, Clone, Copy)]
struct View {
    refills: u64,
    /// Other numbers may leave more refills to come than these can count with 64 bits.
    missing: u128,
    /// When the next refill comes.
    next: u64,
}

impl RefillBucket {
    /// # Errors
    /// If a number is out of range, or the burst would take more than a century to refill.
    pub fn new(every: Duration, amount: u64, burst: u64) -> Result<Self, RefillError> {
        if !(MIN_EVERY..=MAX_EVERY).contains(&every) {
            return Err(RefillError::Every);
        }
        if !(1..=MAX_BURST).contains(&amount) {
            return Err(RefillError::Amount);
        }
        if !(1..=MAX_BURST).contains(&burst) {
            return Err(RefillError::Burst);
        }
        let every_us = every.as_nanos().div_ceil(1_000) as u64;
        if u128::from(burst.div_ceil(amount)) * u128::from(every_us) > CENTURY.as_micros() {
            return Err(RefillError::TooSlow);
        }
        let reach = Reach { refills: 0, overflow: 0 };
        Ok(Self { every_us, amount, burst, debt: 0, reach }.with_debt(0))
    }

    /// The same with room for so much debt, or for as much as a century pays off.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        let refills = CENTURY.as_micros() as u64 / self.every_us;
        let most = refills.saturating_mul(self.amount).min(2 * MAX_BURST);
        let debt = debt.min(most.saturating_sub(self.burst));
        let refills = (self.burst + debt).div_ceil(self.amount);
        let overflow = refills * self.amount - self.burst - debt;
        Self { debt, reach: Reach { refills, overflow }, ..self }
    }

    /// The same on a bucket on which other numbers alternate with these, which refills as often.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        let (ours, theirs) = (self.reach, other.reach);
        let deeper = (theirs.refills, ours.overflow) > (ours.refills, theirs.overflow);
        let deeper = deeper && self.every_us == other.every_us;
        if deeper { Self { reach: theirs, ..self } } else { self }
    }

    pub fn every_us(&self) -> u64 {
        self.every_us
    }

    pub fn amount(&self) -> u64 {
        self.amount
    }

    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// What may be missing at most.
    pub fn deepest(&self) -> u64 {
        self.burst + self.debt
    }

    /// Whole units that come back in a span of time.
    pub fn refilled(&self, span: Duration) -> u64 {
        let refills = span.as_micros() as u64 / self.every_us;
        refills.saturating_mul(self.amount)
    }

    /// In which time so many units come back, at the least.
    pub fn span(&self, units: u64) -> Duration {
        Duration::from_micros((units / self.amount).saturating_mul(self.every_us))
    }

    pub fn window_seconds(&self) -> Option<u64> {
        Some((self.burst.div_ceil(self.amount) * self.every_us).div_ceil(1_000_000))
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let (missing, next) = self.missing(state, now);
        let burst = u128::from(self.burst);
        let left = burst.saturating_sub(missing);
        let remaining = left as u64;
        if missing == 0 {
            return Report { remaining, grows_at: now, full_at: now };
        }
        let (next_one, full) = (self.refills(missing + left + 1 - burst), self.refills(missing));
        let (grows_at, full_at) = (self.refill(next, next_one), self.refill(next, full));
        Report { remaining, grows_at, full_at }
    }

    /// At least so many units missing at an instant: see [`lease`](super::lease).
    pub(super) fn cap_refill(&self, state: State, at: Micros, amount: u64) -> State {
        let (missing, next) = self.missing(state, at);
        let amount = u128::from(amount);
        if missing < amount { self.state_missing(amount, next) } else { state }
    }

    /// What is missing, and when the next refill is or would be.
    fn missing(&self, state: State, now: Micros) -> (u128, u64) {
        match self.view(state, now) {
            Some(view) => (view.missing, view.next),
            None => (0, now.0 + self.every_us),
        }
    }

    /// `None`: it is full.
    fn view(&self, state: State, now: Micros) -> Option<View> {
        let ahead = state.ends_at.0.checked_sub(now.0).filter(|ahead| *ahead > 0)?;
        let refills = ahead.div_ceil(self.every_us);
        // A smaller amount than the state was written for: something is missing all the same.
        let overflow = state.rest.min(self.amount - 1);
        let missing = u128::from(refills) * u128::from(self.amount) - u128::from(overflow);
        Some(View { refills, missing, next: state.ends_at.0 - (refills - 1) * self.every_us })
    }

    fn state_missing(&self, missing: u128, next: u64) -> State {
        let refills = self.refills(missing);
        let overflow = u128::from(refills) * u128::from(self.amount) - missing;
        State::new(self.refill(next, refills), overflow as u64)
    }

    /// How many refills bring so much.
    fn refills(&self, units: u128) -> u64 {
        units.div_ceil(u128::from(self.amount)) as u64
    }

    /// The instant of the refill of that number, counted from one.
    fn refill(&self, next: u64, number: u64) -> Micros {
        Micros(next + (number - 1) * self.every_us)
    }
}

impl Algorithm for RefillBucket {
    const WIRE_ID: u64 = 4;
    const REPLY_NUMBERS: usize = 2;

    fn clamp(&self, state: State, now: Micros) -> State {
        let Reach { refills, overflow } = self.reach;
        match self.view(state, now) {
            Some(view) if (view.refills, overflow) > (refills, state.rest) => {
                State::new(self.refill(view.next, refills), overflow)
            }
            _ => state,
        }
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Refuse(Retry::Never);
        }
        let (missing, next) = self.missing(state, now);
        let missing = missing + u128::from(cost);
        if let Some(excess) = missing.checked_sub(u128::from(self.burst)).filter(|it| *it > 0) {
            return Verdict::Refuse(Retry::At(self.refill(next, self.refills(excess))));
        }
        Verdict::Admit(if cost == 0 { state } else { self.state_missing(missing, next) })
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let (missing, next) = self.missing(state, now);
        let deepest = u128::from(self.deepest());
        if missing >= deepest {
            return state;
        }
        self.state_missing((missing + u128::from(cost)).min(deepest), next)
    }

    /// What has been refilled since would have been without the charge too, if the bucket was full or
    /// became so. The refills stay when they are, also if the charge was the first, by which they are
    /// timed: what is still missing is so since then, as far as the state tells.
    fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        let (missing, next) = self.missing(state, now);
        let last = next.saturating_sub(self.every_us);
        let refills = last.saturating_sub(charged_at.0).div_ceil(self.every_us);
        let refund = cost.saturating_sub(refills.saturating_mul(self.amount));
        match missing.saturating_sub(u128::from(refund)) {
            0 => State::default(),
            _ if refund == 0 => state,
            missing => self.state_missing(missing, next),
        }
    }

    /// cost, burst, deepest, every_us, amount, reach_refills, reach_overflow
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        let Reach { refills, overflow } = self.reach;
        let deepest = self.deepest();
        let (every_us, amount) = (self.every_us, self.amount);
        WireArgs::new([check.cost, self.burst, deepest, every_us, amount, refills, overflow])
    }

    /// ends_at, rest
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, rest) = (Micros(next(EXACT)?), next(COUNTS)?);
        Some(State::new(ends_at, rest).into())
    }
}

#[cfg(test)]
mod tests;
