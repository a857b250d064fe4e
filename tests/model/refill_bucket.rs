//! Buckets that refill at whole periods since their first use. The first use decides when refills
//! come, so a bucket that stands for another, or one of several that stand for one, may refill
//! sooner than that one would. But over any time, no more comes back than as many refills as can
//! lie in it.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, State, Verdict};

use crate::decider::{Ask, Decider, Embedded, Engine, on_every_engine};
use crate::refunds::steps;
use crate::strategies::{cases, refill_bucket, rounds, share, span, start, timed};

/// `admitted ≤ burst + amount × refills` between every two charges.
fn holds_everywhere(policy: &Policy, history: &[(Micros, u64)]) -> Result<(), TestCaseError> {
    holds_but_for(policy, 0, history)
}

/// The same with so much more.
fn holds_but_for(
    policy: &Policy,
    more: u64,
    history: &[(Micros, u64)],
) -> Result<(), TestCaseError> {
    let Policy::RefillBucket(it) = policy else { panic!("no refills") };
    let burst = u128::from(it.burst() + more);
    for (first, (from, _)) in history.iter().enumerate() {
        let mut admitted = 0;
        for (at, cost) in &history[first..] {
            admitted += u128::from(*cost);
            let refills = u128::from((at.0 - from.0) / it.every_us() + 1);
            prop_assert!(admitted <= burst + refills * u128::from(it.amount()));
        }
    }
    Ok(())
}

/// What is given back may be spent again, and nothing else.
fn no_interval_admits_more_than_burst_and_refills<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in refill_bucket(), start in start(), steps in steps(),
    )| {
        let mut decider = engine.fresh();
        let ask = |cost| Ask { policy: &policy, key: 0, cost };
        let (mut kept, mut due) = (Vec::new(), Vec::new());
        let steps = timed(steps, start, |it, now| it.after(&policy, now));
        for (number, (now, step)) in steps.enumerate() {
            let cost = share(step.cost, policy.quota()).max(1);
            if decider.decide(now, &[ask(cost)]).admitted {
                match step.given_back {
                    Some(later) => due.push((number + later, cost, now)),
                    None => kept.push((now, cost)),
                }
            }
            for (_, cost, charged_at) in due.extract_if(.., |(at, ..)| *at == number) {
                decider.refund(now, &ask(cost), charged_at);
            }
        }
        holds_everywhere(&policy, &kept)?;
    });
}

on_every_engine! { no_interval_admits_more_than_burst_and_refills }

proptest! {
    /// Nodes that cannot agree, each by its share.
    #[test]
    fn shares_admit_no_more_than_burst_and_refills_together(
        policy in refill_bucket(), nodes in 1..6_u64, start in start(), steps in steps(),
        picks in prop::collection::vec(any::<usize>(), 30),
    ) {
        let most = policy.quota() / nodes;
        prop_assume!(most > 0);
        let mut states = vec![State::default(); nodes as usize];
        let (mut now, mut history) = (start, Vec::new());
        for (step, node) in steps.iter().zip(picks) {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            let cost = share(step.cost, most).max(1);
            let (ours, dearer) = policy.share(nodes, cost);
            let state = &mut states[node % nodes as usize];
            *state = ours.clamp(*state, now);
            if let Verdict::Admit(after) = ours.evaluate(*state, now, dearer) {
                *state = after;
                history.push((now, cost));
            }
        }
        holds_everywhere(&policy, &history)?;
    }

    /// The same where costs are charged after the fact, but for the last cost of each node.
    #[test]
    fn shares_charged_after_the_fact_spend_no_more_than_burst_and_refills_together(
        policy in refill_bucket(), nodes in 1..6_u64, start in start(), steps in steps(),
        most in 1..=1_u64 << 17, picks in prop::collection::vec(any::<usize>(), 30),
    ) {
        prop_assume!(policy.quota() >= nodes);
        let most = share(most, policy.quota()).max(1);
        let policy = policy.with_debt(most);
        let (ours, one) = policy.share(nodes, 1);
        // Debts that can be counted.
        prop_assume!(ours.deepest() == policy.quota() + nodes * most);
        let mut states = vec![State::default(); nodes as usize];
        let (mut now, mut history) = (start, Vec::new());
        for (step, node) in steps.iter().zip(picks) {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            let state = &mut states[node % nodes as usize];
            *state = ours.clamp(*state, now);
            if let Verdict::Admit(_) = ours.evaluate(*state, now, one) {
                let cost = share(step.cost, most).max(1);
                let (ours, dearer) = policy.share_after(nodes, cost);
                *state = ours.charge_after(*state, now, dearer);
                history.push((now, cost));
            }
        }
        holds_but_for(&policy, nodes * (most - 1), &history)?;
    }

    /// Keys that move between buckets of their own and shared ones.
    #[test]
    fn a_full_table_admits_no_more_than_burst_and_refills_to_a_key(
        policy in refill_bucket(), max_keys in 0..=3_usize, start in start(), rounds in rounds(),
    ) {
        const KEYS: [u64; 5] = [0, 1, 2, 3, 4];
        let (mut decider, mut now) = (Embedded::new(max_keys), start);
        let mut histories = KEYS.map(|_| Vec::new());
        for round in rounds {
            now = round.after(&[policy], now);
            for pick in &round.picks {
                let (key, cost) = (*pick.of(&KEYS).1, pick.cost(&policy));
                if decider.decide(now, &[Ask { policy: &policy, key, cost }]).admitted {
                    histories[key as usize].push((now, cost));
                }
            }
        }
        for history in histories {
            holds_everywhere(&policy, &history)?;
        }
    }
}
