//! `token_bucket` with `refill`: a bucket that refills by `amount` at each whole `every` since its
//! first use, up to `burst`.
//!
//! The state is when the bucket is full again (`until`), and by how much the last refill then
//! overflows (`rest`). Refills are at `until`, `until - every` and so on, so at any instant the
//! number of those still to come says what is missing, and time alone changes nothing in the
//! state. A full bucket equals none: its next use is its first.

use std::time::Duration;

use super::policy::{Report, Retry, State, Verdict};
use super::token_bucket::{CENTURY, MAX_BURST};
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
    /// The deepest that any of the numbers lets it be that hold for the bucket by turns.
    reach: Reach,
}

/// How far a bucket may be from full: so many refills, of which the last overflows by so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reach {
    pub refills: u64,
    pub overflow: u64,
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

    /// The same on a bucket that other numbers hold for by turns, which refills as often.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        let (ours, theirs) = (self.reach, other.reach);
        let deeper = (theirs.refills, ours.overflow) > (ours.refills, theirs.overflow);
        let deeper = deeper && self.every_us == other.every_us;
        if deeper { Self { reach: theirs, ..self } } else { self }
    }

    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    #[must_use]
    pub fn every_us(&self) -> u64 {
        self.every_us
    }

    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// What may be missing at most.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        self.burst + self.debt
    }

    /// Whole units that come back in a span of time.
    #[must_use]
    pub fn refilled(&self, span: Duration) -> u64 {
        let refills = span.as_micros() as u64 / self.every_us;
        refills.saturating_mul(self.amount)
    }

    /// In which time so many units come back, at the least.
    #[must_use]
    pub fn span(&self, units: u64) -> Duration {
        Duration::from_micros((units / self.amount).saturating_mul(self.every_us))
    }

    #[must_use]
    pub fn refill_seconds(&self) -> u64 {
        (self.burst.div_ceil(self.amount) * self.every_us).div_ceil(1_000_000)
    }

    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        let Reach { refills, overflow } = self.reach;
        match self.view(state, now) {
            Some(view) if (view.refills, overflow) > (refills, state.rest) => {
                State::new(self.refill(view.next, refills), overflow)
            }
            _ => state,
        }
    }

    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Refuse(Retry::Never);
        }
        let (missing, next) = self.missing(state, now);
        let missing = missing + u128::from(cost);
        if let Some(excess) = missing.checked_sub(u128::from(self.burst)).filter(|it| *it > 0) {
            return Verdict::Refuse(Retry::At(self.refill(next, self.refills(excess))));
        }
        Verdict::Admit(if cost == 0 { state } else { self.state(missing, next) })
    }

    #[must_use]
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

    /// The settled state once the cost is charged, asked or not: at most as deep as may be, unless
    /// other numbers have made it deeper.
    #[must_use]
    pub(super) fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let (missing, next) = self.missing(state, now);
        let deepest = u128::from(self.deepest());
        if missing >= deepest {
            return state;
        }
        self.state((missing + u128::from(cost)).min(deepest), next)
    }

    /// A live state without a cost that was charged some time ago. What has been refilled since
    /// would have been without the charge too. The charge may have been the first, by which the
    /// refills are timed: what stays missing is refilled as if it were missing since now, which is
    /// no earlier than without it.
    #[must_use]
    pub(super) fn give_back(
        &self,
        state: State,
        now: Micros,
        cost: u64,
        charged_at: Micros,
    ) -> State {
        let (missing, next) = self.missing(state, now);
        let refills = (now.0 - charged_at.0).div_ceil(self.every_us);
        // If the last refill was before the charge, or the refills have been timed by it, none has
        // come since, and the bucket was never full.
        let refilled = if next.saturating_sub(self.every_us) <= charged_at.0 {
            0
        } else {
            refills.saturating_mul(self.amount)
        };
        let given = cost.saturating_sub(refilled);
        if given == 0 {
            return state;
        }
        match missing.saturating_sub(u128::from(given)) {
            0 => State::default(),
            missing => self.state(missing, now.0 + self.every_us),
        }
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
        let ahead = state.until.0.checked_sub(now.0).filter(|ahead| *ahead > 0)?;
        let refills = ahead.div_ceil(self.every_us);
        // A smaller amount than the state was written for: something is missing all the same.
        let overflow = state.rest.min(self.amount - 1);
        let missing = u128::from(refills) * u128::from(self.amount) - u128::from(overflow);
        Some(View { refills, missing, next: state.until.0 - (refills - 1) * self.every_us })
    }

    /// So much is missing, and the next refill is known.
    fn state(&self, missing: u128, next: u64) -> State {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_000);

    fn at(micros: u64) -> Micros {
        Micros(NOW.0 + micros)
    }

    fn bucket(amount: u64, burst: u64) -> RefillBucket {
        RefillBucket::new(Duration::from_secs(1), amount, burst).expect("a bucket")
    }

    fn spend(bucket: &RefillBucket, state: State, now: Micros, cost: u64) -> State {
        match bucket.evaluate(state, now, cost) {
            Verdict::Admit(state) => state,
            Verdict::Refuse(retry) => panic!("refused until {retry:?}"),
        }
    }

    #[test]
    fn refills_come_at_whole_periods_since_the_first_use() {
        let bucket = bucket(10, 25);
        let mut state = spend(&bucket, State::default(), NOW, 5);
        // The second use does not shift the refills.
        state = spend(&bucket, state, at(700_000), 20);
        let wait = |now, until| {
            assert_eq!(bucket.evaluate(state, now, 1), Verdict::Refuse(Retry::At(until)));
        };
        wait(at(700_000), at(1_000_000));
        wait(at(999_999), at(1_000_000));
        assert_eq!(bucket.report(state, at(1_000_000)).remaining, 10);
        assert_eq!(bucket.report(state, at(2_999_999)).remaining, 20);
        assert_eq!(bucket.report(state, at(3_000_000)).remaining, 25);
        assert_eq!(state.until, at(3_000_000), "and from then on it is as good as none");
    }

    #[test]
    fn a_cost_waits_for_the_refill_that_reaches_it() {
        let bucket = bucket(10, 30);
        let empty = spend(&bucket, State::default(), NOW, 30);
        for (cost, seconds) in [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (30, 3)] {
            let refused = Verdict::Refuse(Retry::At(at(seconds * 1_000_000)));
            assert_eq!(bucket.evaluate(empty, NOW, cost), refused, "{cost}");
            spend(&bucket, empty, at(seconds * 1_000_000), cost);
        }
        assert_eq!(bucket.evaluate(empty, NOW, 31), Verdict::Refuse(Retry::Never));
    }

    #[test]
    fn a_debt_is_paid_off_before_anything_passes() {
        let bucket = bucket(10, 10).with_debt(15);
        let deep = bucket.owe(State::default(), NOW, 1_000);
        assert_eq!(bucket.evaluate(deep, NOW, 0), Verdict::Refuse(Retry::At(at(2_000_000))));
        assert_eq!(bucket.evaluate(deep, NOW, 1), Verdict::Refuse(Retry::At(at(2_000_000))));
        assert_eq!(bucket.evaluate(deep, NOW, 6), Verdict::Refuse(Retry::At(at(3_000_000))));
        let report = bucket.report(deep, NOW);
        assert_eq!((report.remaining, report.grows_at), (0, at(2_000_000)));
    }

    #[test]
    fn other_numbers_leave_it_neither_fresh_nor_emptier_than_empty() {
        let spent = spend(&bucket(10, 30), State::default(), NOW, 30);
        for (amount, burst) in [(1, 5), (3, 30), (100, 40), (1_000_000, 1)] {
            let other = bucket(amount, burst);
            let settled = other.settle(spent, NOW);
            assert_eq!(other.settle(settled, NOW), settled);
            assert!(other.report(settled, NOW).remaining < burst, "{amount} {burst}");
            let full = other.report(settled, NOW).full_at;
            assert_eq!(full, settled.until);
            assert!(full.0 <= NOW.0 + 1_000_000 * burst.div_ceil(amount));
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let second = Duration::from_secs(1);
        let new = RefillBucket::new;
        assert_eq!(new(Duration::from_micros(999), 1, 1), Err(RefillError::Every));
        assert_eq!(new(second, 0, 1), Err(RefillError::Amount));
        assert_eq!(new(second, 1, MAX_BURST + 1), Err(RefillError::Burst));
        assert_eq!(new(MAX_EVERY, 1, 100), Err(RefillError::TooSlow));
    }
}
