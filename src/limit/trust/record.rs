//! How a user's calls have ended, day by day: calls of the last 7 days, violations of the last 30.
//!
//! The text of a record is `DAY SUCCESSES FAILURES VIOLATIONS` for each day that has any, the newest
//! first and with `;` between them. Redis and snapshots keep it so; `lua/trust.lua` adds to it.

use std::fmt::Write as _;

use crate::clock::Micros;

/// Days of which calls count.
const CALL_DAYS: usize = 7;
/// Days of which violations count.
const VIOLATION_DAYS: usize = 30;
const DAY_MICROS: u64 = 86_400_000_000;

/// The number of a day of UTC, from the epoch on.
pub const fn day_of(now: Micros) -> u32 {
    (now.0 / DAY_MICROS) as u32
}

/// What was counted on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DayCounts {
    pub day: u32,
    pub successes: u32,
    pub failures: u32,
    pub violations: u16,
}

impl DayCounts {
    pub const fn is_nothing(&self) -> bool {
        self.successes == 0 && self.failures == 0 && self.violations == 0
    }

    /// Counts of the same day together.
    pub const fn add(&mut self, other: &DayCounts) {
        self.successes = self.successes.saturating_add(other.successes);
        self.failures = self.failures.saturating_add(other.failures);
        self.violations = self.violations.saturating_add(other.violations);
    }
}

/// What counts by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrustSums {
    pub successes: u64,
    pub failures: u64,
    pub violations: u32,
}

impl TrustSums {
    pub const fn is_nothing(&self) -> bool {
        self.successes == 0 && self.failures == 0 && self.violations == 0
    }
}

/// The days of one user. Its size does not depend on how much there is to remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrustRecord {
    /// The day that comes first in each list; the one before it comes next.
    day: u32,
    successes: [u32; CALL_DAYS],
    failures: [u32; CALL_DAYS],
    violations: [u16; VIOLATION_DAYS],
}

impl TrustRecord {
    /// Makes room for a new day; what is too old to count goes. Time that runs back is time that
    /// stands still.
    pub fn advance(&mut self, today: u32) {
        let days = today.saturating_sub(self.day) as usize;
        if days == 0 {
            return;
        }
        self.day = today;
        shift(&mut self.successes, days);
        shift(&mut self.failures, days);
        shift(&mut self.violations, days);
    }

    /// Adds what was counted on a day. What is too old counts nothing.
    pub fn add(&mut self, counts: &DayCounts) {
        self.advance(counts.day);
        let age = (self.day - counts.day) as usize;
        if let Some(successes) = self.successes.get_mut(age) {
            *successes = successes.saturating_add(counts.successes);
        }
        if let Some(failures) = self.failures.get_mut(age) {
            *failures = failures.saturating_add(counts.failures);
        }
        if let Some(violations) = self.violations.get_mut(age) {
            *violations = violations.saturating_add(counts.violations);
        }
    }

    /// What counts on a day that is not before the last one counted.
    pub fn sums(&self, today: u32) -> TrustSums {
        let gone = today.saturating_sub(self.day) as usize;
        fn sum<T: Copy + Into<u64>>(counts: &[T], gone: usize) -> u64 {
            let left = counts.len().saturating_sub(gone);
            counts[..left].iter().map(|count| (*count).into()).sum()
        }
        TrustSums {
            successes: sum(&self.successes, gone),
            failures: sum(&self.failures, gone),
            violations: sum(&self.violations, gone) as u32,
        }
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for age in 0..VIOLATION_DAYS {
            let call = |counts: &[u32]| counts.get(age).copied().unwrap_or(0);
            let (successes, failures) = (call(&self.successes), call(&self.failures));
            let violations = self.violations[age];
            if successes == 0 && failures == 0 && violations == 0 {
                continue;
            }
            let gap = if text.is_empty() { "" } else { ";" };
            let day = self.day.saturating_sub(age as u32);
            // Writing into a string does not fail.
            let _ = write!(text, "{gap}{day} {successes} {failures} {violations}");
        }
        text
    }

    /// The record that a text spells. What cannot be read is nothing, and so are days that are yet to
    /// come: they would keep the others from growing old. Clocks may differ around midnight.
    pub fn parse(text: &str, today: u32) -> Self {
        let mut record = TrustRecord::default();
        let days = text.split(';').filter_map(|part| {
            let mut numbers = part.split(' ').map(|it| it.parse::<u32>().ok());
            let mut next = || numbers.next().flatten();
            let (day, successes, failures) = (next()?, next()?, next()?);
            let violations = u16::try_from(next()?).unwrap_or(u16::MAX);
            Some(DayCounts { day, successes, failures, violations })
        });
        let days = days.filter(|counts| counts.day <= today.saturating_add(1));
        days.for_each(|counts| record.add(&counts));
        record
    }
}

/// Moves counts by so many days towards the end, where they fall off.
fn shift<T: Copy + Default>(counts: &mut [T], days: usize) {
    let days = days.min(counts.len());
    counts.rotate_right(days);
    counts[..days].fill(T::default());
}
