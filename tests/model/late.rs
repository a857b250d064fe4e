//! Callers who come later than they were promised: they lose nothing by it, and nobody gains.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Ask, Decider, Engine, Manner, on_every_engine};
use crate::reference::rate_of;
use crate::strategies::{LATEST, bucket, share, start, steps};

fn ask(
    decider: &mut impl Decider,
    policy: &Policy,
    (now, late): (Micros, u64),
    cost: u64,
) -> Option<Retry> {
    let manner = Manner { late, ..Manner::default() };
    decider.decide_as(now, &[(Ask { policy, key: 0, cost }, manner)]).answers[0].refused
}

/// A bucket of one token, for which its caller waits as long as told and then a little: less than
/// it says that it may be late, be that many times what a token takes.
fn who_always_comes_late_still_gets_the_full_rate<E: Engine>(engine: &E) {
    let lateness = prop::collection::vec(0..1_u64 << 16, E::CASES as usize);
    proptest!(ProptestConfig::with_cases(E::CASES / 4), |(
        count in 1..10_000_u64, start in start(), lateness in lateness, most in 1..=1_u64 << 16,
        tokens in prop_oneof![Just(1), 2..20_u64],
    )| {
        let rate = Rate::new(count, Duration::from_secs(10)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"));
        let token = rate.period_us() / count;
        let most = share(most, tokens * token).max(1);
        let (mut decider, mut admitted) = (engine.fresh(), 0_u64);
        let (mut now, mut late) = (start, 0);
        for part in &lateness {
            // Whatever has become due since it was asked for last.
            let at = loop {
                match ask(&mut decider, &policy, (now, late), 1) {
                    None => admitted += 1,
                    Some(Retry::At(at)) => break at,
                    Some(Retry::Never) => return Err(TestCaseError::fail("never")),
                }
            };
            (now, late) = (Micros(at.0 + share(*part, most)), most);
        }
        // All but the last came in time for the next. Each instant is rounded up to a microsecond,
        // which a late caller gets back.
        let due = u128::from(now.0 - start.0 - most) * u128::from(count);
        let due = due / u128::from(rate.period_us());
        prop_assert!(u128::from(admitted) + 1 >= due, "{} of {}", admitted, due);
        let slack = u128::from(most) * u128::from(count) / u128::from(rate.period_us());
        prop_assert!(u128::from(admitted) <= due + slack + 3);
    });
}

/// Between every two charges, from the instant at which the first could have passed.
fn nobody_gets_more_than_burst_and_rate_by_coming_late<E: Engine>(engine: &E) {
    let lateness = prop_oneof![1 => Just(0), 2 => 0..1_u64 << 10, 1 => 0..1_u64 << 17];
    let lateness = prop::collection::vec(lateness, 60);
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in bucket(), start in start(), steps in steps(), lateness in lateness,
    )| {
        let mut decider = engine.fresh();
        let (mut now, mut promised, mut history) = (start, None, Vec::new());
        for (step, part) in steps.iter().zip(lateness) {
            let cost;
            (now, cost) = step.place(&policy, now, promised);
            if now > LATEST {
                break;
            }
            let late = share(part, rate_of(&policy).period_us());
            promised = match ask(&mut decider, &policy, (now, late), cost) {
                Some(Retry::At(at)) => Some(at),
                Some(Retry::Never) => None,
                None => {
                    history.push((now, late, cost));
                    None
                }
            };
        }
        let (count, period) = (rate_of(&policy).count(), rate_of(&policy).period_us());
        for (first, (from, late, _)) in history.iter().enumerate() {
            let mut admitted = 0;
            for (at, _, cost) in &history[first..] {
                admitted += u128::from(*cost) * u128::from(period);
                let refilled = u128::from(at.0 - from.0 + late) * u128::from(count);
                prop_assert!(admitted <= u128::from(policy.quota()) * u128::from(period) + refilled);
            }
        }
    });
}

/// However often it is asked at one instant, and however late all say they are.
fn the_same_lateness_counts_once<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        count in 1..1_000_u64, burst in 1..5_u64, start in start(), late in 0..10_000_000_u64,
    )| {
        let rate = Rate::new(count, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"));
        let mut decider = engine.fresh();
        let asks = 0..2 * burst + 5;
        let passed = asks.filter(|_| ask(&mut decider, &policy, (start, late), 1).is_none());
        // A full bucket, and what a late one is not charged for.
        prop_assert!(passed.count() as u64 <= burst + 1);
    });
}

on_every_engine! {
    who_always_comes_late_still_gets_the_full_rate
    nobody_gets_more_than_burst_and_rate_by_coming_late
    the_same_lateness_counts_once
}
