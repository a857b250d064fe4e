//! A charge that is given back, however late, never leaves more than no charge at all.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Report};

use crate::decider::{Ask, Decider, Engine, Manner, on_every_engine};
use crate::strategies::{LATEST, policy, share, span, start, steady};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// A share of the limit's span in 2^-16.
    pub(crate) gap: u64,
    /// A share of the quota in 2^-16.
    pub(crate) cost: u64,
    /// After how many further steps the charge is given back, if ever.
    pub(crate) given_back: Option<usize>,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        2 => Just(0),
        3 => 0..1_u64 << 12,
        3 => 0..1_u64 << 15,
        1 => 0..1_u64 << 17,
    ];
    let cost = prop_oneof![3 => 0..1_u64 << 14, 1 => 0..=1_u64 << 16];
    let given_back = prop::option::of(0..6_usize);
    let step =
        (gap, cost, given_back).prop_map(|(gap, cost, given_back)| Step { gap, cost, given_back });
    prop::collection::vec(step, 1..30)
}

/// Whether the first has no more to give than the second, now or later.
fn no_more(one: &Report, other: &Report) -> bool {
    one.remaining <= other.remaining && one.full_at >= other.full_at
}

/// In one bucket some charges are given back, in the other they were never made. What else is
/// charged in the first is charged in the second too.
fn a_charge_and_its_return_never_leave_more_than_no_charge<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in steady(), start in start(), steps in steps(),
    )| {
        let (mut decider, mut now) = (engine.fresh(), start);
        let with = |cost| Ask { policy: &policy, key: 0, cost };
        let without = |cost| Ask { policy: &policy, key: 1, cost };
        let mut owed: Vec<(usize, u64, Micros)> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            if now > LATEST {
                break;
            }
            let cost = share(step.cost, policy.quota()).max(1);
            if decider.decide(now, &[with(cost)]).admitted {
                match step.given_back {
                    Some(later) => owed.push((number + later, cost, now)),
                    None => {
                        let passes = decider.decide(now, &[without(cost)]).admitted;
                        prop_assert!(passes, "what passes with less passes with more");
                    }
                }
            }
            for (_, cost, charged_at) in owed.extract_if(.., |(due, ..)| *due == number) {
                decider.give_back(now, &with(cost), charged_at);
            }
            let seen = decider.decide_as(now, &[with(0), without(0)].map(peek));
            prop_assert!(no_more(&seen.answers[0].report, &seen.answers[1].report));
        }
    });
}

fn peek(ask: Ask<'_>) -> (Ask<'_>, Manner) {
    (ask, Manner { spends: false, ..Manner::default() })
}

fn a_charge_that_is_given_back_at_once_was_never_made<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in policy(), start in start(), before in 0..=1_u64 << 16, cost in 0..=1_u64 << 16,
    )| {
        let mut decider = engine.fresh();
        let ask = |cost| Ask { policy: &policy, key: 0, cost };
        decider.owe(start, &ask(share(before, policy.quota())));
        let before = decider.ask(start, &policy, 0);
        let cost = share(cost, policy.quota()).max(1);
        if decider.decide(start, &[ask(cost)]).admitted {
            decider.give_back(start, &ask(cost), start);
            let after = decider.ask(start, &policy, 0);
            if let Policy::RefillBucket(_) = policy {
                // It may have been the first, by which refills are timed.
                prop_assert!(no_more(&after.report, &before.report));
                prop_assert_eq!(after.report.remaining, before.report.remaining);
            } else {
                prop_assert_eq!(after, before);
            }
        }
    });
}

on_every_engine! {
    a_charge_and_its_return_never_leave_more_than_no_charge
    a_charge_that_is_given_back_at_once_was_never_made
}
