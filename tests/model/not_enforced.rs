//! Checks that only watch, and checks that spend nothing, among those that count.
//!
//! If every enforced check admits, all are charged: those that only watch if they would admit
//! themselves, those that spend nothing never. Otherwise none is. Several checks of one limit that only
//! watches are charged only if all of them would admit. Each is told what it would have said.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Retry};

use crate::decider::{Ask, CheckMode, Decider, Engine, on_every_engine};
use crate::reference_model::Model;
use crate::strategies::{Round, cases, exact, in_debt, once_a_log, rounds, start, timed};

/// Some rounds, and how the checks of each are meant: three bits for each limit.
fn meant_rounds() -> impl Strategy<Value = Vec<(Round, usize)>> {
    (rounds(), prop::collection::vec(any::<usize>(), 40))
        .prop_map(|(rounds, modes)| rounds.into_iter().zip(modes).collect())
}

fn mode(bits: usize, key: u64) -> CheckMode {
    let bits = bits >> (3 * key) & 7;
    let (spends, enforced, together) = (bits & 1 == 0, bits & 2 == 0, bits & 4 == 0);
    CheckMode { spends, enforced, together, ..CheckMode::default() }
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::collection::vec(in_debt(exact()).prop_map(|(policy, _)| policy), 2..6)
}

fn asks<'a>(policies: &'a [Policy], round: &Round, bits: usize) -> Vec<(Ask<'a>, CheckMode)> {
    let ask = |pick: &crate::strategies::Pick| {
        let (key, policy) = pick.of(policies);
        Ask { policy, key: key as u64, cost: pick.cost(policy) }
    };
    let asks = once_a_log(round.picks.iter().map(ask).collect());
    asks.into_iter().map(|ask| (ask, mode(bits, ask.key))).collect()
}

fn only_enforced_checks_decide_and_only_what_passes_is_spent<E: Engine>(engine: &E) {
    proptest!(cases(2 * E::CASES), |(
        policies in policies(), start in start(), rounds in meant_rounds(),
    )| {
        let mut decider = engine.fresh();
        let mut models: Vec<Model> = policies.iter().map(Model::new).collect();
        let rounds = timed(rounds, start, |(round, _), now| round.after(&policies, now));
        for (now, (round, bits)) in rounds {
            let asks = asks(&policies, &round, bits);
            // All asks of one limit up to one of them are one ask.
            let mut sums = vec![0; policies.len()];
            let refused: Vec<Option<Retry>> = asks.iter().map(|(ask, _)| {
                sums[ask.key as usize] += ask.cost;
                models[ask.key as usize].refusal(now, sums[ask.key as usize])
            }).collect();
            let enforced = asks.iter().zip(&refused).filter(|((_, mode), _)| mode.enforced);
            let admitted = enforced.fold(true, |all, (_, refused)| all && refused.is_none());
            let bound = |mode: &CheckMode| mode.together && !mode.enforced;
            let bound_refuses =
                asks.iter().zip(&refused).any(|((_, mode), it)| bound(mode) && it.is_some());
            for (key, (model, sum)) in models.iter_mut().zip(sums).enumerate() {
                let mode = mode(bits, key as u64);
                let withheld = bound_refuses && bound(&mode);
                if admitted && mode.spends && !withheld && model.refusal(now, sum).is_none() {
                    model.charge(now, sum);
                }
            }
            let outcome = decider.decide_as(now, &asks);
            prop_assert_eq!(outcome.admitted, admitted);
            for (((ask, _), answer), refused) in asks.iter().zip(&outcome.answers).zip(refused) {
                prop_assert_eq!(answer.refused, refused);
                prop_assert_eq!(answer.report, models[ask.key as usize].report(now));
            }
        }
    });
}

/// What a request would get, asked before it is made, is what it gets; and asking changes nothing.
fn a_peek_foretells_and_changes_nothing<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policies in policies(), start in start(), rounds in meant_rounds(),
    )| {
        let mut decider = engine.fresh();
        let rounds = timed(rounds, start, |(round, _), now| round.after(&policies, now));
        for (now, (round, bits)) in rounds {
            let asks = asks(&policies, &round, bits);
            let peeks: Vec<_> = asks
                .iter()
                .map(|(ask, mode)| (*ask, CheckMode { spends: false, ..*mode }))
                .collect();
            let [first, second] = [0, 1].map(|_| decider.decide_as(now, &peeks));
            prop_assert_eq!(&first, &second);
            let outcome = decider.decide_as(now, &asks);
            prop_assert_eq!(outcome.admitted, first.admitted);
            for (seen, foretold) in outcome.answers.iter().zip(&first.answers) {
                prop_assert_eq!(seen.refused, foretold.refused);
                if !outcome.admitted {
                    prop_assert_eq!(seen.state, foretold.state);
                }
            }
        }
    });
}

/// All of them refuse, and nobody is refused.
fn a_request_that_is_only_watched_always_passes(engine: &impl Engine) {
    let rate = weir::limit::Rate::new(1, std::time::Duration::from_secs(60)).expect("a rate");
    let policy = Policy::FixedWindow(weir::limit::fixed_window::FixedWindow::new(rate));
    let (mut decider, now) = (engine.fresh(), Micros(1_700_000_000_000_000));
    let watch = CheckMode { enforced: false, ..CheckMode::default() };
    let ask = |key| (Ask { policy: &policy, key, cost: 1 }, watch);
    for would_refuse in [false, true, true] {
        let outcome = decider.decide_as(now, &[ask(0), ask(1)]);
        assert!(outcome.admitted);
        for answer in outcome.answers {
            assert_eq!(answer.refused.is_some(), would_refuse);
            assert_eq!(answer.report.remaining, 0);
        }
    }
}

on_every_engine! {
    only_enforced_checks_decide_and_only_what_passes_is_spent
    a_peek_foretells_and_changes_nothing
    a_request_that_is_only_watched_always_passes
}
