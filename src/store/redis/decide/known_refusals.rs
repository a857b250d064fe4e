//! Buckets that are known to be empty: their callers are refused without asking Redis.
//!
//! What Redis said of a bucket when it refused can only have become less since, except by time,
//! so a request that this state refuses would be refused by Redis. Time is taken as late as it can be: Redis
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

/// How long a refusal is believed.
pub(crate) const TRUST: Duration = Duration::from_secs(1);

/// Buckets remembered by each worker. Beyond that callers are refused by Redis, which is as right.
const MOST: usize = 8 * 1024;

/// When the table is full, so many entries are searched for one whose refusal has ended. A flood of new
/// keys causes that for each of them, so its cost must not depend on the size of the table; the hand
/// goes round, so that every entry has its turn.
const SWEPT: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct KnownRefusals {
    /// In no order.
    known: Vec<(BucketId, Refusal)>,
    /// Where in `known` each bucket is.
    positions: HashMap<BucketId, usize>,
    /// Where the next sweep begins.
    hand: usize,
}

/// A bucket as Redis saw it, and when that was here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) state: State,
    pub(crate) now: Micros,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    /// What was refused and until when, where the state alone does not tell.
    pub(crate) promise: Option<Promise>,
}

/// So much, and more, is refused by these numbers until that instant of Redis's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) at: Micros,
    pub(crate) cost: u64,
    pub(crate) policy: Policy,
}

impl Refusal {
    /// The same as it is at an instant: what the clock of Redis shows then at the earliest.
    fn aged(self, state: State, at: Instant) -> Refusal {
        let since = at.saturating_duration_since(self.received);
        let now = Micros(self.now.0 + since.as_micros() as u64);
        Refusal { state, now, ..self }
    }
}

impl KnownRefusals {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn insert(&mut self, bucket: BucketId, refusal: Refusal) {
        if let Some(&position) = self.positions.get(&bucket) {
            self.known[position].1 = refusal;
        } else if self.known.len() < MOST {
            self.positions.insert(bucket, self.known.len());
            self.known.push((bucket, refusal));
        } else if let Some(position) = self.sweep(refusal.received) {
            self.positions.remove(&self.known[position].0);
            self.positions.insert(bucket, position);
            self.known[position] = (bucket, refusal);
        }
    }

    /// An entry among the next few whose refusal is not believed any more.
    fn sweep(&mut self, at: Instant) -> Option<usize> {
        for _ in 0..SWEPT {
            let position = self.hand;
            self.hand = (position + 1) % self.known.len().max(1);
            if at.saturating_duration_since(self.known.get(position)?.1.sent) >= TRUST {
                return Some(position);
            }
        }
        None
    }

    fn remove(&mut self, bucket: BucketId) {
        let Some(position) = self.positions.remove(&bucket) else { return };
        self.known.swap_remove(position);
        if let Some((moved, _)) = self.known.get(position) {
            self.positions.insert(*moved, position);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.positions.clear();
        self.hand = 0;
    }

    /// When the check would pass, and what the clock of Redis shows now at the earliest, if it is
    /// sure to be refused.
    pub(crate) fn refused(&mut self, check: &Check<'_>, at: Instant) -> Option<(Retry, Refusal)> {
        let known = self.known[*self.positions.get(&check.bucket)?].1;
        let age = at.saturating_duration_since(known.sent);
        if age >= TRUST {
            self.remove(check.bucket);
            return None;
        }
        let latest = Micros(known.now.0 + age.as_micros() as u64);
        let state = check.policy.clamp(known.state, latest);
        if let Some(promise) = known.promise {
            // Of a smaller cost, or by other numbers, nothing was said.
            let same = check.cost >= promise.cost && *check.policy == promise.policy;
            if latest >= promise.at {
                self.remove(check.bucket);
            }
            if !same || latest >= promise.at {
                return None;
            }
            return Some((Retry::At(promise.at), known.aged(state, at)));
        }
        match check.policy.evaluate(state, latest, check.cost) {
            Verdict::Refuse(retry) => Some((retry, known.aged(state, at))),
            Verdict::Admit(_) => {
                self.remove(check.bucket);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
