//! The policies on a plain map: what every store must come to, without a line of any store.
//!
//! Unlike the embedded store it never forgets a bucket that is full again, so it says what becomes
//! of one when the clock steps back to before it was.

use std::collections::HashMap;

use weir::clock::Micros;
use weir::limit::{Policy, State, Verdict};
use weir::store::BucketId;

use crate::decider::{Answer, Ask, Decider, Names, Outcome};

pub(crate) struct Plain {
    states: HashMap<BucketId, State>,
    names: Names,
}

impl Plain {
    pub(crate) fn new() -> Self {
        Self { states: HashMap::new(), names: Names::new() }
    }

    /// Replaces the state of a bucket.
    pub(crate) fn adjust(&mut self, policy: &Policy, key: u64, next: impl FnOnce(State) -> State) {
        let bucket = self.names.check(&Ask { policy, key, cost: 0 }).bucket;
        let state = self.states.entry(bucket).or_default();
        *state = next(*state);
    }
}

impl Decider for Plain {
    fn decide(&mut self, at: Micros, asks: &[Ask<'_>]) -> Outcome {
        let mut costs: HashMap<BucketId, u64> = HashMap::new();
        let mut after = HashMap::new();
        let mut answers = Vec::new();
        for ask in asks {
            let bucket = self.names.check(ask).bucket;
            let state = self.states.entry(bucket).or_default();
            *state = ask.policy.settle(*state, at);
            let cost = costs.entry(bucket).or_default();
            *cost = cost.saturating_add(ask.cost);
            let refused = match ask.policy.evaluate(*state, at, *cost) {
                Verdict::Admit(state) => {
                    after.insert(bucket, state);
                    None
                }
                Verdict::Refuse(retry) => Some(retry),
            };
            answers.push((bucket, refused));
        }
        let admitted = answers.iter().all(|(_, refused)| refused.is_none());
        if admitted {
            // What ends by now says no more than its absence.
            after.retain(|_, state| state.until > at);
            self.states.extend(after);
        }
        let answer = |(ask, (bucket, refused)): (&Ask<'_>, _)| {
            Answer::new(ask.policy, at, self.states[&bucket], refused)
        };
        Outcome { admitted, answers: asks.iter().zip(answers).map(answer).collect() }
    }
}
