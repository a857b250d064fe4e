//! Trust: how far a user is trusted, from 0.0 to 1.0, and what limits with `adaptive` make of it.
//!
//! The score is `age + email + success − violations`. It follows from what the user's token says and
//! from how its calls have ended lately ([`TrustRecord`], kept by day). All of it is integers and
//! pure. A score is in whole hundredths, rounded down, so that a limit has few sets of numbers.

mod record;

pub use record::{DayCounts, TrustRecord, TrustSums, day_of};

use chrono::{DateTime, NaiveDate, NaiveTime};

use super::rate::Rate;

/// The days of a year, by which an account's age is measured.
const YEAR: u64 = 365;
const DAY_SECONDS: u64 = 86_400;
/// The year 5138. What is larger is in milliseconds.
const MAX_SECONDS: u64 = 100_000_000_000;

/// How far a user is trusted, in hundredths: 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Score(u8);

impl Score {
    pub const ZERO: Score = Score(0);
    pub const FULL: Score = Score(100);
    /// How many scores there are.
    pub const COUNT: usize = 101;

    /// More than 100 hundredths are 100.
    pub const fn of_hundredths(hundredths: u64) -> Self {
        Score(if hundredths > 100 { 100 } else { hundredths as u8 })
    }

    /// A score as a token says it: a decimal number, clamped to 0.0 to 1.0. What is no number is 0.
    pub fn parse(text: &str) -> Self {
        // Words such as `inf` are floats, too.
        let is_decimal = |text: &&str| text.bytes().all(|it| b"0123456789+-.eE".contains(&it));
        let number = Some(text).filter(is_decimal).and_then(|it| it.parse::<f64>().ok());
        let number = number.unwrap_or(0.0).clamp(0.0, 1.0);
        // Most decimals lie next to the float that stands for them: 0.29 × 100 is 28.999….
        Score::of_hundredths((number * 100.0 + 1e-9) as u64)
    }

    /// All of them, from none to full.
    pub fn all() -> impl Iterator<Item = Score> {
        (0..=100).map(Score)
    }

    pub const fn hundredths(self) -> u8 {
        self.0
    }

    /// A burst or a count for a caller of this score: `floor(number × (1 + score))`.
    pub const fn more(self, number: u64) -> u64 {
        (number as u128 * (100 + self.0 as u128) / 100) as u64
    }

    /// An amount that comes at each refill: `floor(number × (1 + score ÷ 2))`.
    pub const fn more_refill(self, number: u64) -> u64 {
        (number as u128 * (200 + self.0 as u128) / 200) as u64
    }

    /// A rate for a caller of this score: exactly `rate × (1 + score ÷ 2)`.
    pub fn faster(self, rate: Rate) -> Rate {
        if self == Score::ZERO { rate } else { rate.times(200 + u64::from(self.0), 200) }
    }
}

/// What each part of a score weighs, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustWeights {
    /// The most that the age of the account counts.
    pub age: u16,
    /// What a verified e-mail address counts.
    pub email: u16,
    /// What a week counts in which every call was a success.
    pub success: u16,
    /// What one violation takes away.
    pub violation: u16,
    /// The most that violations take away.
    pub violations: u16,
}

impl Default for TrustWeights {
    fn default() -> Self {
        TrustWeights { age: 300, email: 200, success: 500, violation: 50, violations: 200 }
    }
}

/// What a score is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrustFacts {
    /// Whole days since the account was made.
    pub age_days: u64,
    pub email_verified: bool,
    pub sums: TrustSums,
}

impl TrustWeights {
    /// The score of a user. All parts are integers over one common denominator, the weights' 1000 times
    /// the days of a year times the number of calls, so that only the result is rounded.
    pub fn score(&self, facts: &TrustFacts) -> Score {
        let TrustSums { successes, failures, violations } = facts.sums;
        let calls = u128::from(successes) + u128::from(failures);
        let whole = calls.max(1) * u128::from(YEAR);
        let weight = |weight: u16| u128::from(weight);
        let age = u128::from(facts.age_days) * 1000;
        let age = age.min(weight(self.age) * u128::from(YEAR)) * calls.max(1);
        let email = if facts.email_verified { weight(self.email) * whole } else { 0 };
        let success = weight(self.success) * u128::from(successes) * u128::from(YEAR);
        let violations = weight(self.violation) * u128::from(violations);
        let violations = violations.min(weight(self.violations)) * whole;
        let score = (age + email + success).saturating_sub(violations) / (10 * whole);
        Score::of_hundredths(score.min(100) as u64)
    }
}

/// Whole days from when an account was made, as a token says it: Unix seconds, milliseconds, or a date
/// or time of RFC 3339. One that is none of these, or lies ahead, is as good as made today; so is one of
/// 1970 or before, which stands for an account of unknown age.
pub fn age_days(created: &str, now_seconds: u64) -> u64 {
    let created = unix_seconds(created).or_else(|| date_seconds(created)).filter(|it| *it > 0);
    created.map_or(0, |created| now_seconds.saturating_sub(created) / DAY_SECONDS)
}

/// Plain digits, and others behind a point, which do not count.
fn unix_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let number = whole.parse().ok().filter(|_| is_number(whole) && is_number(fraction))?;
    Some(if number > MAX_SECONDS { number / 1_000 } else { number })
}

fn date_seconds(text: &str) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc());
    let day = || text.parse::<NaiveDate>().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let time = time.or_else(|_| day()).ok()?;
    u64::try_from(time.timestamp()).ok()
}

#[cfg(test)]
mod tests;
