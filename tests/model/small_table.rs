//! Random histories of a table with hardly a place: keys move between buckets of their own and
//! shared ones, and none of it is a way to more than a bucket of one's own would give.

use proptest::prelude::*;

use crate::decider::{Ask, Decider, Embedded};
use crate::reference_model::Model;
use crate::strategies::{bucket, log, rounds, start, window};

proptest! {
    #[test]
    fn a_full_table_admits_nothing_that_an_endless_one_would_not(
        // Two limits: they share the table, and each has shared buckets of its own.
        // (Of refills at whole periods: see `refill_bucket.rs`.)
        policies in (prop_oneof![2 => bucket(), 1 => log()], window())
            .prop_map(|(one, other)| [one, other]),
        max_keys in 0..=3_usize,
        start in start(),
        rounds in rounds(),
    ) {
        let mut decider = Embedded::new(max_keys);
        let of_key = [0, 1, 0, 1, 0].map(|which: usize| &policies[which]);
        let mut models = of_key.map(Model::new);
        let mut now = start;
        for round in rounds {
            now = round.after(&policies, now);
            let asks: Vec<Ask<'_>> = round.picks.iter().map(|pick| {
                let (key, policy) = pick.of(&of_key);
                Ask { policy, key: key as u64, cost: pick.cost(policy) }
            }).collect();
            let outcome = decider.decide(now, &asks);
            if outcome.admitted {
                for ask in &asks {
                    let model = &mut models[ask.key as usize];
                    prop_assert_eq!(model.refusal(now, ask.cost), None);
                    model.charge(now, ask.cost);
                }
            }
            for (ask, answer) in asks.iter().zip(&outcome.answers) {
                let most = models[ask.key as usize].report(now).remaining;
                prop_assert!(answer.report.remaining <= most);
            }
            prop_assert!(decider.store.buckets().own <= max_keys);
        }
    }
}
