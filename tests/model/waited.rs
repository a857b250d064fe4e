//! Requests that are decided later than they were due: they lose nothing by it, as long as that is
//! no more than one request's worth, and nobody gains more than that.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Ask, CheckMode, Decider, Engine, on_every_engine};
use crate::reference_model::rate_of;
use crate::strategies::{LATEST, bucket, cases, share, start, steps};

fn ask(
    decider: &mut impl Decider,
    policy: &Policy,
    now: Micros,
    waited: u64,
    cost: u64,
) -> Option<Retry> {
    let mode = CheckMode { waited, ..CheckMode::default() };
    decider.decide_as(now, &[(Ask { policy, key: 0, cost }, mode)]).answers[0].refused
}

/// A bucket of one token, for which its caller waits as long as told and then a little: at most as
/// long as one more token takes, however late it says it may be.
fn a_request_that_always_wakes_late_still_gets_the_full_rate<E: Engine>(engine: &E) {
    let lateness = prop::collection::vec(0..1_u64 << 16, E::CASES as usize);
    proptest!(cases(E::CASES / 4), |(
        count in 1..10_000_u64, start in start(), lateness in lateness, most in 1..=1_u64 << 16,
        said in prop_oneof![Just(1), 2..20_u64],
    )| {
        let rate = Rate::new(count, Duration::from_secs(10)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"));
        let most = share(most, rate.period_us() / count).max(1);
        let (mut decider, mut admitted) = (engine.fresh(), 0_u64);
        let (mut now, mut waited) = (start, 0);
        for part in &lateness {
            // Whatever has become due since it was asked for last.
            let at = loop {
                match ask(&mut decider, &policy, now, waited, 1) {
                    None => admitted += 1,
                    Some(Retry::At(at)) => break at,
                    Some(Retry::Never) => return Err(TestCaseError::fail("never")),
                }
            };
            (now, waited) = (Micros(at.0 + share(*part, most)), said * most);
        }
        // All but the last came in time for the next. Each instant is rounded up to a microsecond,
        // which a late caller gets back.
        let due = u128::from(now.0 - start.0 - most) * u128::from(count);
        let due = due / u128::from(rate.period_us());
        prop_assert!(u128::from(admitted) + 1 >= due, "{} of {}", admitted, due);
    });
}

/// What passed, and when.
type Passed = Vec<(Micros, u64)>;

/// The promise to those who wait: no interval holds more than the burst, what refills in it, and
/// one on top. Times are in whole periods of the rate, so that nothing is rounded.
fn keeps_the_promise(policy: &Policy, passed: &Passed) -> Result<(), TestCaseError> {
    let (count, period) = (rate_of(policy).count(), rate_of(policy).period_us());
    for (first, (from, _)) in passed.iter().enumerate() {
        let mut admitted = 0;
        for (at, cost) in &passed[first..] {
            admitted += u128::from(*cost) * u128::from(period);
            let refilled = u128::from(at.0 - from.0) * u128::from(count);
            let promised = u128::from(policy.quota() + 1) * u128::from(period) + refilled;
            prop_assert!(admitted <= promised, "{} of {} units", admitted, promised);
        }
    }
    Ok(())
}

/// Between every two charges, however long each has waited.
fn waiting_gains_at_most_one_request_beyond_the_promise<E: Engine>(engine: &E) {
    let lateness = prop_oneof![1 => Just(0), 2 => 0..1_u64 << 10, 1 => 0..1_u64 << 17];
    let lateness = prop::collection::vec(lateness, 60);
    proptest!(cases(E::CASES), |(
        policy in bucket(), start in start(), steps in steps(), lateness in lateness,
    )| {
        let mut decider = engine.fresh();
        let (mut now, mut promised, mut passed) = (start, None, Passed::new());
        for (step, part) in steps.iter().zip(lateness) {
            let cost;
            (now, cost) = step.place(&policy, now, promised);
            if now > LATEST {
                break;
            }
            let waited = share(part, rate_of(&policy).period_us());
            promised = match ask(&mut decider, &policy, now, waited, cost) {
                Some(Retry::At(at)) => Some(at),
                Some(Retry::Never) => None,
                None => {
                    passed.push((now, cost));
                    None
                }
            };
        }
        keeps_the_promise(&policy, &passed)?;
    });
}

/// A queue that is never empty, and whose process stalls now and then: for a part of the time that a
/// token takes, or for many times as long.
fn a_stalled_queue_passes_no_more_than_the_promise<E: Engine>(engine: &E) {
    let stall = prop_oneof![
        6 => 0..1_u64 << 8,
        2 => 0..1_u64 << 16,
        1 => 0..1_u64 << 23,
    ];
    let stalls = prop::collection::vec(stall, 40);
    proptest!(cases(E::CASES / 2), |(
        count in 1..10_000_u64, burst in 1..20_u64, start in start(), stalls in stalls,
        costs in prop::collection::vec(1..20_u64, 40),
    )| {
        let rate = Rate::new(count, Duration::from_secs(10)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"));
        let token = rate.period_us() / count;
        let (mut decider, mut passed) = (engine.fresh(), Passed::new());
        let mut now = start;
        for (stall, cost) in stalls.iter().zip(costs) {
            let cost = cost.min(burst);
            let waited = now.0 - start.0;
            let at = loop {
                match ask(&mut decider, &policy, now, waited, cost) {
                    None => passed.push((now, cost)),
                    Some(Retry::At(at)) => break at,
                    Some(Retry::Never) => return Err(TestCaseError::fail("never")),
                }
            };
            now = Micros(at.0 + share(*stall, token));
        }
        keeps_the_promise(&policy, &passed)?;
    });
}

/// However many are decided at one instant, and however long all have waited.
fn the_same_waiting_time_counts_once<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        count in 1..1_000_u64, burst in 1..5_u64, start in start(), waited in 0..10_000_000_u64,
    )| {
        let rate = Rate::new(count, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"));
        let mut decider = engine.fresh();
        let asks = 0..2 * burst + 5;
        let passed = asks.filter(|_| ask(&mut decider, &policy, start, waited, 1).is_none());
        // A full bucket, and what the grace does not charge for.
        prop_assert!(passed.count() as u64 <= burst + 1);
    });
}

on_every_engine! {
    a_request_that_always_wakes_late_still_gets_the_full_rate
    waiting_gains_at_most_one_request_beyond_the_promise
    a_stalled_queue_passes_no_more_than_the_promise
    the_same_waiting_time_counts_once
}
