//! The promise of the token bucket: over any interval at most `burst + rate × t`, and for a
//! caller who takes all there is hardly less.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Decider, Engine, on_every_engine};
use crate::histories::answers;
use crate::reference_model::{Model, rate_of};
use crate::strategies::{bucket, cases, magnitude, start, steps};

/// `admitted ≤ burst + rate × t` between every two charges, in whole numbers.
pub(crate) fn holds_everywhere(
    history: &[(Micros, u64)],
    rate: Rate,
    burst: u64,
) -> Result<(), TestCaseError> {
    let (count, period) = (u128::from(rate.count()), u128::from(rate.period_us()));
    for first in 0..history.len() {
        let mut admitted = 0;
        for (at, cost) in &history[first..] {
            admitted += u128::from(*cost);
            let refilled = u128::from(at.0 - history[first].0.0) * count;
            prop_assert!(admitted * period <= u128::from(burst) * period + refilled);
        }
    }
    Ok(())
}

fn no_interval_admits_more_than_burst_and_rate<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in bucket(), start in start(), steps in steps(),
    )| {
        let answers = answers(&mut engine.fresh(), &policy, start, &steps).into_iter();
        let admitted = answers.filter(|(.., answer)| answer.refused.is_none());
        let history: Vec<_> = admitted.map(|(now, cost, _)| (now, cost)).collect();
        holds_everywhere(&history, rate_of(&policy), policy.quota())?;
    });
}

/// Where a refusal leaves less than its cost in the exact bucket, nothing was lost; rounding
/// may lose a millionth of what was admitted before.
fn a_refusal_is_never_for_want_of_more_than_rounding_took<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in bucket(), start in start(), steps in steps(),
    )| {
        let mut exact = Model::new(&policy);
        let period = u128::from(rate_of(&policy).period_us());
        let mut admitted = 0;
        for (now, cost, answer) in answers(&mut engine.fresh(), &policy, start, &steps) {
            match answer.refused {
                None => {
                    prop_assert_eq!(exact.refusal(now, cost), None);
                    exact.charge(now, cost);
                    admitted += u128::from(cost);
                }
                Some(Retry::Never) => {}
                Some(Retry::At(_)) => {
                    let lost = exact.left(now).saturating_sub(u128::from(cost) * period);
                    prop_assert!(lost * 1_000_000 <= admitted * period);
                }
            }
        }
    });
}

/// Takes single tokens until refused, then waits as told, again and again.
fn greed_gets_all_but_one_token<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        count in magnitude(1_000_000), burst in 1..50_u64, start in start(), rounds in 1..40_u32,
    )| {
        let rate = Rate::new(count, std::time::Duration::from_secs(60)).expect("a rate");
        let bucket = weir::limit::token_bucket::TokenBucket::new(rate, burst).expect("a bucket");
        let policy = Policy::TokenBucket(bucket);
        let mut decider = engine.fresh();
        let (mut now, mut history) = (start, Vec::new());
        for _ in 0..rounds {
            let retry = loop {
                match decider.ask(now, &policy, 1).refused {
                    None => history.push((now, 1)),
                    Some(retry) => break retry,
                }
            };
            let refilled = u128::from(now.0 - start.0) * u128::from(count);
            let due = u128::from(burst) + refilled / u128::from(rate.period_us());
            prop_assert!(history.len() as u128 + 1 >= due);
            let Retry::At(at) = retry else { panic!("one token never passes") };
            now = at;
        }
        holds_everywhere(&history, rate, burst)?;
    });
}

on_every_engine! {
    no_interval_admits_more_than_burst_and_rate
    a_refusal_is_never_for_want_of_more_than_rounding_took
    greed_gets_all_but_one_token
}
