//! Numbers that follow a caller's trust, on one bucket: two gateways may know different scores of one
//! user, and both change. Under no score more passes than its own numbers promise.

use proptest::prelude::*;
use weir::limit::Policy;
use weir::limit::trust::Score;

use crate::alternating_numbers::{self, Kept, beside_each_other, each_keeps_its_promise};
use crate::decider::{Engine, on_every_engine};
use crate::strategies::{bucket, cases, refill_bucket, share, small_log, start, window};

/// One request at one of two gateways.
#[derive(Debug, Clone, Copy)]
struct Step {
    gateway: usize,
    /// The score that the gateway has heard of before it, if that is another.
    heard: Option<usize>,
    /// A share of what the slowest numbers take to refill, in 2^-16.
    gap: u64,
    /// A share of the quota in 2^-16.
    cost: u64,
    charge_after: bool,
    /// Whether it comes as soon as the last refusal has promised.
    promised: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap =
        prop_oneof![6 => Just(0), 3 => 0..1_u64 << 12, 2 => 0..1_u64 << 15, 1 => 0..1_u64 << 17];
    let cost = prop_oneof![3 => 0..1_u64 << 13, 2 => 0..=1_u64 << 16];
    let heard = prop::option::weighted(0.3, 0..Score::COUNT);
    let charge_after = prop::bool::weighted(0.05);
    let step = (0..2_usize, heard, gap, cost, charge_after, prop::bool::weighted(0.2));
    let step = step.prop_map(|(gateway, heard, gap, cost, charge_after, promised)| Step {
        gateway,
        heard,
        gap,
        cost,
        charge_after,
        promised,
    });
    prop::collection::vec(step, 1..150)
}

/// The numbers of a limit for every score, each beside the others, some with room for debts.
fn by_score() -> impl Strategy<Value = Vec<Policy>> {
    let policies =
        prop_oneof![3 => bucket(), 2 => refill_bucket(), 3 => window(), 2 => small_log()];
    let debts = prop_oneof![2 => Just(0), 1 => 0..1_u64 << 17];
    (policies, debts).prop_filter_map("out of range", |(policy, debt)| {
        let policy = policy.with_debt(share(debt, policy.quota()));
        let all = Score::all().map(|score| policy.adaptive(score).ok());
        Some(beside_each_other(&all.collect::<Option<Vec<_>>>()?))
    })
}

fn no_score_admits_more_than_its_numbers_promise<E: Engine>(engine: &E)
where
    for<'a> E::Decider<'a>: Kept,
{
    proptest!(cases(2 * E::CASES), |(
        set in by_score(), scores in [0..Score::COUNT, 0..Score::COUNT], start in start(),
        steps in steps(),
    )| {
        let mut scores = scores;
        let steps: Vec<alternating_numbers::Step> = steps
            .into_iter()
            .map(|Step { gateway, heard, gap, cost, charge_after, promised }| {
                scores[gateway] = heard.unwrap_or(scores[gateway]);
                let which = scores[gateway];
                alternating_numbers::Step { which, pace: 0, gap, cost, charge_after, promised }
            })
            .collect();
        each_keeps_its_promise(&mut engine.fresh(), &set, start, &steps)?;
    });
}

/// More trust gives no less of anything, and full trust no more than twice.
fn numbers_grow_with_the_score<E: Engine>(_engine: &E) {
    proptest!(cases(E::CASES), |(set in by_score())| {
        for pair in set.windows(2) {
            prop_assert!(pair[0].quota() <= pair[1].quota());
        }
        prop_assert!(set[Score::COUNT - 1].quota() <= 2 * set[0].quota());
        prop_assert!(set.iter().all(|it| it.quota() >= set[0].quota()));
    });
}

on_every_engine! {
    no_score_admits_more_than_its_numbers_promise
    numbers_grow_with_the_score
}
