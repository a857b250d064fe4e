//! Naive models: levels as exact fractions, counts by window in a map, all charges ever made in a
//! list, promised instants found by search. They know one bucket under one limit that never
//! changes.

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
    count: i128,
    period: i128,
    quota: i128,
    /// All that may be used, debts included.
    deepest: i128,
    /// In how many parts a unit is counted.
    parts: i128,
}

#[derive(Debug, Clone)]
enum Kind {
    /// The level in parts, and when it was that.
    Bucket {
        level: i128,
        at: i128,
    },
    /// The level, and when it was that: at its first use, or a refill since.
    Refill {
        level: i128,
        at: i128,
    },
    /// When all that wait will have left, in parts of 1/count of a microsecond.
    Queue {
        empty_at: i128,
    },
    Fixed {
        counts: HashMap<i128, i128>,
    },
    Sliding {
        counts: HashMap<i128, i128>,
    },
    /// Instants and costs of all charges ever made.
    Log {
        charges: Vec<(i128, i128)>,
    },
}

impl Model {
    pub(crate) fn new(policy: &Policy) -> Self {
        let (count, period) = pace_of(policy);
        let (count, period) = (i128::from(count), i128::from(period));
        let (quota, deepest) = (i128::from(policy.quota()), i128::from(policy.deepest()));
        let (kind, parts) = match policy {
            Policy::TokenBucket(_) => (Kind::Bucket { level: quota * period, at: 0 }, period),
            Policy::RefillBucket(_) => (Kind::Refill { level: quota, at: 0 }, 1),
            Policy::LeakyBucket(_) => (Kind::Queue { empty_at: 0 }, period),
            Policy::FixedWindow(_) => (Kind::Fixed { counts: HashMap::new() }, 1),
            Policy::SlidingWindow(_) => (Kind::Sliding { counts: HashMap::new() }, period),
            Policy::SlidingLog(_) => (Kind::Log { charges: Vec::new() }, 1),
            Policy::Concurrency(_) => panic!("nothing refills slots"),
        };
        Self { kind, policy: *policy, count, period, quota, deepest, parts }
    }

    /// What is left, in parts; below zero if it is in debt.
    fn level(&self, now: Micros) -> i128 {
        let window = window_of(&self.policy, now);
        let now = i128::from(now.0);
        let count = |counts: &HashMap<i128, i128>, window| *counts.get(&window).unwrap_or(&0);
        match &self.kind {
            Kind::Bucket { level, at } => {
                (level + (now - at) * self.count).min(self.quota * self.parts)
            }
            Kind::Refill { level, at } => {
                let refills = (now - at) / self.period;
                (level + refills * self.count).min(self.quota)
            }
            Kind::Queue { empty_at } => {
                self.quota * self.parts - (empty_at - now * self.count).max(0)
            }
            Kind::Fixed { counts } => self.quota - count(counts, window),
            Kind::Sliding { counts } => {
                let fading = count(counts, window - 1) * (self.period - now % self.period);
                let used = fading + count(counts, window) * self.period;
                self.quota * self.parts - used
            }
            Kind::Log { charges } => {
                let young = charges.iter().filter(|(at, _)| now - at < self.period);
                self.quota - young.map(|(_, cost)| cost).sum::<i128>()
            }
        }
    }

    /// What is left, in parts of 1/period of a token.
    pub(crate) fn left(&self, now: Micros) -> u128 {
        self.level(now).max(0) as u128
    }

    /// A cost that passes.
    pub(crate) fn charge(&mut self, now: Micros, cost: u64) {
        let level = self.level(now);
        self.spend(now, level, i128::from(cost));
    }

    /// A cost that is charged in any case, as far as the debt may go.
    pub(crate) fn charge_after(&mut self, now: Micros, cost: u64) {
        let level = self.level(now);
        if let Kind::Log { charges } = &mut self.kind {
            let instant = i128::from(now.0);
            charges.retain(|(at, _)| instant - at < self.period);
            charges.push((instant, i128::from(cost)));
            keep_newest(charges, self.deepest);
            return;
        }
        let used = match &self.kind {
            // Only what was charged in this window is bounded.
            Kind::Sliding { counts } => {
                let window = i128::from(now.0) / self.period;
                counts.get(&window).unwrap_or(&0) * self.parts
            }
            _ => self.quota * self.parts - level,
        };
        let room = self.deepest * self.parts - used;
        let cost = i128::from(cost) * self.parts;
        self.spend_parts(now, level, cost.min(room));
    }

    fn spend(&mut self, now: Micros, level: i128, cost: i128) {
        self.spend_parts(now, level, cost * self.parts);
    }

    fn spend_parts(&mut self, now: Micros, level: i128, cost: i128) {
        let window = window_of(&self.policy, now);
        let now = i128::from(now.0);
        let full = level == self.quota * self.parts;
        match &mut self.kind {
            Kind::Bucket { level: it, at } => (*it, *at) = (level - cost, now),
            Kind::Refill { level: it, at } => {
                let last_refill = now - (now - *at) % self.period;
                *at = if full { now } else { last_refill };
                *it = level - cost;
            }
            Kind::Queue { empty_at } => *empty_at = (*empty_at).max(now * self.count) + cost,
            Kind::Fixed { counts } | Kind::Sliding { counts } => {
                *counts.entry(window).or_default() += cost / self.parts;
            }
            Kind::Log { charges } => charges.push((now, cost)),
        }
    }

    /// When a request that joins the queue now leaves it: once all before it have, rounded up.
    pub(crate) fn leaves(&self, now: Micros) -> Micros {
        let Kind::Queue { empty_at } = self.kind else { return now };
        let whole = (empty_at + self.count - 1) / self.count;
        Micros(whole.max(i128::from(now.0)) as u64)
    }

    /// `None`: it passes.
    pub(crate) fn refusal(&self, now: Micros, cost: u64) -> Option<Retry> {
        if i128::from(cost) > self.quota {
            return Some(Retry::Never);
        }
        let passes = |at| self.level(Micros(at)) >= i128::from(cost) * self.parts;
        (!passes(now.0)).then(|| Retry::At(Micros(self.first(now, passes))))
    }

    pub(crate) fn report(&self, now: Micros) -> Report {
        let whole = |at| (self.level(at).max(0) / self.parts) as u64;
        let remaining = whole(now);
        let full = |at| self.level(Micros(at)) == self.quota * self.parts;
        if full(now.0) {
            return Report { remaining, grows_at: now, full_at: now };
        }
        let grown = |at| whole(Micros(at)) > remaining;
        Report {
            remaining,
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

/// Takes the oldest units beyond that many out of a list of charges.
fn keep_newest(charges: &mut [(i128, i128)], most: i128) {
    let mut room = most;
    for (_, cost) in charges.iter_mut().rev() {
        *cost = (*cost).min(room);
        room -= *cost;
    }
}

/// The number of the window that an instant lies in, for what has windows or could have.
pub(crate) fn window_of(policy: &Policy, now: Micros) -> i128 {
    match calendar_of(policy) {
        None => i128::from(now.0 / pace_of(policy).1),
        Some(calendar) => {
            let utc = DateTime::from_timestamp_micros(now.0.cast_signed()).expect("an instant");
            let date = utc.with_timezone(&calendar.tz()).date_naive();
            let number = match calendar.unit() {
                Unit::Day => date.num_days_from_ce().unsigned_abs(),
                Unit::Month => date.year().unsigned_abs() * 12 + date.month0(),
            };
            i128::from(number)
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

/// How much comes back, or may be counted, in how many microseconds.
pub(crate) fn pace_of(policy: &Policy) -> (u64, u64) {
    let rate = match policy {
        Policy::RefillBucket(it) => return (it.amount(), it.every_us()),
        Policy::Concurrency(_) => panic!("nothing refills slots"),
        _ => rate_of(policy),
    };
    (rate.count(), rate.period_us())
}

/// The rate of a policy that has one. The windows of a calendar have no one period: this is the
/// longest.
pub(crate) fn rate_of(policy: &Policy) -> Rate {
    match policy {
        Policy::TokenBucket(it) => it.rate(),
        Policy::LeakyBucket(it) => it.rate(),
        Policy::SlidingWindow(it) => it.rate(),
        Policy::SlidingLog(it) => it.rate(),
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(rate) => rate,
            Windows::Calendar(_) => {
                let longest = Duration::from_secs(it.seconds() + 3600);
                Rate::new(it.count(), longest).expect("a rate")
            }
        },
        Policy::RefillBucket(_) | Policy::Concurrency(_) => panic!("no rate"),
    }
}
