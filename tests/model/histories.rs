//! Random histories: every verdict, every promised instant and every report against the model.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Retry};

use crate::decider::{Ask, Decider, Engine, on_every_engine};
use crate::reference::Model;
use crate::strategies::{LATEST, Step, even_bucket, policy, rounds, start, steps, window};

fn agrees(
    decider: &mut impl Decider,
    policy: &Policy,
    start: Micros,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut model = Model::new(policy);
    let (mut now, mut promised) = (start, None);
    for step in steps {
        let cost;
        (now, cost) = step.place(policy, now, promised);
        if now > LATEST {
            break;
        }
        let refused = model.refusal(now, cost);
        if refused.is_none() {
            model.charge(now, cost);
        }
        let answer = decider.ask(now, policy, cost);
        prop_assert_eq!(answer.refused, refused);
        prop_assert_eq!(answer.report, model.report(now));
        promised = match refused {
            Some(Retry::At(at)) => Some(at),
            _ => None,
        };
    }
    Ok(())
}

fn token_buckets_that_need_no_rounding_agree_with_the_model<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in even_bucket(), start in start(), steps in steps(),
    )| {
        agrees(&mut engine.fresh(), &policy, start, &steps)?;
    });
}

fn windows_agree_with_the_model<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in window(), start in start(), steps in steps(),
    )| {
        agrees(&mut engine.fresh(), &policy, start, &steps)?;
    });
}

fn what_is_refused_passes_at_the_promised_instant_and_not_before<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policy in policy(), start in start(), steps in steps(),
    )| {
        let mut decider = engine.fresh();
        let (mut now, mut promised) = (start, None);
        for step in steps {
            let cost;
            (now, cost) = step.place(&policy, now, promised);
            if now > LATEST {
                break;
            }
            promised = None;
            match decider.ask(now, &policy, cost).refused {
                None => {}
                Some(Retry::Never) => prop_assert!(cost > policy.quota()),
                Some(Retry::At(at)) => {
                    prop_assert!(at > now);
                    now = Micros(at.0 - 1);
                    prop_assert_eq!(decider.ask(now, &policy, cost).refused, Some(Retry::At(at)));
                    now = at;
                    prop_assert_eq!(decider.ask(now, &policy, cost).refused, None);
                    promised = Some(at);
                }
            }
        }
    });
}

/// A decision over several buckets is the same as asking each model and charging all or none.
fn several_checks_are_charged_together_or_not_at_all<E: Engine>(engine: &E) {
    proptest!(ProptestConfig::with_cases(E::CASES), |(
        policies in prop::collection::vec(prop_oneof![even_bucket(), window()], 2..6),
        start in start(),
        rounds in rounds(),
    )| {
        let mut decider = engine.fresh();
        let mut models: Vec<Model> = policies.iter().map(Model::new).collect();
        let mut now = start;
        for round in rounds {
            now = round.after(&policies, now);
            if now > LATEST {
                break;
            }
            let asks: Vec<Ask<'_>> = round.picks.iter().map(|pick| {
                let (key, policy) = pick.of(&policies);
                Ask { policy, key: key as u64, cost: pick.cost(policy) }
            }).collect();
            let mut sums = vec![0; policies.len()];
            let refused: Vec<Option<Retry>> = asks.iter().map(|ask| {
                sums[ask.key as usize] += ask.cost;
                models[ask.key as usize].refusal(now, sums[ask.key as usize])
            }).collect();
            let admitted = refused.iter().all(Option::is_none);
            if admitted {
                for ask in &asks {
                    models[ask.key as usize].charge(now, ask.cost);
                }
            }
            let outcome = decider.decide(now, &asks);
            prop_assert_eq!(outcome.admitted, admitted);
            for ((ask, answer), refused) in asks.iter().zip(&outcome.answers).zip(refused) {
                prop_assert_eq!(answer.refused, refused);
                prop_assert_eq!(answer.report, models[ask.key as usize].report(now));
            }
        }
    });
}

on_every_engine! {
    token_buckets_that_need_no_rounding_agree_with_the_model
    windows_agree_with_the_model
    what_is_refused_passes_at_the_promised_instant_and_not_before
    several_checks_are_charged_together_or_not_at_all
}
