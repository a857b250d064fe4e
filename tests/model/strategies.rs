//! Random limits, costs and times, spread over all magnitudes.

use std::time::Duration;

use chrono_tz::Tz;
use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::calendar::{Calendar, Unit};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::rate::MAX_COUNT;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::{self, SlidingLog};
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};

use crate::decider::Ask;
use crate::reference_model::pace_of;

const YEAR_US: u64 = 366 * 86_400 * 1_000_000;

/// Lua has doubles only, which hold the microseconds until the year 2255, and a bucket may take a
/// century to refill. So histories end in 2052: then there is time to empty a bucket, wait until
/// it is full, and empty it again.
pub(crate) const LATEST: Micros = Micros(2_600_000_000_000_000);

/// How many cases a property is tried with: so many, times `MODEL_CASES` for a longer run by hand.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let times = std::env::var("MODEL_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    ProptestConfig::with_cases(count.saturating_mul(times))
}

/// Where the random time of one step lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gap {
    /// A share of the period in 2^-16, so that steps meet windows of every length.
    Share(u64),
    Micros(u64),
    /// As long as the last refusal said, and this much (at most one) less.
    Promise {
        early: u64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) gap: Gap,
    /// A share of the quota in 2^-16, at least one.
    pub(crate) cost: u64,
}

impl Step {
    /// The instant and the cost of this step under a policy.
    pub(crate) fn place(
        &self,
        policy: &Policy,
        last: Micros,
        promised: Option<Micros>,
    ) -> (Micros, u64) {
        let at = match (self.gap, promised) {
            (Gap::Promise { early }, Some(at)) => at.0 - early,
            (Gap::Promise { early }, None) => last.0 + early,
            (Gap::Share(gap), _) => last.0 + share(gap, pace_of(policy).1),
            (Gap::Micros(gap), _) => last.0 + gap,
        };
        (Micros(at.max(last.0)), share(self.cost, policy.quota()).max(1))
    }
}

/// A step of several checks at once.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// By which policy's span time goes on, and by how much of it in 2^-16.
    pace: usize,
    gap: u64,
    pub(crate) picks: Vec<Pick>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    which: usize,
    /// A share of the quota in 2^-16.
    cost: u64,
}

impl Round {
    pub(crate) fn after(&self, policies: &[Policy], last: Micros) -> Micros {
        Micros(last.0 + share(self.gap, span(&policies[self.pace % policies.len()])))
    }
}

impl Pick {
    /// One of some things, and its number.
    pub(crate) fn of<'a, T>(&self, things: &'a [T]) -> (usize, &'a T) {
        let which = self.which % things.len();
        (which, &things[which])
    }

    pub(crate) fn cost(&self, policy: &Policy) -> u64 {
        share(self.cost, policy.quota())
    }
}

/// A share of a span in 2^-16: none, or below a power of two. Each has its weight.
pub(crate) fn gap(none: u32, below: [(u32, u32); 3]) -> impl Strategy<Value = u64> {
    let [a, b, c] = below.map(|(weight, bits)| (weight, 0..1_u64 << bits));
    prop_oneof![none => Just(0), a.0 => a.1, b.0 => b.1, c.0 => c.1]
}

/// In gaps from none to some spans of one of the limits, so that buckets refill in part and in
/// full and windows roll over, whatever the limits are.
pub(crate) fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let gap = gap(3, [(3, 14), (2, 16), (1, 18)]);
    let cost = prop_oneof![4 => 0..1_u64 << 14, 2 => 0..=1_u64 << 16, 1 => Just(0)];
    let pick = (any::<usize>(), cost).prop_map(|(which, cost)| Pick { which, cost });
    let picks = prop::collection::vec(pick, 1..5);
    let round = (any::<usize>(), gap, picks);
    prop::collection::vec(round.prop_map(|(pace, gap, picks)| Round { pace, gap, picks }), 1..40)
}

/// In which time a spent limit recovers, or its window passes.
pub(crate) fn span(policy: &Policy) -> u64 {
    let (count, period) = pace_of(policy);
    match policy {
        Policy::TokenBucket(_) | Policy::LeakyBucket(_) => {
            let all = u128::from(policy.quota()) * u128::from(period);
            all.div_ceil(u128::from(count)) as u64
        }
        Policy::RefillBucket(_) => policy.quota().div_ceil(count) * period,
        _ => period,
    }
}

/// Steps with their instants, each of them `after` the one before, for as long as there is time.
pub(crate) fn timed<S>(
    steps: impl IntoIterator<Item = S>,
    start: Micros,
    after: impl Fn(&S, Micros) -> Micros,
) -> impl Iterator<Item = (Micros, S)> {
    let mut now = start;
    let placed = steps.into_iter().map(move |step| {
        now = after(&step, now);
        (now, step)
    });
    placed.take_while(|(now, _)| *now <= LATEST)
}

/// Shares are counted in 2^-16.
pub(crate) fn share(share: u64, of: u64) -> u64 {
    ((u128::from(share) * u128::from(of)) >> 16) as u64
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![
        3 => (0..1_u64 << 14).prop_map(Gap::Share),
        1 => (0..1_u64 << 18).prop_map(Gap::Share),
        2 => (0..1_000_u64).prop_map(Gap::Micros),
        4 => Just(Gap::Micros(0)),
        4 => (0..=1_u64).prop_map(|early| Gap::Promise { early }),
    ];
    let cost =
        prop_oneof![3 => 0..1_u64 << 13, 2 => 0..=1_u64 << 16, 1 => Just(0), 1 => Just(70_000)];
    (gap, cost).prop_map(|(gap, cost)| Step { gap, cost })
}

pub(crate) fn start() -> impl Strategy<Value = Micros> {
    (1_600_000_000_000_000..1_900_000_000_000_000_u64).prop_map(Micros)
}

/// A number of a random magnitude.
pub(crate) fn magnitude(most: u64) -> impl Strategy<Value = u64> {
    (0..most.ilog2() + 1).prop_flat_map(move |bits| {
        let low = 1_u64 << bits;
        low..=(low * 2 - 1).min(most)
    })
}

pub(crate) fn rate() -> impl Strategy<Value = Rate> {
    (magnitude(MAX_COUNT), magnitude(YEAR_US)).prop_filter_map("out of range", |(count, period)| {
        Rate::new(count, Duration::from_micros(period)).ok()
    })
}

/// Any bucket that refills all the time: a token bucket, or a leaky one.
pub(crate) fn bucket() -> impl Strategy<Value = Policy> {
    (rate(), magnitude(MAX_COUNT), any::<bool>()).prop_filter_map(
        "too slow",
        |(rate, burst, leaky)| {
            let bucket = TokenBucket::new(rate, burst).ok()?;
            Some(if leaky {
                Policy::LeakyBucket(bucket.into())
            } else {
                Policy::TokenBucket(bucket)
            })
        },
    )
}

/// One whose tokens take a whole number of 2^-12 µs: nothing is rounded.
pub(crate) fn even_bucket() -> impl Strategy<Value = Policy> {
    (magnitude(1 << 32), magnitude(100_000), magnitude(MAX_COUNT), any::<bool>()).prop_filter_map(
        "out of range",
        |(token, per, burst, leaky)| {
            let rate = Rate::new(per << 12, Duration::from_micros(token * per)).ok()?;
            let bucket = TokenBucket::new(rate, burst).ok()?;
            Some(if leaky {
                Policy::LeakyBucket(bucket.into())
            } else {
                Policy::TokenBucket(bucket)
            })
        },
    )
}

/// A bucket that refills at whole periods.
pub(crate) fn refill_bucket() -> impl Strategy<Value = Policy> {
    (magnitude(YEAR_US), magnitude(MAX_COUNT), magnitude(MAX_COUNT)).prop_filter_map(
        "out of range",
        |(every, amount, burst)| {
            let every = Duration::from_micros(every);
            RefillBucket::new(every, amount, burst).ok().map(Policy::RefillBucket)
        },
    )
}

pub(crate) fn window() -> impl Strategy<Value = Policy> {
    prop_oneof![
        2 => rate().prop_map(|rate| Policy::FixedWindow(FixedWindow::new(rate))),
        3 => rate().prop_map(|rate| Policy::SlidingWindow(SlidingWindow::new(rate))),
        1 => calendar_window(),
    ]
}

/// Days or months, in time zones on either side of UTC, with changes of clocks at midnight, before
/// it, after it, and with none.
pub(crate) fn calendar_window() -> impl Strategy<Value = Policy> {
    let zones = [
        Tz::UTC,
        Tz::Europe__Berlin,
        Tz::America__New_York,
        Tz::America__Santiago,
        Tz::America__Havana,
        Tz::Asia__Beirut,
        Tz::Asia__Kathmandu,
        Tz::Pacific__Kiritimati,
    ];
    let unit = prop_oneof![Just(Unit::Day), Just(Unit::Month)];
    (magnitude(MAX_COUNT), unit, prop::sample::select(zones.to_vec())).prop_map(
        |(count, unit, tz)| {
            let window = FixedWindow::calendar(count, Calendar::new(unit, tz));
            Policy::FixedWindow(window.expect("a window"))
        },
    )
}

pub(crate) fn log() -> impl Strategy<Value = Policy> {
    (magnitude(sliding_log::MAX_COUNT), magnitude(YEAR_US)).prop_filter_map(
        "out of range",
        |(count, period)| {
            let rate = Rate::new(count, Duration::from_micros(period)).ok()?;
            SlidingLog::new(rate).ok().map(Policy::SlidingLog)
        },
    )
}

/// Any policy that rounds nothing, so that its model is exact.
pub(crate) fn exact() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => even_bucket(), 1 => refill_bucket(), 2 => window(), 1 => log()]
}

/// What is asked of one log, in one ask: of several, Redis tells only what all are told together.
pub(crate) fn once_a_log(asks: Vec<Ask<'_>>) -> Vec<Ask<'_>> {
    let mut merged: Vec<Ask<'_>> = Vec::new();
    for ask in asks {
        let is_log = matches!(ask.policy, Policy::SlidingLog(_));
        match merged.iter_mut().find(|it| is_log && it.key == ask.key) {
            Some(same) => same.cost = same.cost.saturating_add(ask.cost),
            None => merged.push(ask),
        }
    }
    merged
}

/// Any policy by which time alone gives back.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![5 => steady(), 1 => refill_bucket()]
}

/// The same but for refills at whole periods. A first use sets their time, so what comes before
/// what is anything but indifferent to them: see `refill_bucket.rs`.
pub(crate) fn steady() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => bucket(), 2 => window(), 1 => log()]
}

/// The same with room for debts: none, some, or more than the quota.
pub(crate) fn in_debt(
    policy: impl Strategy<Value = Policy>,
) -> impl Strategy<Value = (Policy, u64)> {
    let debt = prop_oneof![1 => Just(0), 3 => 1..1_u64 << 18];
    (policy, debt).prop_filter_map("no such debt", |(policy, part)| {
        let debt = share(part, policy.quota());
        // Not one that is cut off, by a century or by what can be counted.
        let whole = |debt| policy.with_debt(debt).deepest() == policy.quota() + debt;
        (whole(debt) && (debt == 0 || whole(debt + 1))).then(|| (policy.with_debt(debt), debt))
    })
}

/// Logs of counts and periods that meet each other.
pub(crate) fn small_log() -> impl Strategy<Value = Policy> {
    (magnitude(100), magnitude(1 << 24)).prop_filter_map("out of range", |(count, period)| {
        let period = Duration::from_micros(period);
        let rate = Rate::new(count, period).ok()?;
        SlidingLog::new(rate).ok().map(Policy::SlidingLog)
    })
}
