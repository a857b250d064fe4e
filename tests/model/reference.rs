//! Naive models: levels as exact fractions, counts by window in a map, promised instants found by
//! search. They know one bucket under one limit that never changes.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Datelike};
use weir::clock::Micros;
use weir::limit::calendar::{Calendar, Unit};
use weir::limit::fixed_window::Windows;
use weir::limit::{Policy, Rate, Report, Retry};

#[derive(Debug, Clone)]
pub(crate) struct Model {
    kind: Kind,
    policy: Policy,
    count: u128,
    period: u128,
    quota: u128,
}

#[derive(Debug, Clone)]
enum Kind {
    /// The level in parts of 1/period of a token, and when it was that.
    Bucket {
        level: u128,
        at: u128,
    },
    Fixed {
        counts: HashMap<u128, u128>,
    },
    Sliding {
        counts: HashMap<u128, u128>,
    },
}

impl Model {
    pub(crate) fn new(policy: &Policy) -> Self {
        let rate = rate_of(policy);
        let (count, period) = (u128::from(rate.count()), u128::from(rate.period_us()));
        let quota = u128::from(policy.quota());
        let kind = match policy {
            Policy::TokenBucket(_) => Kind::Bucket { level: quota * period, at: 0 },
            Policy::FixedWindow(_) => Kind::Fixed { counts: HashMap::new() },
            Policy::SlidingWindow(_) => Kind::Sliding { counts: HashMap::new() },
        };
        Self { kind, policy: *policy, count, period, quota }
    }

    /// What is left, in parts of 1/period.
    pub(crate) fn left(&self, now: Micros) -> u128 {
        let window = window_of(&self.policy, now);
        let now = u128::from(now.0);
        let count = |counts: &HashMap<u128, u128>, window| *counts.get(&window).unwrap_or(&0);
        match &self.kind {
            Kind::Bucket { level, at } => {
                (level + (now - at) * self.count).min(self.quota * self.period)
            }
            Kind::Fixed { counts } => (self.quota - count(counts, window)) * self.period,
            Kind::Sliding { counts } => {
                let fading =
                    count(counts, window.wrapping_sub(1)) * (self.period - now % self.period);
                let used = fading + count(counts, window) * self.period;
                self.quota * self.period - used
            }
        }
    }

    pub(crate) fn charge(&mut self, now: Micros, cost: u64) {
        let left = self.left(now);
        let window = window_of(&self.policy, now);
        match &mut self.kind {
            Kind::Bucket { level, at } => {
                *level = left - u128::from(cost) * self.period;
                *at = u128::from(now.0);
            }
            Kind::Fixed { counts } | Kind::Sliding { counts } => {
                *counts.entry(window).or_default() += u128::from(cost);
            }
        }
    }

    /// `None`: it passes.
    pub(crate) fn refusal(&self, now: Micros, cost: u64) -> Option<Retry> {
        if u128::from(cost) > self.quota {
            return Some(Retry::Never);
        }
        let passes = |at| self.left(Micros(at)) >= u128::from(cost) * self.period;
        (!passes(now.0)).then(|| Retry::At(Micros(self.first(now, passes))))
    }

    pub(crate) fn report(&self, now: Micros) -> Report {
        let remaining = self.left(now) / self.period;
        if self.left(now) == self.quota * self.period {
            return Report { remaining: remaining as u64, grows_at: now, full_at: now };
        }
        let grown = |at| self.left(Micros(at)) / self.period > remaining;
        let full = |at| self.left(Micros(at)) == self.quota * self.period;
        Report {
            remaining: remaining as u64,
            grows_at: Micros(self.first(now, grown)),
            full_at: Micros(self.first(now, full)),
        }
    }

    /// The first instant after `now` at which something holds that, once true, stays so.
    fn first(&self, now: Micros, holds: impl Fn(u64) -> bool) -> u64 {
        let (mut no, mut step) = (now.0, 1);
        while !holds(no + step) {
            no += step;
            step *= 2;
        }
        let mut yes = no + step;
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            if holds(middle) { yes = middle } else { no = middle }
        }
        yes
    }
}

/// The number of the window that an instant lies in.
pub(crate) fn window_of(policy: &Policy, now: Micros) -> u128 {
    match calendar_of(policy) {
        None => u128::from(now.0 / rate_of(policy).period_us()),
        Some(calendar) => {
            let utc = DateTime::from_timestamp_micros(now.0.cast_signed()).expect("an instant");
            let date = utc.with_timezone(&calendar.tz()).date_naive();
            let number = match calendar.unit() {
                Unit::Day => date.num_days_from_ce().unsigned_abs(),
                Unit::Month => date.year().unsigned_abs() * 12 + date.month0(),
            };
            u128::from(number)
        }
    }
}

pub(crate) fn calendar_of(policy: &Policy) -> Option<Calendar> {
    match policy {
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(_) => None,
            Windows::Calendar(calendar) => Some(calendar),
        },
        _ => None,
    }
}

/// The windows of a calendar have no one period: this is the longest.
pub(crate) fn rate_of(policy: &Policy) -> Rate {
    match policy {
        Policy::TokenBucket(it) => it.rate(),
        Policy::SlidingWindow(it) => it.rate(),
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(rate) => rate,
            Windows::Calendar(_) => {
                let longest = Duration::from_secs(it.seconds() + 3600);
                Rate::new(it.count(), longest).expect("a rate")
            }
        },
    }
}
