//! A charge that is given back, however late, never leaves more than no charge at all.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, State, Verdict};

use crate::strategies::{policy, share, span, start};

#[derive(Debug, Clone, Copy)]
struct Step {
    /// A share of the limit's span in 2^-16.
    gap: u64,
    /// A share of the quota in 2^-16.
    cost: u64,
    /// After how many further steps the charge is given back, if ever.
    given_back: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
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

/// The state after a charge that passes.
fn charged(policy: &Policy, state: State, now: Micros, cost: u64) -> Option<State> {
    match policy.evaluate(policy.settle(state, now), now, cost) {
        Verdict::Admit(after) => Some(after),
        Verdict::Refuse(_) => None,
    }
}

/// Whether the first state has no more to give than the second, now or later.
fn no_more(policy: &Policy, one: State, other: State, now: Micros) -> bool {
    let (one, other) = (policy.report(one, now), policy.report(other, now));
    one.remaining <= other.remaining && one.full_at >= other.full_at
}

proptest! {
    /// In one world some charges are given back, in the other they were never made. What else is
    /// charged in the first is charged in the second too.
    #[test]
    fn a_charge_and_its_return_never_leave_more_than_no_charge(
        policy in policy(), start in start(), steps in steps(),
    ) {
        let (mut with, mut without, mut now) = (State::default(), State::default(), start);
        let mut owed: Vec<(usize, u64, Micros)> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            let cost = share(step.cost, policy.quota()).max(1);
            if let Some(after) = charged(&policy, with, now, cost) {
                with = after;
                match step.given_back {
                    Some(later) => owed.push((number + later, cost, now)),
                    None => {
                        let after = charged(&policy, without, now, cost);
                        without = after.expect("what passes with less passes with more");
                    }
                }
            }
            for (_, cost, charged_at) in owed.extract_if(.., |(due, ..)| *due == number) {
                with = policy.give_back(with, now, cost, charged_at);
            }
            prop_assert!(no_more(&policy, with, without, now));
        }
    }

    #[test]
    fn a_charge_that_is_given_back_at_once_was_never_made(
        policy in policy(), start in start(), before in 0..=1_u64 << 16, cost in 0..=1_u64 << 16,
    ) {
        let before = policy.owe(State::default(), start, share(before, policy.quota()));
        let cost = share(cost, policy.quota()).max(1);
        if let Some(after) = charged(&policy, before, start, cost) {
            prop_assert_eq!(policy.give_back(after, start, cost, start), before);
        }
    }
}
