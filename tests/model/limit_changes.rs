//! A limit that changes under its buckets: the new numbers hold at once, what was used stays used,
//! and a bucket is never emptier than empty.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Retry};

use crate::decider::{Decider, Engine, on_every_engine};
use crate::reference_model::pace_of;
use crate::strategies::{bucket, cases, log, policy, refill_bucket, start, window};

/// Two policies of one algorithm.
pub(crate) fn change() -> impl Strategy<Value = (Policy, Policy)> {
    let alike = |(old, new): &(Policy, Policy)| old.kind() == new.kind();
    prop_oneof![
        2 => (bucket(), bucket()).prop_filter("another algorithm", alike),
        1 => (refill_bucket(), refill_bucket()),
        2 => (window(), window()).prop_filter("another algorithm", alike),
        1 => (log(), log()),
    ]
}

/// What is kept is time, not a count.
fn keeps_time(policy: &Policy) -> bool {
    use Policy::{LeakyBucket, RefillBucket, TokenBucket};
    matches!(policy, TokenBucket(_) | LeakyBucket(_) | RefillBucket(_))
}

fn a_spent_bucket_is_not_fresh_under_new_numbers<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |((old, new) in change(), start in start())| {
        let mut decider = engine.fresh();
        let spent = decider.ask(start, &old, old.quota());
        prop_assert_eq!(spent.refused, None);
        let left = decider.ask(start, &new, 0).report.remaining;
        // A token bucket keeps time: what it owes may be less than one of the new, slower tokens,
        // but it is never full. Windows and logs keep the count.
        prop_assert!(left < new.quota());
        if !keeps_time(&new) {
            prop_assert_eq!(left, new.quota().saturating_sub(old.quota()));
        }
    });
}

fn a_spent_bucket_refills_under_new_numbers_as_an_empty_one_does<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |((old, new) in change(), start in start())| {
        let mut decider = engine.fresh();
        prop_assert_eq!(decider.ask(start, &old, old.quota()).refused, None);
        let all = decider.ask(start, &new, new.quota());
        let Some(Retry::At(at)) = all.refused else {
            return Err(TestCaseError::fail("a fresh bucket"));
        };
        let burst = u128::from(new.quota());
        let (count, period) = pace_of(&new);
        let (count, period) = (u128::from(count), u128::from(period));
        let refill = match &new {
            Policy::TokenBucket(_) | Policy::LeakyBucket(_) => {
                let exact = (burst * period).div_ceil(count);
                exact + exact / 1_000_000 + 1
            }
            Policy::RefillBucket(_) => burst.div_ceil(count) * period,
            Policy::SlidingWindow(_) => 2 * period,
            _ => period,
        };
        prop_assert!(u128::from(at.0 - start.0) <= refill);
        let early = decider.ask(Micros(at.0 - 1), &new, new.quota()).refused;
        prop_assert_eq!(early, Some(Retry::At(at)));
        prop_assert_eq!(decider.ask(at, &new, new.quota()).refused, None);
    });
}

fn a_clock_that_steps_back_neither_fills_nor_locks_out<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in policy(), start in start(), back in 0..4_000_000_000_u64,
    )| {
        let mut decider = engine.fresh();
        prop_assert_eq!(decider.ask(start, &policy, policy.quota()).refused, None);
        let earlier = Micros(start.0 - back);
        let Some(Retry::At(at)) = decider.ask(earlier, &policy, 1).refused else {
            return Err(TestCaseError::fail("a fresh bucket"));
        };
        let wait = u128::from(at.0 - earlier.0);
        prop_assert!(wait <= 2 * u128::from(pace_of(&policy).1));
        prop_assert_eq!(decider.ask(at, &policy, 1).refused, None);
    });
}

fn another_algorithm_starts_afresh(engine: &impl Engine) {
    let rate = weir::limit::Rate::new(5, std::time::Duration::from_secs(60)).expect("a rate");
    let fixed = Policy::FixedWindow(weir::limit::fixed_window::FixedWindow::new(rate));
    let sliding = Policy::SlidingWindow(weir::limit::sliding_window::SlidingWindow::new(rate));
    let mut decider = engine.fresh();
    let now = Micros(1_700_000_000_000_000);
    assert_eq!(decider.ask(now, &fixed, 5).report.remaining, 0);
    assert_eq!(decider.ask(now, &sliding, 0).report.remaining, 5);
}

on_every_engine! {
    a_spent_bucket_is_not_fresh_under_new_numbers
    a_spent_bucket_refills_under_new_numbers_as_an_empty_one_does
    a_clock_that_steps_back_neither_fills_nor_locks_out
    another_algorithm_starts_afresh
}
