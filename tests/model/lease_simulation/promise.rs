//! What every history is held against.

use std::fmt;

use weir::limit::Policy;
use weir::limit::fixed_window::Windows;

/// A promise that was broken.
#[derive(Debug, Clone)]
pub(crate) enum Violation {
    /// More is left and leased than the bucket holds.
    TooMuchAround { key: usize, at: u64, left: u64, unspent: u64, quota: u64 },
    /// An interval has admitted too much.
    TooMuchAdmitted { key: usize, from: u64, to: u64, admitted: u64, policy: Box<Policy> },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::TooMuchAround { key, at, left, unspent, quota } => {
                write!(f, "key {key} at {at} µs: {left} left and {unspent} unspent of {quota}")
            }
            Violation::TooMuchAdmitted { key, from, to, admitted, policy } => {
                write!(f, "key {key} from {from} to {to} µs: {admitted} admitted by {policy:?}")
            }
        }
    }
}

/// Something that was admitted, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    pub(crate) at: u64,
    pub(crate) cost: u64,
}

/// Looks for an interval that has admitted more than it may. `clock_start` is what the clock of the
/// buckets showed at zero.
pub(crate) fn check(
    key: usize,
    policy: &Policy,
    history: &[Admitted],
    clock_start: u64,
) -> Result<(), Violation> {
    let found = match policy {
        Policy::TokenBucket(it) => {
            continuous(history, it.rate().count(), it.rate().period_us(), it.burst())
        }
        Policy::LeakyBucket(it) => {
            continuous(history, it.rate().count(), it.rate().period_us(), it.burst())
        }
        Policy::RefillBucket(it) => discrete(history, it.every_us(), it.amount(), it.burst()),
        Policy::FixedWindow(it) => {
            let Windows::Every(rate) = it.windows() else { return Ok(()) };
            windowed(history, rate.period_us(), it.count(), clock_start)
        }
        _ => None,
    };
    match found {
        None => Ok(()),
        Some(Excess { from, to, admitted }) => {
            Err(Violation::TooMuchAdmitted { key, from, to, admitted, policy: Box::new(*policy) })
        }
    }
}

struct Excess {
    from: u64,
    to: u64,
    admitted: u64,
}

/// `admitted ≤ burst + rate × t` over every interval, in whole numbers: of all beginnings so far, the one
/// from which the most was admitted beyond the rate is the one to look at.
fn continuous(history: &[Admitted], count: u64, period: u64, burst: u64) -> Option<Excess> {
    let (count, period, burst) = (i128::from(count), i128::from(period), i128::from(burst));
    let mut sum: i128 = 0;
    let mut least: Option<(i128, u64, i128)> = None;
    for Admitted { at, cost } in history {
        let beyond = sum * period - i128::from(*at) * count;
        if least.is_none_or(|(least, _, _)| beyond < least) {
            least = Some((beyond, *at, sum));
        }
        sum += i128::from(*cost);
        let here = sum * period - i128::from(*at) * count;
        if let Some((least, from, before)) = least
            && here - least > burst * period
        {
            return Some(Excess { from, to: *at, admitted: (sum - before) as u64 });
        }
    }
    None
}

/// The burst, and what each refill brings: in any interval as many as periods have begun in it.
fn discrete(history: &[Admitted], every: u64, amount: u64, burst: u64) -> Option<Excess> {
    for (index, first) in history.iter().enumerate() {
        let mut admitted = 0;
        for it in &history[index..] {
            admitted += it.cost;
            let refills = (it.at - first.at) / every + 1;
            if admitted > burst + refills * amount {
                return Some(Excess { from: first.at, to: it.at, admitted });
            }
        }
    }
    None
}

/// So many in each window.
fn windowed(history: &[Admitted], period: u64, count: u64, clock_start: u64) -> Option<Excess> {
    let (mut window, mut admitted) = (u64::MAX, 0);
    for it in history {
        let here = (clock_start + it.at) / period;
        if here != window {
            (window, admitted) = (here, 0);
        }
        admitted += it.cost;
        if admitted > count {
            return Some(Excess { from: it.at, to: it.at, admitted });
        }
    }
    None
}
