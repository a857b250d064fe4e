//! What a store is asked, and what came of it.

use super::{BucketId, BucketKey, KeyRange, KeysView};
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
    /// It is one of several checks that one limit makes of the request: if that only watches, all of
    /// them are charged or none is, as if it were enforced. A request has one such limit at most.
    pub together: bool,
    pub choice: Choice,
    pub on_error: OnError,
    /// Whether units of its bucket may be taken in advance. Not where requests are queued: they wait for
    /// instants that only the bucket itself tells.
    pub may_lease: bool,
}

/// Whether a check stands alone, or is one of a pair of which the first that admits is charged.
///
/// The two of a pair stand one behind the other, and agree in cost, `spends`, `enforced` and
/// `on_error`. No other check of the request is on either of their buckets, and in a store that
/// several gateways share both keys are of one hash slot. A request has at most [`MOST_PAIRS`].
///
/// [`MOST_PAIRS`]: Choice::MOST_PAIRS
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    #[default]
    Alone,
    /// Refuses no request by itself: the check behind it is asked in its place then.
    First,
    /// Is asked only if the one before it refuses.
    Second,
}

impl Choice {
    /// As many as one number of a script's reply tells of.
    pub const MOST_PAIRS: usize = 26;

    /// Whether a check is not asked, after what the one before it has said.
    #[inline]
    pub(super) fn is_skipped(self, previous: Option<Retry>) -> bool {
        self == Choice::Second && previous.is_none()
    }

    /// When a check that refuses would admit, or the first of its pair.
    #[inline]
    pub(super) fn earlier(self, previous: Option<Retry>, retry: Retry) -> Retry {
        match (self, previous) {
            (Choice::Second, Some(first)) => first.min(retry),
            _ => retry,
        }
    }
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
            together: false,
            choice: Choice::Alone,
            on_error: OnError::default(),
            may_lease: true,
        }
    }

    /// Whether the cost is in the check's bucket, if its request was admitted with this outcome.
    #[inline]
    pub fn is_charged(&self, outcome: &CheckOutcome) -> bool {
        self.spends && outcome.decided && outcome.is_chosen()
    }

    /// Whether this check says what came of the limit: of a pair, the one that was charged, or the
    /// second if neither was.
    #[inline]
    pub fn is_told(&self, outcome: &CheckOutcome) -> bool {
        match self.choice {
            Choice::Alone => true,
            Choice::First => outcome.refused.is_none(),
            Choice::Second => !outcome.skipped,
        }
    }

    /// Whether the request is refused because of this check.
    #[inline]
    pub fn refuses(&self, outcome: &CheckOutcome) -> bool {
        outcome.refused.is_some() && self.enforced && self.choice != Choice::First
    }

    /// Whether it is charged only if others of the request admit as well, that only watch too.
    #[inline]
    pub(super) fn is_bound(&self) -> bool {
        self.together && !self.enforced
    }

    /// Whether no check that it is bound to is charged because of this one.
    #[inline]
    pub(super) fn withholds(&self, outcome: &CheckOutcome) -> bool {
        outcome.refused.is_some() && self.is_bound() && self.choice != Choice::First
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
    /// `None`: this check admits. Of the second of a pair that refuses it is the earlier of both,
    /// for then the pair admits.
    pub refused: Option<Retry>,
    /// It was not asked: it is the second of a pair whose first admits, or stands for it because
    /// the store could not be asked. So of every pair, either the first refuses or the second is
    /// skipped.
    pub skipped: bool,
    /// It is not charged because a check of its limit refuses, itself or another: see
    /// [`Check::together`].
    pub withheld: bool,
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
        let (refused, skipped, withheld) = (None, false, false);
        Self { state, now, refused, skipped, withheld, decided: true, shared: false }
    }
}

impl CheckOutcome {
    /// Whether the check admits, and nothing else keeps it from being charged.
    #[inline]
    pub fn is_chosen(&self) -> bool {
        self.refused.is_none() && !self.skipped && !self.withheld
    }
}

/// All checks of one request, with the keys that they refer to.
#[derive(Debug, Clone, Copy)]
pub struct CheckSet<'a> {
    pub checks: &'a [Check<'a>],
    pub keys: KeysView<'a>,
}

impl<'a> CheckSet<'a> {
    /// The key of one of the checks.
    pub fn key(&self, check: &Check<'_>) -> BucketKey<'a> {
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
    pub fn new(check: &Check<'_>, outcome: &CheckOutcome, keys: KeysView<'_>) -> Self {
        let Check { limit_prefix, bucket, cost, on_error, .. } = *check;
        let key = keys.get(check.key).to_vec().into();
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
