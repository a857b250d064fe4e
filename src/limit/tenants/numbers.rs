//! Which numbers hold for a tenant: the smaller along the way up, exactly, and how a bucket is split
//! into guarantees and a pool.

use std::time::Duration;

use super::{Sharing, TenantAlgorithm, TenantSpec};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::policy::Policy;
use crate::limit::rate::Rate;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::{BurstError, TokenBucket};

/// How much, how often, and how much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) rate: Rate,
    /// Windows have none of their own: in comparisons it is their count.
    pub(super) burst: u64,
    pub(super) algorithm: TenantAlgorithm,
}

impl Numbers {
    /// What holds for a tenant by itself and below its parent, whose sharing and numbers are given.
    /// There is nothing if neither of them says a rate.
    pub(super) fn effective(
        spec: &TenantSpec,
        algorithm: TenantAlgorithm,
        parent: Option<(Sharing, Numbers)>,
    ) -> Option<Numbers> {
        let count = spec.rate.map(Rate::count);
        let burst_of = |rate: Option<Rate>| match algorithm.is_window() {
            true => rate.map(Rate::count),
            false => spec.burst.or(count),
        };
        let above = parent.filter(|(sharing, _)| *sharing != Sharing::Private).map(|(_, it)| it);
        let Some(above) = above else {
            return Some(Numbers { rate: spec.rate?, burst: burst_of(spec.rate)?, algorithm });
        };
        let rate = spec.rate.map_or(above.rate, |own| match algorithm.is_window() {
            true => slower_window(own, above.rate),
            false => slower(own, above.rate),
        });
        let burst = burst_of(Some(rate)).map_or(above.burst, |own| own.min(above.burst));
        Some(Numbers { rate, burst, algorithm })
    }

    pub(super) fn policy(self) -> Result<Policy, BurstError> {
        Ok(match self.algorithm {
            TenantAlgorithm::TokenBucket => {
                Policy::TokenBucket(TokenBucket::new(self.rate, self.burst)?)
            }
            TenantAlgorithm::SlidingWindow => Policy::SlidingWindow(SlidingWindow::new(self.rate)),
            TenantAlgorithm::FixedWindow => Policy::FixedWindow(FixedWindow::new(self.rate)),
        })
    }
}

/// The one that gives less a second; if they are equal, the first.
fn slower(one: Rate, other: Rate) -> Rate {
    if is_faster(one, other) { other } else { one }
}

/// The same of a window, which gets no longer: all of a longer one could be used at once. It lasts
/// several times as long only if the other rate gives nothing in its time.
fn slower_window(own: Rate, other: Rate) -> Rate {
    let slower = slower(own, other);
    if slower.period_us() <= own.period_us() {
        return slower;
    }
    let (other_us, own_us) = (u128::from(other.period_us()), u128::from(own.period_us()));
    let period_us = own_us * other_us.div_ceil(u128::from(other.count()) * own_us);
    let count = u128::from(other.count()) * period_us / other_us;
    Rate::new(count as u64, Duration::from_micros(period_us as u64)).unwrap_or(other)
}

pub(super) fn is_faster(one: Rate, other: Rate) -> bool {
    let product =
        |count: Rate, period: Rate| u128::from(count.count()) * u128::from(period.period_us());
    product(one, other) > product(other, one)
}

/// What a rate comes to in a window, rounded up.
pub(super) fn count_in(rate: Rate, window_us: u64) -> u128 {
    (u128::from(rate.count()) * u128::from(window_us)).div_ceil(u128::from(rate.period_us()))
}

/// A bucket that stands for guarantees and a pool. Together they never give more than it would:
/// neither faster nor at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplitBucket {
    numbers: Numbers,
    /// The window in which guarantees are written.
    window_us: u64,
    /// What there is to be split in one of these windows.
    pub(super) total: u64,
}

impl SplitBucket {
    /// A budget may have less than the bucket, and not more.
    pub(super) fn new(numbers: Numbers, window_us: u64, total: u64) -> Self {
        let Numbers { rate, .. } = numbers;
        let most = u128::from(rate.count()) * u128::from(window_us) / u128::from(rate.period_us());
        SplitBucket {
            numbers,
            window_us,
            total: total.min(u64::try_from(most).unwrap_or(u64::MAX)),
        }
    }

    /// How much a guarantee holds at once; 0 if it is too small to hold anything.
    pub(super) fn guaranteed_at_once(&self, guarantee: u64) -> u64 {
        if self.numbers.algorithm.is_window() {
            return self.in_bucket_window(guarantee);
        }
        let share = u128::from(self.numbers.burst) * u128::from(guarantee);
        (share / u128::from(self.total.max(1))) as u64
    }

    /// How much all of it holds at once.
    pub(super) fn at_once(&self) -> u64 {
        match self.numbers.algorithm.is_window() {
            true => self.in_bucket_window(self.total),
            false => self.numbers.burst,
        }
    }

    /// The bucket of a guarantee.
    pub(super) fn guarantee(&self, guarantee: u64) -> Result<Policy, BurstError> {
        self.part(guarantee, self.guaranteed_at_once(guarantee))
    }

    /// The bucket of all that is not guaranteed; `None` if everything is.
    pub(super) fn pool(&self, guarantees: &[u64]) -> Result<Option<Policy>, BurstError> {
        let guaranteed: u64 = guarantees.iter().sum();
        let at_once: u64 = guarantees.iter().map(|it| self.guaranteed_at_once(*it)).sum();
        match self.total.saturating_sub(guaranteed) {
            0 => Ok(None),
            rest => self.part(rest, self.at_once().saturating_sub(at_once)).map(Some),
        }
    }

    /// So much of the bucket, in the window in which guarantees are written and at once.
    fn part(&self, count: u64, at_once: u64) -> Result<Policy, BurstError> {
        // A window in the place of another has to be as long, or it would let more through at once.
        let (count, window_us) = match self.numbers.algorithm.is_window() {
            true => (at_once, self.numbers.rate.period_us()),
            false => (count, self.window_us),
        };
        let rate = Rate::new(count, Duration::from_micros(window_us));
        let rate = rate.map_err(|_| BurstError::OutOfRange)?;
        Numbers { rate, burst: at_once, ..self.numbers }.policy()
    }

    /// What is written for one window, in the bucket's own window.
    fn in_bucket_window(&self, count: u64) -> u64 {
        let own = u128::from(self.numbers.rate.period_us());
        (u128::from(count) * own / u128::from(self.window_us)) as u64
    }
}
