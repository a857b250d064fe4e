//! Rust and Lua on the same random histories: every verdict and every state, bit for bit.
//!
//! Nothing is spared here: limits that need rounding and limits that change, costs of nothing and
//! of more than can ever pass, debts, checks that are not enforced or spend nothing or have waited,
//! and a clock that steps back.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::rate::{MAX_COUNT, MAX_PERIOD};
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::{Policy, Rate};

use crate::decider::{Ask, CheckMode, Decider, Embedded, Engine};
use crate::lua::Redis;
use crate::map_store::MapStore;
use crate::strategies::{cases, share, span, start, timed};
use crate::twin_steps::{Limit, Pick, TwinStep, limits, pick, step, steps};

/// Has a claim proven for random limits, and steps from a random instant on.
fn on_random_limits<S: Debug>(
    count: u32,
    steps: impl Strategy<Value = Vec<S>>,
    claim: impl Fn(&[Limit], Micros, Vec<S>) -> Result<(), TestCaseError>,
) {
    proptest!(cases(count), |(
        limits in limits(), start in start(), steps in steps,
    )| claim(&limits, start, steps)?);
}

#[test]
fn lua_decides_as_rust_does_step_by_step() {
    let redis = Redis::start();
    on_random_limits(300, steps(), |limits, start, steps| {
        let (mut lua, mut rust) = (redis.fresh(), MapStore::new());
        for (now, step) in timed(steps, start, |it, now| it.ahead_or_back(limits, now)) {
            for asks in step.requests(limits) {
                prop_assert_eq!(lua.decide_as(now, &asks), rust.decide_as(now, &asks));
            }
        }
        Ok(())
    });
}

/// Without waiting: what has waited depends on buckets that are full again, which the store forgets.
#[test]
fn lua_decides_as_the_embedded_store_does_while_time_goes_on() {
    let redis = Redis::start();
    on_random_limits(300, steps(), |limits, start, steps| {
        let (mut lua, mut store) = (redis.fresh(), Embedded::new(100));
        for (now, step) in timed(steps, start, |it, now| it.ahead(limits, now)) {
            for mut asks in step.requests(limits) {
                asks.iter_mut().for_each(|(_, mode)| mode.waited = 0);
                prop_assert_eq!(lua.decide_as(now, &asks), store.decide_as(now, &asks));
            }
        }
        Ok(())
    });
}

#[test]
fn requests_in_one_call_are_decided_as_one_by_one() {
    let redis = Redis::start();
    on_random_limits(300, steps(), |limits, start, steps| {
        let (mut lua, mut rust) = (redis.fresh(), MapStore::new());
        for (now, step) in timed(steps, start, |it, now| it.ahead_or_back(limits, now)) {
            let requests = step.requests(limits);
            let together = lua.decide_all(now, &requests);
            for (asks, outcome) in requests.iter().zip(together) {
                prop_assert_eq!(outcome, rust.decide_as(now, asks));
            }
        }
        Ok(())
    });
}

/// More keys and requests than one MGET, one byte or two bytes of a length hold.
#[test]
fn a_very_large_call_is_decided_like_any_other() {
    let redis = Redis::start();
    let (mut lua, mut rust) = (redis.fresh(), MapStore::new());
    let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let ask = |i: u64| (Ask { policy: &policy, key: i % 20_001, cost: 1 }, CheckMode::default());
    let requests: Vec<Vec<_>> = (0..70_000).map(|i| vec![ask(i)]).collect();
    let now = Micros(1_700_000_000_000_000);
    // The second call reads what the first has written.
    for _ in 0..2 {
        let together = lua.decide_all(now, &requests);
        for (asks, outcome) in requests.iter().zip(together) {
            assert_eq!(outcome, rust.decide_as(now, asks));
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
    proptest!(cases(300), |(
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
        let (mut lua, mut rust) = (redis.fresh(), MapStore::new());
        lua.put(&ask, &format!(
            "{} {previous} {} {}", state.ends_at.0, MAX_COUNT - room - 1, window.mark(),
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

/// What becomes of a bucket before the requests of a step.
#[derive(Debug, Clone, Copy)]
struct Correction {
    pick: Pick,
    charge_after: bool,
    /// When it was charged: a share of the limit's span in 2^-16, or the number of a step.
    ago: u64,
    at_random: bool,
}

fn corrected_steps() -> impl Strategy<Value = Vec<(TwinStep, Correction)>> {
    let correction = (pick(), any::<bool>(), 0..1_u64 << 17, prop::bool::weighted(0.1)).prop_map(
        |(pick, charge_after, ago, at_random)| Correction { pick, charge_after, ago, at_random },
    );
    prop::collection::vec((step(), correction), 1..25)
}

fn correct_alike(
    one: &mut impl Decider,
    other: &mut impl Decider,
    limits: &[Limit],
    steps: impl Iterator<Item = (Micros, (TwinStep, Correction))>,
) -> Result<(), TestCaseError> {
    // Instants of charges, to refund them by.
    let mut charges = Vec::new();
    for (now, (step, Correction { pick, charge_after, ago, at_random })) in steps {
        charges.push(now);
        let ask = step.ask(limits, &pick);
        let charged_at = if at_random {
            Micros(now.0 - share(ago, span(ask.policy)).min(now.0))
        } else {
            charges[ago as usize % charges.len()]
        };
        if charge_after {
            one.charge_after(now, &ask);
            other.charge_after(now, &ask);
        } else {
            one.refund(now, &ask, charged_at);
            other.refund(now, &ask, charged_at);
        }
        let peek = [Ask { cost: 0, ..ask }];
        prop_assert_eq!(one.decide(now, &peek), other.decide(now, &peek));
        for mut asks in step.requests(limits) {
            asks.iter_mut().for_each(|(_, mode)| mode.waited = 0);
            prop_assert_eq!(one.decide_as(now, &asks), other.decide_as(now, &asks));
        }
    }
    Ok(())
}

#[test]
fn lua_refunds_and_charges_after_as_rust_does() {
    let redis = Redis::start();
    on_random_limits(400, corrected_steps(), |limits, start, steps| {
        let steps = timed(steps, start, |(it, _), now| it.ahead_or_back(limits, now));
        correct_alike(&mut redis.fresh(), &mut MapStore::new(), limits, steps)
    });
}

#[test]
fn lua_refunds_and_charges_after_as_the_embedded_store_does_while_time_goes_on() {
    let redis = Redis::start();
    on_random_limits(300, corrected_steps(), |limits, start, steps| {
        let steps = timed(steps, start, |(it, _), now| it.ahead(limits, now));
        correct_alike(&mut redis.fresh(), &mut Embedded::new(100), limits, steps)
    });
}
