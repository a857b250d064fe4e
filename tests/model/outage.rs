//! One node before, during and after an outage of Redis: over all of it no more passes than the
//! limit allows.
//!
//! While Redis answers, the node notes every state it hears. While it does not, the node decides
//! alone from the last it knows and writes down what passes. When Redis is back, that is owed
//! before anything else is asked.

use proptest::prelude::*;
use weir::clock::{Clock, Micros};
use weir::limit::{Policy, State, Verdict};
use weir::store::{Check, CheckOutcome, MemoryStore};

use crate::decider::{Ask, Names};
use crate::reference_model::Model;
use crate::strategies::{gap, share, span, start, steady, timed};

const KEYS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Step {
    /// A share of the limit's span in 2^-16.
    gap: u64,
    key: usize,
    /// A share of the quota in 2^-16.
    cost: u64,
    /// Whether Redis goes, or comes back, before it.
    turn: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = gap(5, [(3, 12), (2, 15), (1, 18)]);
    let cost = prop_oneof![4 => 0..1_u64 << 14, 2 => 0..=1_u64 << 16];
    let step = (gap, 0..KEYS, cost, prop::bool::weighted(0.15))
        .prop_map(|(gap, key, cost, turn)| Step { gap, key, cost, turn });
    prop::collection::vec(step, 1..100)
}

/// What is owed of one bucket, and until when it counts.
#[derive(Debug, Clone, Copy, Default)]
struct Debt {
    cost: u64,
    until: Micros,
}

struct Node {
    policy: Policy,
    names: Names,
    clock: Clock,
    local: MemoryStore,
    redis: [State; KEYS],
    debts: [Debt; KEYS],
}

impl Node {
    fn new(policy: Policy) -> Self {
        let clock = Clock::manual(Micros(0));
        let local = MemoryStore::new(100, clock.clone());
        let (redis, debts) = ([State::default(); KEYS], [Debt::default(); KEYS]);
        Self { policy, names: Names::new(), clock, local, redis, debts }
    }

    fn check(&self, key: usize, cost: u64) -> Check<'_> {
        self.names.check(&Ask { policy: &self.policy, key: key as u64, cost })
    }

    /// Redis decides, and the node notes what it hears.
    fn asks(&mut self, now: Micros, key: usize, cost: u64) -> bool {
        let before = self.policy.clamp(self.redis[key], now);
        let verdict = self.policy.evaluate(before, now, cost);
        self.redis[key] = match verdict {
            Verdict::Admit(after) => after,
            Verdict::Refuse(_) => before,
        };
        let bucket = self.check(key, 0).bucket;
        let state = self.redis[key];
        self.local.note(bucket, &self.policy, now, |_| Some(state));
        matches!(verdict, Verdict::Admit(_))
    }

    /// The node decides alone, by the share of the only one.
    fn alone(&mut self, now: Micros, key: usize, cost: u64) -> bool {
        let (policy, cost) = self.policy.share(1, cost);
        let checks = [Check { policy: &policy, ..self.check(key, cost) }];
        let mut outcomes = [CheckOutcome::default()];
        let admitted = self.local.decide_now(&checks, &mut outcomes).admitted;
        let until = outcomes[0].state.ends_at;
        if admitted {
            let Debt { cost: before, until: known } = self.debts[key];
            let before = if known > now { before } else { 0 };
            self.debts[key] = Debt { cost: before + cost, until };
        }
        admitted
    }

    fn pays(&mut self, now: Micros) {
        for (state, debt) in self.redis.iter_mut().zip(&mut self.debts) {
            if debt.until > now {
                *state = self.policy.charge_after(*state, now, debt.cost);
            }
            *debt = Debt::default();
        }
    }
}

proptest! {
    #[test]
    fn over_an_outage_no_more_passes_than_without_one(
        policy in steady(), start in start(), steps in steps(),
    ) {
        let mut node = Node::new(policy);
        let mut models: Vec<Model> = (0..KEYS).map(|_| Model::new(&policy)).collect();
        let mut out = false;
        let after = |step: &Step, last: Micros| Micros(last.0 + share(step.gap, span(&policy)));
        for (now, step) in timed(steps, start, after) {
            node.clock.set(now);
            if step.turn {
                out = !out;
                if !out {
                    node.pays(now);
                }
            }
            let (key, cost) = (step.key, share(step.cost, policy.quota()).max(1));
            let admitted =
                if out { node.alone(now, key, cost) } else { node.asks(now, key, cost) };
            if admitted {
                prop_assert_eq!(models[key].refusal(now, cost), None, "out: {}", out);
                models[key].charge(now, cost);
            }
        }
    }
}
