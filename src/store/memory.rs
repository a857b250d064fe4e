//! The embedded store: buckets in shards, each behind a lock of its own.
//!
//! It holds at most `max_keys` buckets and never forgets a live one to make room. A bucket that
//! is full again equals none, so it is only dropped when its place is wanted: nothing sweeps. When
//! all are live, new keys share the buckets of [`overflow`]. How several shards are decided at
//! once is told in [`decision`], and how buckets outlive the process in [`snapshot`].

mod decision;
pub mod overflow;
mod shard;
pub mod snapshot;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::decision::Act;
use self::overflow::Overflow;
use self::shard::Shard;
use super::{BucketId, Check, Decision, Lasting, Names, Store, StoreError};
use crate::clock::{Clock, Micros};
use crate::limit::sliding_log::Log;
use crate::limit::{Policy, State, Verdict};

/// Shared buckets of one limit. A power of two.
const OVERFLOW_BUCKETS: u64 = 64;

/// How full a shard is on average when the table is: a table of 4096 slots takes 3584, and a
/// shard that holds so many more than the average is seven standard deviations away.
const KEYS_PER_SHARD: usize = 3_200;

/// How many other shards a new key searches for dead buckets when the table is full. Keys are
/// spread evenly, so if these and its own hold none, hardly one in ten thousand is dead.
const REACH: usize = 4;

#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    shards: Box<[Padded]>,
    overflow: Overflow,
    max_keys: usize,
    /// Slots taken or set aside, in all shards.
    taken: AtomicUsize,
    /// Where the next search for dead buckets starts.
    cursor: AtomicUsize,
}

/// How many buckets there are, those included that are full again and not yet dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    pub own: usize,
    pub overflow: usize,
}

/// A shard on cache lines of its own: neighbours are locked by other cores.
#[derive(Debug)]
#[repr(align(64))]
struct Padded(Mutex<Shard>);

impl MemoryStore {
    #[must_use]
    pub fn new(max_keys: usize, clock: Clock) -> Self {
        let shards = max_keys.div_ceil(KEYS_PER_SHARD).max(1);
        Self::of((0..shards).map(|_| Shard::new()).collect(), Overflow::new(), max_keys, clock)
    }

    /// With these buckets to begin with, be they more than `max_keys`.
    fn of(shards: Vec<Shard>, overflow: Overflow, max_keys: usize, clock: Clock) -> Self {
        let taken = AtomicUsize::new(shards.iter().map(Shard::len).sum());
        let shards = shards.into_iter().map(|shard| Padded(Mutex::new(shard))).collect();
        Self { clock, shards, overflow, max_keys, taken, cursor: AtomicUsize::new(0) }
    }

    /// Decides without waiting: what [`Store::decide`] does here.
    pub fn decide_now(&self, checks: &mut [Check<'_>]) -> Decision {
        if let [check] = checks
            && let Some(decision) = self.decide_known(check)
        {
            return decision;
        }
        decision::decide(self, checks, Act::Decide)
    }

    /// Charges a cost, whether it passes or not, and tells what came of it.
    pub fn owe_one<'a>(&self, check: Check<'a>) -> Check<'a> {
        let mut checks = [check];
        decision::decide(self, &mut checks, Act::Owe);
        let [check] = checks;
        check
    }

    /// Takes a charge out again that was made at that instant, to a bucket of the key's own or to
    /// one that it shares.
    pub fn give_back(&self, charged: &Check<'_>, charged_at: Micros) {
        let now = self.clock.now();
        let charge = (charged.cost, charged_at);
        if charged.shared {
            let tag = decision::overflow_tag(charged);
            return self.overflow.give_back(tag, charged.policy, now, charge);
        }
        let mut shard = self.shards[shard_of(charged.bucket, self.shards.len())].0.lock();
        shard.give_back(tag_of(charged.bucket), charged.policy, now, charge);
    }

    /// Takes over a bucket's state from whoever keeps it, so that this store can stand in. When
    /// the table is full of live buckets, one that is not in it stays unknown.
    pub fn note(&self, bucket: BucketId, policy: &Policy, state: State, now: Micros) {
        let mut shard = self.shards[shard_of(bucket, self.shards.len())].0.lock();
        let tag = tag_of(bucket);
        let known = shard.update(tag, |_| state);
        if !known && (state.until <= now || !self.reserve(&mut shard, 0, now, |_| false)) {
            return;
        }
        if !known {
            shard.put(tag, state);
        }
        if let Policy::SlidingLog(it) = policy {
            shard.put_log(tag, Log::of(state, it));
        }
    }

    /// The same for a state that may be older than what is known: of the two the one that has more
    /// spent is the newer.
    pub fn note_older(&self, bucket: BucketId, policy: &Policy, state: State, now: Micros) {
        let known = self.look(bucket).unwrap_or_default();
        if (state.until, state.rest) > (known.until, known.rest) {
            self.note(bucket, policy, state, now);
        }
    }

    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// What is known of a bucket.
    #[must_use]
    pub fn look(&self, bucket: BucketId) -> Option<State> {
        let mut found = None;
        let mut shard = self.shards[shard_of(bucket, self.shards.len())].0.lock();
        shard.update(tag_of(bucket), |state| {
            found = Some(state);
            state
        });
        found
    }

    #[must_use]
    pub fn buckets(&self) -> Buckets {
        Buckets { own: self.taken.load(Ordering::Relaxed), overflow: self.overflow.len() }
    }

    /// The short way for the usual case: one check, on a bucket that exists.
    #[inline]
    fn decide_known(&self, check: &mut Check<'_>) -> Option<Decision> {
        if let Policy::SlidingLog(_) = check.policy {
            return None;
        }
        let mut shard = self.shards[shard_of(check.bucket, self.shards.len())].0.lock();
        let now = self.clock.now();
        let known = shard.update(tag_of(check.bucket), |state| {
            let state = check.policy.settle(state, now);
            check.now = now;
            check.shared = false;
            match check.policy.evaluate_late(state, now, check.cost, check.late) {
                Verdict::Admit(after) => {
                    check.refused = None;
                    check.state = if check.spends { after } else { state };
                }
                Verdict::Refuse(retry) => {
                    check.refused = Some(retry);
                    check.state = state;
                }
            }
            check.state
        });
        let admitted = check.refused.is_none() || !check.enforced;
        known.then_some(Decision { now, admitted, alone: false })
    }

    /// Sets room aside for one more bucket in a locked shard, dropping dead ones if it must. The
    /// buckets that `spare` names stay: the decision at hand has already looked at them. For as
    /// many as are `pending` in this shard it has set room aside before.
    fn reserve(
        &self,
        shard: &mut Shard,
        pending: usize,
        now: Micros,
        spare: impl Fn(u64) -> bool,
    ) -> bool {
        if shard.is_packed(pending) {
            self.release(shard.purge(now, &spare));
            shard.stretch(pending);
        }
        if self.take() {
            return true;
        }
        self.release(shard.purge(now, &spare));
        if self.take() {
            return true;
        }
        for _ in 0..REACH.min(self.shards.len()) {
            let next = self.cursor.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            // Never waits, so the order of locks stands; a shard this decision holds is passed by.
            if let Some(mut other) = self.shards[next].0.try_lock() {
                self.release(other.purge(now, |_| false));
            }
            if self.take() {
                return true;
            }
        }
        false
    }

    fn take(&self) -> bool {
        let more = |taken| (taken < self.max_keys).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self, slots: usize) {
        if slots > 0 {
            self.taken.fetch_sub(slots, Ordering::Relaxed);
        }
    }
}

impl Store for MemoryStore {
    async fn decide(
        &self,
        checks: &mut [Check<'_>],
        _names: &Names,
    ) -> Result<Decision, StoreError> {
        Ok(self.decide_now(checks))
    }

    async fn owe(&self, charges: &[Lasting]) {
        self.owe_unheard(charges);
    }

    fn owe_unheard(&self, charges: &[Lasting]) {
        for charge in charges {
            self.owe_one(charge.check());
        }
    }

    fn release(&self, places: &[Lasting]) {
        for place in places {
            let check = place.check();
            self.give_back(&check, check.now);
        }
    }

    async fn settle(&self) {}
}

/// The upper half of the name, scaled to the number of shards.
fn shard_of(bucket: BucketId, shards: usize) -> usize {
    let upper = bucket.0 >> 64;
    ((upper * shards as u128) >> 64) as usize
}

/// The lower half of the name.
fn tag_of(bucket: BucketId) -> u64 {
    bucket.0 as u64
}

#[cfg(test)]
mod tests;
