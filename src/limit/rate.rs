//! How much, how often: `N` per `W`.

use std::time::Duration;

/// At most this many a period, and at most this many a second.
pub const MAX_COUNT: u64 = 1_000_000_000;
pub const MIN_PERIOD: Duration = Duration::from_millis(1);
pub const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// `count` per `period`. Neither can be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u64,
    period_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("the count must be between 1 and {MAX_COUNT}")]
    Count,
    #[error("the period must be between 1ms and 366 days")]
    Period,
    #[error("the rate must be at most {MAX_COUNT} a second")]
    TooFast,
}

impl Rate {
    /// # Errors
    /// If the count, the period or their quotient is out of range.
    pub fn new(count: u64, period: Duration) -> Result<Self, RateError> {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(RateError::Count);
        }
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(RateError::Period);
        }
        let period_us = period.as_micros() as u64;
        if u128::from(count) * 1_000_000 > u128::from(MAX_COUNT) * u128::from(period_us) {
            return Err(RateError::TooFast);
        }
        Ok(Rate { count, period_us })
    }

    #[must_use]
    pub fn count(self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn period_us(self) -> u64 {
        self.period_us
    }
}
