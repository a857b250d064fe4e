//! The policies on a plain map: what every store must come to, without a line of any store.
//!
//! Unlike the embedded store it never forgets a bucket that is full again, so it says what becomes
//! of one when the clock steps back to before it was.

use std::collections::HashMap;

use weir::clock::Micros;
use weir::limit::sliding_log::{Log, SlidingLog};
use weir::limit::{Policy, State, Verdict};
use weir::store::BucketId;

use crate::decider::{Answer, Ask, Decider, Manner, Names, Outcome};

pub(crate) struct Plain {
    buckets: HashMap<BucketId, Bucket>,
    names: Names,
}

#[derive(Debug, Clone, Default)]
struct Bucket {
    state: State,
    /// Of a `sliding_log`, whose state says no more than its sum.
    log: Log,
}

impl Bucket {
    /// What it comes to, and whether it had to be drawn in.
    fn settle(&mut self, policy: &Policy, at: Micros) -> (State, bool) {
        let before = self.state;
        let Policy::SlidingLog(it) = policy else {
            self.state = policy.settle(self.state, at);
            return (self.state, self.state != before);
        };
        let drawn = before.until > at && it.settle_log(&mut self.log, before.until, at);
        if drawn {
            self.state = it.sum_up(&self.log, at);
        }
        (it.sum_up(self.live_log(at), at), drawn)
    }

    /// The log, unless it has ended.
    fn live_log(&self, at: Micros) -> &Log {
        static NONE: std::sync::LazyLock<Log> = std::sync::LazyLock::new(Log::default);
        if self.state.until > at { &self.log } else { &NONE }
    }

    fn evaluate(&self, policy: &Policy, at: Micros, cost: u64, late: u64) -> Verdict {
        match policy {
            Policy::SlidingLog(it) => it.evaluate_log(self.live_log(at), at, cost),
            _ => policy.evaluate_late(self.state, at, cost, late),
        }
    }

    fn charge_log(&mut self, policy: &SlidingLog, at: Micros, cost: u64) {
        self.log = self.live_log(at).clone();
        policy.charge_log(&mut self.log, at, cost);
        self.state = policy.sum_up(&self.log, at);
    }
}

impl Plain {
    pub(crate) fn new() -> Self {
        Self { buckets: HashMap::new(), names: Names::new() }
    }

    /// Replaces the state of a bucket that is no log.
    pub(crate) fn adjust(&mut self, policy: &Policy, key: u64, next: impl FnOnce(State) -> State) {
        let bucket = self.bucket(&Ask { policy, key, cost: 0 });
        bucket.state = next(bucket.state);
    }

    fn bucket(&mut self, ask: &Ask<'_>) -> &mut Bucket {
        self.buckets.entry(self.names.check(ask).bucket).or_default()
    }
}

impl Decider for Plain {
    fn decide_as(&mut self, at: Micros, asks: &[(Ask<'_>, Manner)]) -> Outcome {
        let mut sums: HashMap<BucketId, u64> = HashMap::new();
        let mut after = HashMap::new();
        let (mut answers, mut admitted) = (Vec::new(), true);
        for (ask, manner) in asks {
            let name = self.names.check(ask).bucket;
            let bucket = self.buckets.entry(name).or_default();
            bucket.settle(ask.policy, at);
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(ask.cost);
            let refused = match bucket.evaluate(ask.policy, at, *sum, manner.late) {
                Verdict::Admit(state) => {
                    if manner.spends && *sum > 0 {
                        after.insert(name, (state, *ask.policy, *sum));
                    }
                    None
                }
                Verdict::Refuse(retry) => {
                    admitted &= !manner.enforced;
                    after.remove(&name);
                    Some(retry)
                }
            };
            answers.push((name, refused));
        }
        for (name, (state, policy, sum)) in after.into_iter().filter(|_| admitted) {
            let bucket = self.buckets.entry(name).or_default();
            match policy {
                Policy::SlidingLog(it) => bucket.charge_log(&it, at, sum),
                _ => bucket.state = state,
            }
        }
        let mut answer = |((ask, _), (name, refused)): (&(Ask<'_>, Manner), _)| {
            let state = self.buckets.entry(name).or_default().settle(ask.policy, at).0;
            Answer::new(ask.policy, at, state, refused)
        };
        Outcome { admitted, answers: asks.iter().zip(answers).map(&mut answer).collect() }
    }

    fn owe(&mut self, at: Micros, ask: &Ask<'_>) {
        let bucket = self.bucket(ask);
        bucket.settle(ask.policy, at);
        match ask.policy {
            Policy::SlidingLog(it) if ask.cost > 0 => bucket.charge_log(it, at, ask.cost),
            Policy::SlidingLog(_) => {}
            policy => bucket.state = policy.owe(bucket.state, at, ask.cost),
        }
    }

    fn give_back(&mut self, at: Micros, ask: &Ask<'_>, charged_at: Micros) {
        let bucket = self.bucket(ask);
        let Policy::SlidingLog(it) = ask.policy else {
            bucket.state = ask.policy.give_back(bucket.state, at, ask.cost, charged_at);
            return;
        };
        let (state, drawn) = bucket.settle(ask.policy, at);
        if !drawn && state.until > at && charged_at <= at {
            it.give_back_log(&mut bucket.log, at, ask.cost, charged_at);
            bucket.state = it.sum_up(&bucket.log, at);
        }
    }
}
