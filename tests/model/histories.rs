//! Random histories: every verdict, every promised instant and every report against the model.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Answer, Ask, Decider, Engine, on_every_engine};
use crate::reference_model::Model;
use crate::strategies::{
    LATEST, Step, cases, exact, in_debt, once_a_log, policy, rounds, start, step, steps, timed,
};

/// What a decider answers to the steps of a history, with the instant and the cost of each.
pub(crate) fn answers(
    decider: &mut impl Decider,
    policy: &Policy,
    start: Micros,
    steps: &[Step],
) -> Vec<(Micros, u64, Answer)> {
    let (mut now, mut promised, mut answers) = (start, None, Vec::new());
    for step in steps {
        let cost;
        (now, cost) = step.place(policy, now, promised);
        if now > LATEST {
            break;
        }
        let answer = decider.ask(now, policy, cost);
        promised = match answer.refused {
            Some(Retry::At(at)) => Some(at),
            _ => None,
        };
        answers.push((now, cost, answer));
    }
    answers
}

fn agrees(
    decider: &mut impl Decider,
    policy: &Policy,
    start: Micros,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut model = Model::new(policy);
    for (now, cost, answer) in answers(decider, policy, start, steps) {
        let refused = model.refusal(now, cost);
        if refused.is_none() {
            model.charge(now, cost);
        }
        prop_assert_eq!(answer.refused, refused);
        prop_assert_eq!(answer.report, model.report(now));
    }
    Ok(())
}

fn limits_that_need_no_rounding_agree_with_the_model<E: Engine>(engine: &E) {
    proptest!(cases(2 * E::CASES), |(
        policy in exact(), start in start(), steps in steps(),
    )| {
        agrees(&mut engine.fresh(), &policy, start, &steps)?;
    });
}

fn limits_in_debt_agree_with_the_model<E: Engine>(engine: &E) {
    let steps = prop::collection::vec((step(), any::<bool>(), any::<bool>()), 1..40);
    proptest!(cases(2 * E::CASES), |(
        (policy, debt) in in_debt(exact()), start in start(), steps in steps,
    )| {
        let (mut decider, mut model) = (engine.fresh(), Model::new(&policy));
        let (mut now, mut promised) = (start, None);
        for (step, charge_after, unseen) in steps {
            let cost;
            (now, cost) = step.place(&policy, now, promised);
            if now > LATEST {
                break;
            }
            if charge_after {
                decider.charge_after(now, &Ask { policy: &policy, key: 0, cost });
                model.charge_after(now, cost);
                if unseen {
                    continue;
                }
            }
            // What asks for nothing passes while nothing is owed.
            for cost in [0, cost] {
                let refused = model.refusal(now, cost);
                if refused.is_none() {
                    model.charge(now, cost);
                }
                let answer = decider.ask(now, &policy, cost);
                prop_assert_eq!(answer.refused, refused, "debt up to {}", debt);
                prop_assert_eq!(answer.report, model.report(now));
                promised = match refused {
                    Some(Retry::At(at)) => Some(at),
                    _ => None,
                };
            }
        }
    });
}

fn what_is_refused_passes_at_the_promised_instant_and_not_before<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
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
    proptest!(cases(E::CASES), |(
        policies in prop::collection::vec(exact(), 2..6),
        start in start(),
        rounds in rounds(),
    )| {
        let mut decider = engine.fresh();
        let mut models: Vec<Model> = policies.iter().map(Model::new).collect();
        for (now, round) in timed(rounds, start, |it, now| it.after(&policies, now)) {
            let asks = once_a_log(round.picks.iter().map(|pick| {
                let (key, policy) = pick.of(&policies);
                Ask { policy, key: key as u64, cost: pick.cost(policy) }
            }).collect());
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

fn checks_on_one_log_are_one_check_with_the_sum(engine: &impl Engine) {
    let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
    let policy = &Policy::SlidingLog(SlidingLog::new(rate).expect("a log"));
    let (mut decider, now) = (engine.fresh(), Micros(1_700_000_000_000_000));
    let ask = |cost| Ask { policy, key: 0, cost };
    let outcome = decider.decide(now, &[ask(2), ask(1)]);
    assert!(outcome.admitted);
    assert_eq!(
        outcome.answers.iter().map(|answer| answer.report.remaining).collect::<Vec<_>>(),
        [2, 2]
    );
    let outcome = decider.decide(now, &[ask(2), ask(1)]);
    assert!(!outcome.admitted);
    let at = Micros(now.0 + 60_000_000);
    assert_eq!(outcome.answers[1].refused, Some(Retry::At(at)));
    assert!(decider.decide(at, &[ask(2), ask(3)]).admitted);
}

on_every_engine! {
    checks_on_one_log_are_one_check_with_the_sum
    limits_that_need_no_rounding_agree_with_the_model
    limits_in_debt_agree_with_the_model
    what_is_refused_passes_at_the_promised_instant_and_not_before
    several_checks_are_charged_together_or_not_at_all
}
