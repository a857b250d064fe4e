//! The policies on a plain map: what every store must decide, without a line of any store.
//!
//! Unlike the embedded store it never forgets a bucket that is full again, so it says what becomes
//! of one when the clock steps back to before it was.

use std::collections::HashMap;

use weir::clock::Micros;
use weir::limit::sliding_log::{Log, SlidingLog};
use weir::limit::{Policy, State, Verdict};
use weir::store::{BucketId, Choice};

use crate::decider::{Answer, Ask, CheckMode, Decider, Names, Outcome};

pub(crate) struct MapStore {
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
    /// What it comes to, and whether clamping changed it.
    fn clamp(&mut self, policy: &Policy, at: Micros) -> (State, bool) {
        let before = self.state;
        let Policy::SlidingLog(it) = policy else {
            self.state = policy.clamp(self.state, at);
            return (self.state, self.state != before);
        };
        let changed = before.ends_at > at && it.clamp_log(&mut self.log, before.ends_at, at);
        if changed {
            self.state = it.sum_up(&self.log, at);
        }
        (it.sum_up(self.live_log(at), at), changed)
    }

    /// The log, unless it has ended.
    fn live_log(&self, at: Micros) -> &Log {
        static NONE: std::sync::LazyLock<Log> = std::sync::LazyLock::new(Log::default);
        if self.state.ends_at > at { &self.log } else { &NONE }
    }

    fn evaluate(&self, policy: &Policy, at: Micros, cost: u64, waited: u64) -> Verdict {
        match policy {
            Policy::SlidingLog(it) => it.evaluate_log(self.live_log(at), at, cost),
            _ => policy.evaluate_waited(self.state, at, cost, waited),
        }
    }

    fn charge_log(&mut self, policy: &SlidingLog, at: Micros, cost: u64) {
        self.log = self.live_log(at).clone();
        policy.charge_log(&mut self.log, at, cost);
        self.state = policy.sum_up(&self.log, at);
    }
}

impl MapStore {
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

impl Decider for MapStore {
    fn decide_as(&mut self, at: Micros, asks: &[(Ask<'_>, CheckMode)]) -> Outcome {
        let mut sums: HashMap<BucketId, u64> = HashMap::new();
        let mut after = HashMap::new();
        let (mut answers, mut admitted) = (Vec::new(), true);
        let mut previous = None;
        for (ask, mode) in asks {
            let name = self.names.check(ask).bucket;
            let bucket = self.buckets.entry(name).or_default();
            bucket.clamp(ask.policy, at);
            if mode.choice == Choice::Second && previous.is_none() {
                answers.push((name, None, true));
                continue;
            }
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(ask.cost);
            let refused = match bucket.evaluate(ask.policy, at, *sum, mode.waited) {
                Verdict::Admit(state) => {
                    if mode.spends && *sum > 0 {
                        after.insert(name, (state, *ask.policy, *sum));
                    }
                    None
                }
                Verdict::Refuse(retry) => {
                    admitted &= !mode.enforced || mode.choice == Choice::First;
                    after.remove(&name);
                    Some(match (mode.choice, previous) {
                        (Choice::Second, Some(first)) => retry.min(first),
                        _ => retry,
                    })
                }
            };
            previous = refused;
            answers.push((name, refused, false));
        }
        // Those of a limit that only watches stand or fall together.
        let bound = |mode: &CheckMode| mode.together && !mode.enforced;
        let bound_refuses = asks.iter().zip(&answers).any(|((_, mode), (_, refused, _))| {
            bound(mode) && refused.is_some() && mode.choice != Choice::First
        });
        for ((_, mode), (name, ..)) in asks.iter().zip(&answers) {
            if bound_refuses && bound(mode) {
                after.remove(name);
            }
        }
        for (name, (state, policy, sum)) in after.into_iter().filter(|_| admitted) {
            let bucket = self.buckets.entry(name).or_default();
            match policy {
                Policy::SlidingLog(it) => bucket.charge_log(&it, at, sum),
                _ => bucket.state = state,
            }
        }
        let mut answer = |((ask, mode), (name, refused, skipped)): (&(Ask<'_>, CheckMode), _)| {
            let state = self.buckets.entry(name).or_default().clamp(ask.policy, at).0;
            let withheld = bound_refuses && bound(mode);
            Answer { skipped, withheld, ..Answer::new(ask.policy, at, state, refused) }
        };
        Outcome { admitted, answers: asks.iter().zip(answers).map(&mut answer).collect() }
    }

    fn charge_after(&mut self, at: Micros, ask: &Ask<'_>) {
        let bucket = self.bucket(ask);
        bucket.clamp(ask.policy, at);
        match ask.policy {
            Policy::SlidingLog(it) if ask.cost > 0 => bucket.charge_log(it, at, ask.cost),
            Policy::SlidingLog(_) => {}
            policy => bucket.state = policy.charge_after(bucket.state, at, ask.cost),
        }
    }

    fn refund(&mut self, at: Micros, ask: &Ask<'_>, charged_at: Micros) {
        let bucket = self.bucket(ask);
        let Policy::SlidingLog(it) = ask.policy else {
            bucket.state = ask.policy.refund(bucket.state, at, ask.cost, charged_at);
            return;
        };
        let (state, changed) = bucket.clamp(ask.policy, at);
        if !changed && state.ends_at > at && charged_at <= at {
            it.refund_log(&mut bucket.log, at, ask.cost, charged_at);
            bucket.state = it.sum_up(&bucket.log, at);
        }
    }
}
