//! Buckets that are known to be empty: their callers are refused without asking Redis.
//!
//! What Redis said of a bucket when it refused can only have become less since, except by time,
//! so whoever would be refused by that state still is. Time is taken as late as it can be: Redis
//! cannot have looked at its clock before the call was sent. Two things could make such a refusal
//! wrong, a bucket that was reset and a clock that was moved, and for both it is believed for no
//! longer than [`TRUST`]. A changed limit takes effect at once: the state is judged by the policy
//! of the request at hand.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::clock::Micros;
use crate::limit::{Policy, Retry, State, Verdict};
use crate::store::{BucketId, Check};

/// How long the word of Redis is believed.
pub(super) const TRUST: Duration = Duration::from_secs(1);

/// Buckets remembered by each worker. Beyond that callers are refused by Redis, which is as right.
const MOST: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    known: HashMap<BucketId, Refusal>,
}

/// A bucket as Redis saw it, and when that was here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) state: State,
    pub(super) now: Micros,
    pub(super) sent: Instant,
    pub(super) received: Instant,
    /// What was refused and until when, where the state alone does not tell.
    pub(super) promise: Option<Promise>,
}

/// So much, and more, is refused by these numbers until that instant of Redis's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    pub(super) at: Micros,
    pub(super) cost: u64,
    pub(super) policy: Policy,
}

impl Refusal {
    /// The same as it is at an instant: what the clock of Redis shows then at the earliest.
    fn aged(self, state: State, at: Instant) -> Refusal {
        let since = at.saturating_duration_since(self.received);
        let now = Micros(self.now.0 + since.as_micros() as u64);
        Refusal { state, now, ..self }
    }
}

impl Refusals {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn insert(&mut self, bucket: BucketId, refusal: Refusal) {
        if self.known.len() >= MOST && !self.known.contains_key(&bucket) {
            self.known.retain(|_, it| refusal.received.duration_since(it.sent) < TRUST);
            if self.known.len() >= MOST {
                return;
            }
        }
        self.known.insert(bucket, refusal);
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// When the check would pass, and what the clock of Redis shows now at the earliest, if it is
    /// sure to be refused.
    pub(super) fn refused(&mut self, check: &Check<'_>, at: Instant) -> Option<(Retry, Refusal)> {
        let known = *self.known.get(&check.bucket)?;
        let age = at.saturating_duration_since(known.sent);
        if age >= TRUST {
            self.known.remove(&check.bucket);
            return None;
        }
        let latest = Micros(known.now.0 + age.as_micros() as u64);
        let state = check.policy.settle(known.state, latest);
        if let Some(promise) = known.promise {
            // Of a smaller cost, or by other numbers, nothing was said.
            let same = check.cost >= promise.cost && *check.policy == promise.policy;
            if latest >= promise.at {
                self.known.remove(&check.bucket);
            }
            if !same || latest >= promise.at {
                return None;
            }
            return Some((Retry::At(promise.at), known.aged(state, at)));
        }
        match check.policy.evaluate(state, latest, check.cost) {
            Verdict::Refuse(retry) => Some((retry, known.aged(state, at))),
            Verdict::Admit(_) => {
                self.known.remove(&check.bucket);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::limit::token_bucket::TokenBucket;

    const NOW: Micros = Micros(1_700_000_000_000_000);

    fn bucket(burst: u64) -> Policy {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
    }

    /// An empty bucket that refills one token in 100 ms, as it was after `spent` tokens at `NOW`,
    /// told by a call of 4 ms.
    fn known(spent: u64, start: Instant) -> Refusals {
        let Verdict::Admit(state) = bucket(5).evaluate(State::default(), NOW, spent) else {
            panic!("it has {spent} to spend");
        };
        let received = start + Duration::from_millis(4);
        let mut refusals = Refusals::default();
        refusals
            .insert(BucketId(1), Refusal { state, now: NOW, sent: start, received, promise: None });
        refusals
    }

    fn asked(refusals: &mut Refusals, policy: &Policy, at: Instant) -> Option<(Retry, Micros)> {
        let check = Check::new(policy, 0, BucketId(1), 1);
        refusals.refused(&check, at).map(|(retry, refusal)| (retry, refusal.now))
    }

    #[test]
    fn a_caller_is_refused_until_the_promised_instant_at_the_latest() {
        let (start, policy) = (Instant::now(), bucket(5));
        let at = |millis| start + Duration::from_millis(millis);
        let retry = Retry::At(Micros(NOW.0 + 100_000));
        let mut refusals = known(5, start);
        // The clock of Redis is told early, so that nobody is told to come back too soon.
        let told = Micros(NOW.0 + 95_000);
        assert_eq!(asked(&mut refusals, &policy, at(99)), Some((retry, told)));
        assert_eq!(asked(&mut refusals, &policy, at(100)), None);
        assert!(refusals.is_empty());
    }

    #[test]
    fn nothing_is_believed_for_longer_than_its_bound() {
        let (start, slow) = (Instant::now(), {
            let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
            Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"))
        });
        let Verdict::Admit(state) = slow.evaluate(State::default(), NOW, 1) else { panic!() };
        let mut refusals = Refusals::default();
        let refusal = Refusal { state, now: NOW, sent: start, received: start, promise: None };
        refusals.insert(BucketId(1), refusal);
        assert!(asked(&mut refusals, &slow, start + TRUST / 2).is_some());
        assert_eq!(asked(&mut refusals, &slow, start + TRUST), None);
    }

    #[test]
    fn a_raised_limit_takes_effect_at_once() {
        let start = Instant::now();
        let mut refusals = known(5, start);
        assert!(asked(&mut refusals, &bucket(5), start).is_some());
        assert_eq!(asked(&mut refusals, &bucket(6), start), None);
    }

    #[test]
    fn others_are_not_refused() {
        let (start, policy) = (Instant::now(), bucket(5));
        let mut refusals = known(5, start);
        let check = Check::new(&policy, 0, BucketId(2), 1);
        assert!(refusals.refused(&check, start).is_none());
    }
}
