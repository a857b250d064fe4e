//! When requests leave a leaky bucket: in the order in which they came, and no faster than its
//! rate.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Retry};

use crate::decider::{Decider, Engine, on_every_engine};
use crate::reference::{Model, rate_of};
use crate::strategies::{LATEST, Step, bucket, even_bucket, start, steps};

fn leaky(bucket: impl Strategy<Value = Policy>) -> impl Strategy<Value = Policy> {
    bucket.prop_map(|policy| match policy {
        Policy::TokenBucket(it) => Policy::LeakyBucket(it),
        other => other,
    })
}

/// What was admitted when, at which cost, and when it left.
fn departures(
    decider: &mut impl Decider,
    policy: &Policy,
    start: Micros,
    steps: &[Step],
) -> Vec<(Micros, u64, Micros)> {
    let (mut now, mut promised, mut departures) = (start, None, Vec::new());
    for step in steps {
        let cost;
        (now, cost) = step.place(policy, now, promised);
        if now > LATEST {
            break;
        }
        let answer = decider.ask(now, policy, cost);
        promised = match answer.refused {
            Some(Retry::At(at)) => Some(at),
            Some(Retry::Never) => None,
            None => {
                let wait = policy.turn(answer.state, now, cost).as_micros() as u64;
                departures.push((now, cost, Micros(now.0 + wait)));
                None
            }
        };
    }
    departures
}

fn requests_leave_when_all_before_them_have<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in leaky(even_bucket()), start in start(), steps in steps(),
    )| {
        let mut model = Model::new(&policy);
        for (now, cost, left) in departures(&mut engine.fresh(), &policy, start, &steps) {
            prop_assert_eq!(left, model.leaves(now));
            model.charge(now, cost);
        }
    });
}

/// Whole microseconds are rounded up, so two instants may be one closer than they would be.
fn requests_leave_in_order_and_no_faster_than_the_rate<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in leaky(bucket()), start in start(), steps in steps(),
    )| {
        let departures = departures(&mut engine.fresh(), &policy, start, &steps);
        let (count, period) = (rate_of(&policy).count(), rate_of(&policy).period_us());
        for pair in departures.windows(2) {
            let [(_, cost, left), (came, _, next)] = *pair else { panic!("no pair") };
            prop_assert!(next >= left && next >= came);
            let apart = u128::from(next.0 - left.0 + 1) * u128::from(count);
            prop_assert!(apart >= u128::from(cost) * u128::from(period));
        }
        // Whoever is let in leaves before an empty bucket would be full.
        let empty = u128::from(policy.quota()) * u128::from(period);
        for (came, cost, left) in departures {
            let waited = u128::from((left.0 - came.0).saturating_sub(1)) * u128::from(count);
            let own = u128::from(cost) * u128::from(period);
            prop_assert!(waited * 999_999 <= (empty - own) * 1_000_000);
        }
    });
}

on_every_engine! {
    requests_leave_when_all_before_them_have
    requests_leave_in_order_and_no_faster_than_the_rate
}
