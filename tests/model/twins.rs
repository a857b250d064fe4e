//! Rust and Lua on the same random histories: every verdict and every state, bit for bit.
//!
//! Nothing is spared here: limits that need rounding and limits that change, costs of nothing and
//! of more than can ever pass, and a clock that steps back.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::rate::{MAX_COUNT, MAX_PERIOD};
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::redis::adjustment::Op;

use crate::changes::change;
use crate::decider::{Ask, Decider, Embedded, Engine};
use crate::lua::Redis;
use crate::plain::Plain;
use crate::reference::{calendar_of, rate_of};
use crate::strategies::{LATEST, magnitude, policy, share, span, start};

/// Far before any start, and no step back leads further.
const EARLIEST: u64 = 1_000_000_000_000_000;

/// Some time goes by, limits change, and requests are made.
#[derive(Debug, Clone)]
struct Turn {
    /// By which limit's span, and by how much of it in 2^-16.
    pace: usize,
    gap: u64,
    back: bool,
    /// A bit for each limit: which of its two policies holds.
    policies: usize,
    requests: Vec<Vec<Pick>>,
}

#[derive(Debug, Clone, Copy)]
struct Pick {
    which: usize,
    cost: Cost,
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    /// Of the quota, in 2^-16.
    Share(u64),
    Exactly(u64),
}

type Limit = (Policy, Policy);

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    prop::collection::vec(prop_oneof![change(), changed_quota()], 1..4)
}

/// A limit of the same period whose burst or count is another.
fn changed_quota() -> impl Strategy<Value = Limit> {
    (policy(), magnitude(MAX_COUNT)).prop_filter_map("out of range", |(old, quota)| {
        let period = Duration::from_micros(rate_of(&old).period_us());
        let rate = Rate::new(quota, period);
        let new = match &old {
            Policy::TokenBucket(it) => {
                Policy::TokenBucket(TokenBucket::new(it.rate(), quota).ok()?)
            }
            Policy::SlidingWindow(_) => Policy::SlidingWindow(SlidingWindow::new(rate.ok()?)),
            Policy::FixedWindow(_) => Policy::FixedWindow(match calendar_of(&old) {
                Some(calendar) => FixedWindow::calendar(quota, calendar).ok()?,
                None => FixedWindow::new(rate.ok()?),
            }),
        };
        Some((old, new))
    })
}

fn pick() -> impl Strategy<Value = Pick> {
    let cost = prop_oneof![
        4 => (0..1_u64 << 14).prop_map(Cost::Share),
        3 => (0..=1_u64 << 16).prop_map(Cost::Share),
        1 => (0..1_u64 << 17).prop_map(Cost::Share),
        2 => prop_oneof![Just(0), Just(1), Just(u64::MAX)].prop_map(Cost::Exactly),
    ];
    (any::<usize>(), cost).prop_map(|(which, cost)| Pick { which, cost })
}

fn turn() -> impl Strategy<Value = Turn> {
    let gap = prop_oneof![
        3 => Just(0),
        3 => 0..1_u64 << 14,
        2 => 0..1_u64 << 16,
        1 => 0..1_u64 << 18,
    ];
    let policies = prop_oneof![3 => Just(0), 1 => any::<usize>()];
    let requests = prop::collection::vec(prop::collection::vec(pick(), 1..5), 1..5);
    (any::<usize>(), gap, prop::bool::weighted(0.2), policies, requests).prop_map(
        |(pace, gap, back, policies, requests)| Turn { pace, gap, back, policies, requests },
    )
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    prop::collection::vec(turn(), 1..25)
}

impl Turn {
    fn policy<'a>(&self, limits: &'a [Limit], which: usize) -> &'a Policy {
        let (old, new) = &limits[which];
        if self.policies >> which & 1 == 0 { old } else { new }
    }

    fn gap(&self, limits: &[Limit]) -> u64 {
        share(self.gap, span(self.policy(limits, self.pace % limits.len())))
    }

    fn ahead(&self, limits: &[Limit], now: Micros) -> Micros {
        Micros(now.0 + self.gap(limits))
    }

    fn ahead_or_back(&self, limits: &[Limit], now: Micros) -> Micros {
        if self.back {
            Micros(now.0.saturating_sub(self.gap(limits)).max(EARLIEST))
        } else {
            self.ahead(limits, now)
        }
    }

    fn ask<'a>(&self, limits: &'a [Limit], pick: &Pick) -> Ask<'a> {
        let key = pick.which % limits.len();
        let policy = self.policy(limits, key);
        let cost = match pick.cost {
            Cost::Share(part) => share(part, policy.quota()),
            Cost::Exactly(cost) => cost,
        };
        Ask { policy, key: key as u64, cost }
    }

    fn requests<'a>(&self, limits: &'a [Limit]) -> Vec<Vec<Ask<'a>>> {
        let asks = |picks: &Vec<Pick>| picks.iter().map(|pick| self.ask(limits, pick)).collect();
        self.requests.iter().map(asks).collect()
    }
}

#[test]
fn lua_decides_as_rust_does_step_by_step() {
    let redis = Redis::start();
    proptest!(ProptestConfig::with_cases(300), |(
        limits in limits(), start in start(), turns in turns(),
    )| {
        let (mut lua, mut rust, mut now) = (redis.fresh(), Plain::new(), start);
        for turn in turns {
            now = turn.ahead_or_back(&limits, now);
            if now > LATEST {
                break;
            }
            for asks in turn.requests(&limits) {
                prop_assert_eq!(lua.decide(now, &asks), rust.decide(now, &asks));
            }
        }
    });
}

#[test]
fn lua_decides_as_the_embedded_store_does_while_time_goes_on() {
    let redis = Redis::start();
    proptest!(ProptestConfig::with_cases(300), |(
        limits in limits(), start in start(), turns in turns(),
    )| {
        let (mut lua, mut store, mut now) = (redis.fresh(), Embedded::new(100), start);
        for turn in turns {
            now = turn.ahead(&limits, now);
            if now > LATEST {
                break;
            }
            for asks in turn.requests(&limits) {
                prop_assert_eq!(lua.decide(now, &asks), store.decide(now, &asks));
            }
        }
    });
}

#[test]
fn requests_in_one_call_are_decided_as_one_by_one() {
    let redis = Redis::start();
    proptest!(ProptestConfig::with_cases(300), |(
        limits in limits(), start in start(), turns in turns(),
    )| {
        let (mut lua, mut rust, mut now) = (redis.fresh(), Plain::new(), start);
        for turn in turns {
            now = turn.ahead_or_back(&limits, now);
            if now > LATEST {
                break;
            }
            let requests = turn.requests(&limits);
            let together = lua.decide_all(now, &requests);
            for (asks, outcome) in requests.iter().zip(together) {
                prop_assert_eq!(outcome, rust.decide(now, asks));
            }
        }
    });
}

/// More keys and requests than one MGET, one byte or two bytes of a length hold.
#[test]
fn a_very_large_call_is_decided_like_any_other() {
    let redis = Redis::start();
    let (mut lua, mut rust) = (redis.fresh(), Plain::new());
    let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let requests: Vec<Vec<Ask<'_>>> =
        (0..70_000).map(|i| vec![Ask { policy: &policy, key: i % 20_001, cost: 1 }]).collect();
    let now = Micros(1_700_000_000_000_000);
    // The second call reads what the first has written.
    for _ in 0..2 {
        let together = lua.decide_all(now, &requests);
        for (asks, outcome) in requests.iter().zip(together) {
            assert_eq!(outcome, rust.decide(now, asks));
        }
    }
}

/// Products of a count and a period take up to 75 bits. Two that differ by one are the hardest to
/// tell apart, and a double cannot.
#[test]
fn lua_compares_the_largest_products_exactly() {
    let redis = Redis::start();
    let counts = 1_u64 << 29..=MAX_COUNT;
    let periods = 1_u64 << 43..=MAX_PERIOD.as_micros() as u64;
    proptest!(ProptestConfig::with_cases(300), |(
        previous in counts, period in periods, above in any::<bool>(), start in start(),
    )| {
        // previous × span = 1 modulo the period: one above a multiple of it, or one below.
        let Some(inverse) = inverse(previous, period) else { return Ok(()) };
        let span = if above { inverse } else { period - inverse };
        let room = ((u128::from(previous) * u128::from(span) + 1) / u128::from(period)) as u64;
        let rate = Rate::new(MAX_COUNT, Duration::from_micros(period)).expect("a rate");
        let window = SlidingWindow::new(rate);
        let end = start.0.next_multiple_of(period);
        let state = window.state(Micros(end + period), previous, MAX_COUNT - room - 1);

        let ask = Ask { policy: &Policy::SlidingWindow(window), key: 0, cost: 1 };
        let (mut lua, mut rust) = (redis.fresh(), Plain::new());
        lua.put(&ask, &format!(
            "{} {previous} {} {}", state.until.0, MAX_COUNT - room - 1, window.mark(),
        ));
        rust.adjust(ask.policy, ask.key, |_| state);
        let now = Micros(end - span);
        let outcome = lua.decide(now, &[ask]);
        prop_assert_eq!(outcome.admitted, !above);
        prop_assert_eq!(outcome, rust.decide(now, &[ask]));
    });
}

/// What a number must be multiplied by to be one above a multiple of `modulus`, by Euclid.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    let (mut a, mut b) = (i128::from(number), i128::from(modulus));
    let (mut x, mut y) = (1, 0);
    while b != 0 {
        let quotient = a / b;
        (a, b) = (b, a - quotient * b);
        (x, y) = (y, x - quotient * y);
    }
    (a == 1).then(|| x.rem_euclid(i128::from(modulus)) as u64)
}

#[test]
fn lua_gives_back_and_owes_as_rust_does() {
    let redis = Redis::start();
    let turn = (turn(), pick(), any::<bool>(), 0..1_u64 << 17, prop::bool::weighted(0.1));
    proptest!(ProptestConfig::with_cases(400), |(
        limits in limits(), start in start(), turns in prop::collection::vec(turn, 1..25),
    )| {
        let (mut lua, mut rust, mut now) = (redis.fresh(), Plain::new(), start);
        // Instants of charges, to give them back by.
        let mut charges = vec![start];
        for (turn, pick, owe, ago, at_random) in turns {
            now = turn.ahead_or_back(&limits, now);
            if now > LATEST {
                break;
            }
            let ask = turn.ask(&limits, &pick);
            let charged_at = if at_random {
                Micros(now.0 - share(ago, span(ask.policy)).min(now.0))
            } else {
                charges[ago as usize % charges.len()]
            };
            let next = |state| if owe {
                ask.policy.owe(state, now, ask.cost)
            } else {
                ask.policy.give_back(state, now, ask.cost, charged_at)
            };
            rust.adjust(ask.policy, ask.key, next);
            lua.adjust(now, &ask, if owe { Op::Owe } else { Op::GiveBack { charged_at } });
            let peek = [Ask { cost: 0, ..ask }];
            prop_assert_eq!(lua.decide(now, &peek), rust.decide(now, &peek));
            for asks in turn.requests(&limits) {
                prop_assert_eq!(lua.decide(now, &asks), rust.decide(now, &asks));
            }
            charges.push(now);
        }
    });
}
