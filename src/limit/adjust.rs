//! Other numbers for a limit that stays what it is: the same algorithm, on the same buckets.

use std::time::Duration;

use super::concurrency::Concurrency;
use super::fixed_window::{FixedWindow, Windows};
use super::refill_bucket::RefillBucket;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::token_bucket::{MAX_BURST, TokenBucket};
use super::{Policy, Rate};

/// What is to be another.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Numbers {
    pub rate: Option<Rate>,
    /// The burst, or how many at a time.
    pub burst: Option<u64>,
    /// So many times as much of everything.
    pub boost: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdjustError {
    #[error("give `rate`, `burst` or `boost`")]
    Nothing,
    #[error("`boost` must be more than 0 and at most 1000")]
    Boost,
    #[error("this limit has no `{0}` of that kind")]
    Other(&'static str),
    #[error("these numbers are out of range for the limit")]
    Range,
}

impl Policy {
    /// The same limit with other numbers.
    ///
    /// # Errors
    /// If it cannot have them.
    pub fn adjusted(&self, numbers: &Numbers) -> Result<Policy, AdjustError> {
        let Numbers { rate, burst, boost } = *numbers;
        if rate.is_none() && burst.is_none() && boost.is_none() {
            return Err(AdjustError::Nothing);
        }
        if burst == Some(0) {
            return Err(AdjustError::Range);
        }
        let boost = boost.unwrap_or(1.0);
        if !(boost > 0.0 && boost <= 1000.0) {
            return Err(AdjustError::Boost);
        }
        let debt = self.deepest() - self.quota();
        self.numbered(rate, burst, boost).map(|policy| policy.with_debt(debt))
    }

    /// The same numbers on a bucket on which others alternate with them: an override that comes and
    /// goes, or numbers that one gateway knows of before another. What one of them still counts,
    /// none of them clamps. Those of another kind have other buckets anyway.
    #[must_use]
    pub fn beside(self, other: &Policy) -> Policy {
        match (self, other) {
            (Policy::TokenBucket(it), Policy::TokenBucket(other)) => {
                Policy::TokenBucket(it.beside(other))
            }
            (Policy::LeakyBucket(it), Policy::LeakyBucket(other)) => {
                Policy::LeakyBucket(it.beside(other))
            }
            (Policy::RefillBucket(it), Policy::RefillBucket(other)) => {
                Policy::RefillBucket(it.beside(other))
            }
            (Policy::SlidingWindow(it), Policy::SlidingWindow(other)) => {
                Policy::SlidingWindow(it.beside(other))
            }
            (Policy::SlidingLog(it), Policy::SlidingLog(other)) => {
                Policy::SlidingLog(it.beside(other))
            }
            _ => self,
        }
    }

    /// The length of its windows in microseconds, if it counts in windows and theirs is another:
    /// then the two cannot share a bucket, since neither's count says anything to the other.
    pub fn other_window(&self, than: &Policy) -> Option<u64> {
        let window = |policy: &Policy| match policy {
            Policy::SlidingWindow(it) => Some(it.rate().period_us()),
            Policy::FixedWindow(it) => match it.windows() {
                Windows::Every(rate) => Some(rate.period_us()),
                Windows::Calendar(_) => None,
            },
            _ => None,
        };
        window(self).filter(|_| window(self) != window(than))
    }

    fn numbered(
        &self,
        rate: Option<Rate>,
        burst: Option<u64>,
        boost: f64,
    ) -> Result<Policy, AdjustError> {
        let times = |number: u64| ((number as f64 * boost) as u64).clamp(1, MAX_BURST);
        let faster = |rate: Rate| {
            let period = Duration::from_micros(rate.period_us());
            Rate::new(times(rate.count()), period).map_err(|_| AdjustError::Range)
        };
        let without_burst = || match burst {
            Some(_) => Err(AdjustError::Other("burst")),
            None => Ok(()),
        };
        let bucket = |it: &TokenBucket| {
            let burst = times(burst.unwrap_or(it.burst()));
            let rate = faster(rate.unwrap_or(it.rate()))?;
            TokenBucket::new(rate, burst).map_err(|_| AdjustError::Range)
        };
        Ok(match self {
            Policy::TokenBucket(it) => Policy::TokenBucket(bucket(it)?),
            Policy::LeakyBucket(it) => Policy::LeakyBucket(bucket(it.bucket())?.into()),
            Policy::RefillBucket(it) => {
                if rate.is_some() {
                    return Err(AdjustError::Other("rate"));
                }
                let every = Duration::from_micros(it.every_us());
                let burst = times(burst.unwrap_or(it.burst()));
                let bucket = RefillBucket::new(every, times(it.amount()), burst);
                Policy::RefillBucket(bucket.map_err(|_| AdjustError::Range)?)
            }
            Policy::SlidingWindow(it) => {
                without_burst()?;
                Policy::SlidingWindow(SlidingWindow::new(faster(rate.unwrap_or(it.rate()))?))
            }
            Policy::SlidingLog(it) => {
                without_burst()?;
                let log = SlidingLog::new(faster(rate.unwrap_or(it.rate()))?);
                Policy::SlidingLog(log.map_err(|_| AdjustError::Range)?)
            }
            Policy::FixedWindow(it) => {
                without_burst()?;
                Policy::FixedWindow(match (it.windows(), rate) {
                    (Windows::Every(_), Some(rate)) | (Windows::Every(rate), None) => {
                        FixedWindow::new(faster(rate)?)
                    }
                    (Windows::Calendar(_), Some(_)) => return Err(AdjustError::Other("rate")),
                    (Windows::Calendar(calendar), None) => {
                        let window = FixedWindow::calendar(times(it.count()), calendar);
                        window.map_err(|_| AdjustError::Range)?
                    }
                })
            }
            Policy::Concurrency(it) => {
                if rate.is_some() {
                    return Err(AdjustError::Other("rate"));
                }
                let limit = Concurrency::new(times(burst.unwrap_or(it.limit())));
                Policy::Concurrency(limit.map_err(|_| AdjustError::Range)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u64) -> Rate {
        Rate::new(count, Duration::from_secs(1)).expect("a rate")
    }

    fn numbers(rate: Option<Rate>, burst: Option<u64>, boost: Option<f64>) -> Numbers {
        Numbers { rate, burst, boost }
    }

    #[test]
    fn a_limit_stays_what_it_is_with_other_numbers() {
        let bucket = Policy::TokenBucket(TokenBucket::new(rate(10), 5).expect("a bucket"));
        let to = |count, burst| {
            Ok(Policy::TokenBucket(TokenBucket::new(rate(count), burst).expect("a bucket")))
        };
        assert_eq!(bucket.adjusted(&numbers(Some(rate(20)), None, None)), to(20, 5));
        assert_eq!(bucket.adjusted(&numbers(None, Some(50), None)), to(10, 50));
        assert_eq!(bucket.adjusted(&numbers(None, None, Some(2.0))), to(20, 10));
        assert_eq!(bucket.adjusted(&numbers(None, None, Some(0.01))), to(1, 1));
        let debt = bucket.with_debt(3).adjusted(&numbers(None, None, Some(2.0))).expect("a limit");
        assert_eq!(debt.deepest() - debt.quota(), 3);
        let window = Policy::FixedWindow(FixedWindow::new(rate(10)));
        assert_eq!(
            window.adjusted(&numbers(None, None, Some(1.5))),
            Ok(Policy::FixedWindow(FixedWindow::new(rate(15))))
        );
        let slots = Policy::Concurrency(Concurrency::new(3).expect("a limit"));
        let more = Policy::Concurrency(Concurrency::new(30).expect("a limit"));
        assert_eq!(slots.adjusted(&numbers(None, Some(30), None)), Ok(more));
    }

    #[test]
    fn what_a_limit_cannot_have_is_refused() {
        let window = Policy::FixedWindow(FixedWindow::new(rate(10)));
        let error = |numbers: &Numbers| window.adjusted(numbers).expect_err("a fault");
        assert_eq!(error(&Numbers::default()), AdjustError::Nothing);
        assert_eq!(error(&numbers(None, Some(5), None)), AdjustError::Other("burst"));
        for boost in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0] {
            assert_eq!(error(&numbers(None, None, Some(boost))), AdjustError::Boost, "{boost}");
        }
    }
}
