//! How much, how often: `N` per `W`.

use std::time::Duration;

/// At most this many a period, and at most this many a second.
pub const MAX_COUNT: u64 = 1_000_000_000;
/// What a window counts at most, debts included: two counts fit into a state.
pub(super) const MOST_COUNTED: u64 = (1 << 30) - 1;
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
    pub const ONE_A_SECOND: Rate = Rate { count: 1, period_us: 1_000_000 };

    /// A part of a microsecond in the period counts as a whole one: against the caller.
    ///
    /// # Errors
    /// If the count, the period or their quotient is out of range.
    pub fn new(count: u64, period: Duration) -> Result<Self, RateError> {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(RateError::Count);
        }
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(RateError::Period);
        }
        let period_us = period.as_nanos().div_ceil(1_000) as u64;
        let rate = Rate { count, period_us };
        if rate.is_too_fast() { Err(RateError::TooFast) } else { Ok(rate) }
    }

    /// Whether it is more than may be a second.
    pub(super) fn is_too_fast(self) -> bool {
        let most = u128::from(MAX_COUNT) * u128::from(self.period_us);
        u128::from(self.count) * 1_000_000 > most
    }

    /// Exactly `numerator ÷ denominator` times this rate. Count and period may then be larger than those
    /// that can be written down.
    ///
    /// # Panics
    /// If one of the two is zero.
    #[must_use]
    pub(super) fn times(self, numerator: u64, denominator: u64) -> Self {
        assert!(numerator > 0 && denominator > 0, "a rate of nothing");
        let (count, period_us) = (self.count * numerator, self.period_us * denominator);
        let divisor = greatest_divisor(count, period_us);
        Rate { count: count / divisor, period_us: period_us / divisor }
    }

    pub fn count(self) -> u64 {
        self.count
    }

    pub fn period_us(self) -> u64 {
        self.period_us
    }

    /// The whole periods that so many units need, at the least.
    pub fn span(self, units: u64) -> Duration {
        Duration::from_micros((units / self.count).saturating_mul(self.period_us))
    }
}

/// The greatest number that divides both, neither of which is zero.
fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_no_rate() {
        let second = Duration::from_secs(1);
        assert_eq!(Rate::new(0, second), Err(RateError::Count));
        assert_eq!(Rate::new(MAX_COUNT + 1, second), Err(RateError::Count));
        assert_eq!(Rate::new(1, Duration::from_micros(999)), Err(RateError::Period));
        assert_eq!(Rate::new(1, MAX_PERIOD + second), Err(RateError::Period));
        assert_eq!(Rate::new(MAX_COUNT, second / 2), Err(RateError::TooFast));
    }

    #[test]
    fn the_fastest_and_the_slowest_rate_are_rates() {
        assert!(Rate::new(MAX_COUNT, Duration::from_secs(1)).is_ok());
        assert!(Rate::new(1_000_000, MIN_PERIOD).is_ok());
        assert!(Rate::new(1, MAX_PERIOD).is_ok());
    }

    #[test]
    fn a_multiple_of_a_rate_is_exact() {
        let rate = Rate::new(3, Duration::from_secs(7)).expect("a rate");
        let faster = rate.times(201, 200);
        assert_eq!((faster.count(), faster.period_us()), (603, 1_400_000_000));
        let half_more = rate.times(300, 200);
        assert_eq!((half_more.count(), half_more.period_us()), (9, 14_000_000));
        let slowest = Rate::new(1, MAX_PERIOD).expect("a rate").times(201, 200);
        assert!(slowest.period_us() < 1 << 53);
    }

    #[test]
    fn a_part_of_a_microsecond_makes_the_period_longer() {
        let rate = Rate::new(1, Duration::from_nanos(1_000_001)).map(Rate::period_us);
        assert_eq!(rate, Ok(1_001));
    }
}
