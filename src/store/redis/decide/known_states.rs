//! What this node knows of the buckets in Redis, in case Redis fails.
//!
//! A bucket is known as the newest reply told of it, with all on top that passed here and that reply
//! does not know of: what is owed, what may be, and what Redis has charged since. So an outage begins
//! with no more than is left, in whichever order workers hear of what Redis did.
//!
//! Of a leased bucket a gateway may not have heard for a while, though it is asked for: what has
//! refilled meanwhile may have been spent by the others, who were there as well. So its share begins
//! with what there was when it was last heard of ([`RedisShared::hold_to_heard`]).
//!
//! Mostly nothing passes without Redis, and a reply knows all: then no worker waits for another one
//! here, except for the lock of the bucket's shard. Whoever charges a bucket without Redis first says
//! so ([`QuietSince::disturb`]), and takes that lock later; whoever notes a reply looks while it holds
//! that lock. So either the reply is noted first, and charged on top, or it is known to lack something.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::clock::{self, Micros};
use crate::limit::{Policy, State};
use crate::store::redis::RedisShared;
use crate::store::redis::supervise::settled_charges::ReplyTimes;
use crate::store::{BucketId, Check};

/// What a reply tells of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldState<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) policy: &'a Policy,
    pub(crate) state: State,
    /// What of it passes here with this reply.
    pub(crate) cost: u64,
    pub(crate) times: ReplyTimes,
}

/// Since when nothing has passed that a reply could not know of. It changes under the lock of the
/// ledger only.
#[derive(Debug)]
pub(crate) struct QuietSince {
    start: Instant,
    /// Nanoseconds since the start, or [`DISTURBED`].
    nanos: AtomicU64,
}

const DISTURBED: u64 = u64::MAX;

impl QuietSince {
    pub(crate) fn start() -> Self {
        QuietSince { start: Instant::now(), nanos: AtomicU64::new(0) }
    }

    fn nanos(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Something is about to pass without Redis.
    pub(crate) fn disturb(&self) {
        if self.is_quiet() {
            self.nanos.store(DISTURBED, Ordering::Relaxed);
        }
    }

    /// All is known to Redis, and to replies that are asked for from now on.
    fn settle(&self, now: Instant) {
        if !self.is_quiet() {
            self.nanos.store(self.nanos(now), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.nanos.load(Ordering::Relaxed) != DISTURBED
    }

    /// Whether a reply to what was sent then knows all.
    fn is_before(&self, sent: Instant) -> bool {
        let since = self.nanos.load(Ordering::Relaxed);
        // Mostly nothing has ever passed without Redis, and times need not be compared.
        since == 0 || since < self.nanos(sent)
    }
}

impl RedisShared {
    /// Remembers what a reply tells of a bucket.
    pub(crate) fn note_state(&self, told: &ToldState<'_>) {
        if self.note_if_all_is_known(told) {
            return;
        }
        let mut ledger = self.ledger.lock();
        let ToldState { bucket, policy, state, cost, times } = *told;
        let missing = ledger.missing_from(bucket, times);
        // While the breaker is open, a call may be out that has more time than it took to find that out.
        // What has passed meanwhile was taken from the share, and stays as dear.
        let (share, missing) = match missing {
            1.. if self.breaker.is_open() => policy.share_after(self.nodes(), missing),
            _ => (*policy, missing),
        };
        let state = share.charge_after(state, times.at, missing);
        if ledger.is_too_old(times) {
            // What it lacks is in what is known here, if it is in nothing else.
            self.local.note(bucket, policy, times.at, |known| {
                Some(deeper(policy.charge_after(known, times.at, cost), state))
            });
        } else {
            self.local.note(bucket, policy, times.at, |known| self.newer(told, known, state));
        }
        self.note_quiet(ledger.may_be_missing());
    }

    /// The same if nothing is missing in the reply. False if that is not so.
    #[inline]
    fn note_if_all_is_known(&self, told: &ToldState<'_>) -> bool {
        let ToldState { bucket, policy, state, times, .. } = *told;
        let knows_all = Cell::new(false);
        self.local.note(bucket, policy, times.at, |known| {
            knows_all.set(self.quiet_since.is_before(times.sent));
            if knows_all.get() { self.newer(told, known, state) } else { None }
        });
        knows_all.get()
    }

    /// What a bucket's state becomes, if it is to be written. Of a reply that may be older than what is
    /// known, the one that has more spent is the newer.
    #[inline]
    fn newer(&self, told: &ToldState<'_>, known: State, state: State) -> Option<State> {
        let is_newest = self.order.is_newest(told.bucket, told.times.at);
        (is_newest || is_deeper(state, known)).then_some(state)
    }

    /// A bucket is about to be decided without Redis. If it is leased and others share it, it is taken to
    /// have refilled nothing from the last reply about its lease until the outage began.
    pub(crate) fn hold_to_heard(&self, check: &Check<'_>, now: impl FnOnce() -> Micros) {
        let Check { bucket, policy, .. } = *check;
        if self.nodes() < 2 || !self.lease_notes.may_be_leased(bucket) {
            return;
        }
        let now = now();
        let began = now.before(self.breaker.outage().unwrap_or_default());
        let Some(heard) = self.lease_notes.take_leased(bucket, began) else { return };
        self.local.note(bucket, policy, now, |known| {
            let left = policy.report(known, heard).remaining;
            let missing = policy.lease_amount(policy.quota().saturating_sub(left));
            let held = policy.cap_refill(known, began.max(heard), missing);
            (missing > 0 && is_deeper(held, known)).then_some(held)
        });
    }

    /// Notes whether something has passed that replies may not know of, as the ledger says whose lock
    /// is held.
    pub(crate) fn note_quiet(&self, may_be_missing: bool) {
        if !may_be_missing {
            self.quiet_since.settle(clock::now());
        }
    }
}

fn is_deeper(state: State, than: State) -> bool {
    (state.ends_at, state.rest) > (than.ends_at, than.rest)
}

fn deeper(one: State, other: State) -> State {
    if is_deeper(one, other) { one } else { other }
}

#[cfg(test)]
mod tests;
