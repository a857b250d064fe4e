//! What a store is asked, and what came of it.

use super::{BucketId, BucketKeys, KeyRange};
use crate::clock::Micros;
use crate::limit::{OnError, Policy, Retry, State};

/// One bucket to charge with one cost. All checks of a request on the same bucket agree in whether
/// they spend, and in whether they are enforced.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// What all buckets of the limit, or of one of its plans, start from:
    /// [`limit_prefix`](super::BucketHasher::limit_prefix).
    pub limit_prefix: u64,
    pub bucket: BucketId,
    /// The bucket's key in a store that several gateways share; empty where none do.
    pub key: KeyRange,
    pub cost: u64,
    /// How many microseconds ago the cost could have passed: see [`Policy::evaluate_waited`], which
    /// counts one unit's worth of it at the most.
    pub waited: u64,
    /// False: the store only says whether the cost would pass.
    pub spends: bool,
    /// False: the check only watches, and its refusal does not refuse the request.
    pub enforced: bool,
    pub on_error: OnError,
}

impl<'a> Check<'a> {
    /// An enforced check that spends its cost.
    pub fn new(policy: &'a Policy, limit_prefix: u64, bucket: BucketId, cost: u64) -> Self {
        Self {
            policy,
            limit_prefix,
            bucket,
            key: KeyRange::default(),
            cost,
            waited: 0,
            spends: true,
            enforced: true,
            on_error: OnError::default(),
        }
    }
}

/// What came of one [`Check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The bucket after the decision: charged if the whole request was admitted and this check
    /// would have, else as it was.
    pub state: State,
    /// The instant at which it was evaluated, on the clock of the store that keeps the bucket.
    pub now: Micros,
    /// `None`: this check admits.
    pub refused: Option<Retry>,
    /// False if the store could not be asked, and its `on_error` is to admit unchecked.
    pub decided: bool,
    /// The cost was charged to a bucket that its key shares with others: see
    /// [`overflow`](super::memory). Slots are released where they were taken.
    pub shared: bool,
}

impl Default for CheckOutcome {
    /// What a check has before it is decided.
    fn default() -> Self {
        let (state, now) = (State::default(), Micros::default());
        Self { state, now, refused: None, decided: true, shared: false }
    }
}

/// All checks of one request, with the keys that they refer to.
#[derive(Debug, Clone, Copy)]
pub struct CheckSet<'a> {
    pub checks: &'a [Check<'a>],
    pub keys: &'a BucketKeys,
}

impl<'a> CheckSet<'a> {
    /// The key of one of the checks.
    pub fn key(&self, check: &Check<'_>) -> &'a [u8] {
        self.keys.get(check.key)
    }
}

/// A check that outlives its request's first half: a charge that is made when the response is
/// known, or slots that are held until it has ended.
#[derive(Debug, Clone)]
pub struct DeferredCheck {
    policy: Policy,
    limit_prefix: u64,
    bucket: BucketId,
    key: Box<[u8]>,
    pub cost: u64,
    on_error: OnError,
    outcome: CheckOutcome,
}

impl DeferredCheck {
    pub fn new(check: &Check<'_>, outcome: &CheckOutcome, keys: &BucketKeys) -> Self {
        let Check { limit_prefix, bucket, cost, on_error, .. } = *check;
        let key = keys.get(check.key).into();
        let (policy, outcome) = (*check.policy, *outcome);
        DeferredCheck { policy, limit_prefix, bucket, key, cost, on_error, outcome }
    }

    /// The same as a check, without its key.
    pub fn check(&self) -> Check<'_> {
        let DeferredCheck { ref policy, limit_prefix, bucket, cost, on_error, .. } = *self;
        Check { on_error, ..Check::new(policy, limit_prefix, bucket, cost) }
    }

    /// What came of the check when its request was decided.
    pub fn outcome(&self) -> &CheckOutcome {
        &self.outcome
    }

    /// The same under a policy that has changed since.
    pub fn under(self, policy: Policy) -> Self {
        DeferredCheck { policy, ..self }
    }

    /// The bucket's key in a store that several gateways share.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn bucket(&self) -> BucketId {
        self.bucket
    }

    /// What all buckets of the limit, or of one of its plans, start from.
    pub fn limit_prefix(&self) -> u64 {
        self.limit_prefix
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
