//! Other numbers for a limit that stays what it is: the same algorithm, on the same buckets.

use std::time::Duration;

use super::concurrency::Concurrency;
use super::fixed_window::{FixedWindow, Windows};
use super::refill_bucket::RefillBucket;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::token_bucket::{MAX_BURST, TokenBucket};
use super::trust::Score;
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
        self.adjusted_for(numbers, Score::ZERO)
    }

    /// The same for a caller of that score: `rate` and `burst` stand in for what its trust would make of
    /// them, and `boost` multiplies what holds for it.
    ///
    /// # Errors
    /// If it cannot have them.
    pub fn adjusted_for(&self, numbers: &Numbers, score: Score) -> Result<Policy, AdjustError> {
        let Numbers { rate, burst, boost } = *numbers;
        if rate.is_none() && burst.is_none() && boost.is_none() {
            return Err(AdjustError::Nothing);
        }
        if burst == Some(0) {
            return Err(AdjustError::Range);
        }
        if !(boost.unwrap_or(1.0) > 0.0 && boost.unwrap_or(1.0) <= 1000.0) {
            return Err(AdjustError::Boost);
        }
        self.numbered(numbers, score)
    }

    /// The same limit for a caller of that score: burst, slots and the counts of windows are
    /// `floor(number × (1 + score))`, rates `rate × (1 + score ÷ 2)`.
    ///
    /// # Errors
    /// If the numbers are out of range then.
    pub fn adaptive(&self, score: Score) -> Result<Policy, AdjustError> {
        match score {
            Score::ZERO => Ok(*self),
            score => self.numbered(&Numbers::default(), score),
        }
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

    fn numbered(&self, numbers: &Numbers, score: Score) -> Result<Policy, AdjustError> {
        let Numbers { rate, burst, boost } = *numbers;
        let boost = boost.unwrap_or(1.0);
        let times = |number: u64| ((number as f64 * boost) as u64).clamp(1, MAX_BURST);
        let with_count = |rate: Rate, count: u64| {
            let period = Duration::from_micros(rate.period_us());
            Rate::new(count, period).map_err(|_| AdjustError::Range)
        };
        let boosted = |rate: Rate| with_count(rate, times(rate.count()));
        // A boost multiplies what trust has made of a number, and what is written stands in for that.
        let burst_or = |own: u64| times(burst.unwrap_or(score.more(own)));
        let count_or = |own: Rate| match rate {
            Some(rate) => boosted(rate),
            None => with_count(own, times(score.more(own.count()))),
        };
        let without_burst = || match burst {
            Some(_) => Err(AdjustError::Other("burst")),
            None => Ok(()),
        };
        let without_rate = || match rate {
            Some(_) => Err(AdjustError::Other("rate")),
            None => Ok(()),
        };
        let bucket = |it: &TokenBucket| {
            let faster = match rate {
                Some(rate) => boosted(rate)?,
                None => score.faster(boosted(it.rate())?),
            };
            if faster.is_too_fast() {
                return Err(AdjustError::Range);
            }
            TokenBucket::new(faster, burst_or(it.burst())).map_err(|_| AdjustError::Range)
        };
        let policy = match self {
            Policy::TokenBucket(it) => Policy::TokenBucket(bucket(it)?),
            Policy::LeakyBucket(it) => Policy::LeakyBucket(bucket(it.bucket())?.into()),
            Policy::RefillBucket(it) => {
                without_rate()?;
                let every = Duration::from_micros(it.every_us());
                let amount = times(score.more_refill(it.amount()));
                let bucket = RefillBucket::new(every, amount, burst_or(it.burst()));
                Policy::RefillBucket(bucket.map_err(|_| AdjustError::Range)?)
            }
            Policy::SlidingWindow(it) => {
                without_burst()?;
                Policy::SlidingWindow(SlidingWindow::new(count_or(it.rate())?))
            }
            Policy::SlidingLog(it) => {
                without_burst()?;
                let log = SlidingLog::new(count_or(it.rate())?);
                Policy::SlidingLog(log.map_err(|_| AdjustError::Range)?)
            }
            Policy::FixedWindow(it) => {
                without_burst()?;
                Policy::FixedWindow(match it.windows() {
                    Windows::Every(own) => FixedWindow::new(count_or(own)?),
                    Windows::Calendar(calendar) => {
                        without_rate()?;
                        let window = FixedWindow::calendar(times(score.more(it.count())), calendar);
                        window.map_err(|_| AdjustError::Range)?
                    }
                })
            }
            Policy::Concurrency(it) => {
                without_rate()?;
                let limit = Concurrency::new(burst_or(it.limit()));
                Policy::Concurrency(limit.map_err(|_| AdjustError::Range)?)
            }
        };
        Ok(policy.with_debt(self.deepest() - self.quota()))
    }
}

#[cfg(test)]
mod tests;
