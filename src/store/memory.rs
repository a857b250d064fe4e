//! The embedded store: buckets in shards, each behind a lock of its own.
//!
//! It holds at most `max_keys` buckets and never drops a live one to make room. A bucket that is full
//! again equals none, so it is dropped only when its room is needed: nothing sweeps. When all are
//! live, new keys share the buckets of [`overflow`]. [`decision`] says how several shards are decided
//! at once, [`snapshot`] how buckets outlive the process, and [`held_slots`] how slots are counted that
//! the process before still holds.

mod control;
mod decision;
mod held_slots;
mod overflow;
mod shard;
mod snapshot;

use std::slice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::control::open;
use self::decision::{ChargeMode, TimedChecks};
pub use self::held_slots::HeldSlots;
use self::overflow::Overflow;
use self::shard::{PastCharge, Shard};
use super::{
    BucketId, Check, CheckOutcome, CheckSet, Decided, Decision, DeferredCheck, KnownBucket, Store,
};
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
    shards: Box<[PaddedShard]>,
    overflow: Overflow,
    max_keys: usize,
    /// Slots taken or set aside, in all shards.
    taken: AtomicUsize,
    /// Where the next search for dead buckets starts.
    cursor: AtomicUsize,
    /// See [`MemoryStore::set_clock_spread`]: microseconds.
    clock_spread: AtomicU64,
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
struct PaddedShard(Mutex<Shard>);

impl MemoryStore {
    pub fn new(max_keys: usize, clock: Clock) -> Self {
        let shards = max_keys.div_ceil(KEYS_PER_SHARD).max(1);
        Self::of((0..shards).map(|_| Shard::new()).collect(), Overflow::new(), max_keys, clock)
    }

    /// With these buckets to begin with, even if they are more than `max_keys`.
    fn of(shards: Vec<Shard>, overflow: Overflow, max_keys: usize, clock: Clock) -> Self {
        let taken = AtomicUsize::new(shards.iter().map(Shard::len).sum());
        let shards = shards.into_iter().map(|shard| PaddedShard(Mutex::new(shard))).collect();
        let (cursor, clock_spread) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { clock, shards, overflow, max_keys, taken, cursor, clock_spread }
    }

    /// Decides all checks, without waiting.
    /// `outcomes` has one entry for each check.
    pub fn decide_now(&self, checks: &[Check<'_>], outcomes: &mut [CheckOutcome]) -> Decision {
        if let ([check], [outcome]) = (checks, &mut *outcomes)
            && let Some(decision) = self.decide_known(check, outcome)
        {
            return decision;
        }
        decision::decide(self, TimedChecks { checks, times: &[] }, outcomes, ChargeMode::Decide)
    }

    /// The same where each check has an instant of its own, since the stores that keep their buckets
    /// have clocks of their own. A bucket that keys share is judged by the clock of this store.
    pub fn decide_at(
        &self,
        checks: &[Check<'_>],
        times: &[Micros],
        outcomes: &mut [CheckOutcome],
    ) -> Decision {
        decision::decide(self, TimedChecks { checks, times }, outcomes, ChargeMode::Decide)
    }

    /// Charges a cost, whether it passes or not, and tells what came of it.
    pub fn charge_one_after(&self, check: &Check<'_>) -> CheckOutcome {
        self.charge_after_at(check, &[])
    }

    /// The same at an instant of its own, if there is one.
    pub fn charge_after_at(&self, check: &Check<'_>, times: &[Micros]) -> CheckOutcome {
        let mut outcome = CheckOutcome::default();
        let (checks, outcomes) = (slice::from_ref(check), slice::from_mut(&mut outcome));
        decision::decide(self, TimedChecks { checks, times }, outcomes, ChargeMode::ChargeAfter);
        outcome
    }

    /// Says by how much the clocks may differ that buckets are judged by: a bucket is dropped once it
    /// has ended by all of them.
    pub fn set_clock_spread(&self, spread: Duration) {
        self.clock_spread.store(spread.as_micros() as u64, Ordering::Relaxed);
    }

    /// The last that was [said](MemoryStore::set_clock_spread).
    pub(super) fn clock_spread(&self) -> Duration {
        Duration::from_micros(self.clock_spread.load(Ordering::Relaxed))
    }

    /// Refunds a charge at the instant and to the bucket that `outcome` tells of: the key's own, or
    /// one that it shares.
    pub fn refund(&self, charged: &Check<'_>, outcome: &CheckOutcome) {
        let now = self.clock.now();
        let charge = PastCharge { cost: charged.cost, at: outcome.now };
        if outcome.shared {
            let tag = decision::overflow_tag(charged.limit_prefix, charged.bucket);
            return self.overflow.refund(tag, charged.policy, now, charge);
        }
        let mut shard = self.shards[shard_of(charged.bucket, self.shards.len())].0.lock();
        shard.refund(tag_of(charged.bucket), charged.policy, now, charge);
    }

    /// Takes over a bucket's state from the store that keeps it, for decisions without that store:
    /// `next` makes it of what is known, or leaves that as it is. When the table is full of live
    /// buckets, one that is not in it stays unknown.
    #[inline]
    pub fn note(
        &self,
        bucket: BucketId,
        policy: &Policy,
        now: Micros,
        next: impl Fn(State) -> Option<State>,
    ) {
        let mut shard = self.shards[shard_of(bucket, self.shards.len())].0.lock();
        let tag = tag_of(bucket);
        let mut noted = None;
        let is_known = shard.update(tag, |known| {
            noted = next(known);
            noted.unwrap_or(known)
        });
        if !is_known {
            noted = next(State::default());
        }
        let Some(state) = noted else { return };
        if !is_known {
            if state.ends_at <= now || !self.reserve(&mut shard, 0, now, |_| false) {
                return;
            }
            shard.put(tag, state);
        }
        if let Policy::SlidingLog(it) = policy {
            shard.put_log(tag, Log::of(state, it));
        }
    }

    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// The state of a bucket, if it is known.
    pub fn state(&self, bucket: BucketId) -> Option<State> {
        self.shards[shard_of(bucket, self.shards.len())].0.lock().state(tag_of(bucket))
    }

    /// The same, or that of the bucket which it shares with others if it has none of its own.
    pub(super) fn state_or_shared(&self, asked: &KnownBucket<'_>) -> Option<State> {
        let shared = || {
            let tag = decision::overflow_tag(asked.limit_prefix, asked.bucket);
            self.overflow.lock().state(tag)
        };
        self.state(asked.bucket).or_else(shared)
    }

    pub fn buckets(&self) -> Buckets {
        Buckets { own: self.taken.load(Ordering::Relaxed), overflow: self.overflow.len() }
    }

    /// The short way for the usual case: one check, on a bucket that exists.
    #[inline]
    fn decide_known(&self, check: &Check<'_>, outcome: &mut CheckOutcome) -> Option<Decision> {
        if let Policy::SlidingLog(_) = check.policy {
            return None;
        }
        let mut shard = self.shards[shard_of(check.bucket, self.shards.len())].0.lock();
        let now = self.clock.now();
        let known = shard.update(tag_of(check.bucket), |state| {
            let state = check.policy.clamp(state, now);
            outcome.now = now;
            outcome.shared = false;
            match check.policy.evaluate_waited(state, now, check.cost, check.waited) {
                Verdict::Admit(after) => {
                    outcome.refused = None;
                    outcome.state = if check.spends { after } else { state };
                }
                Verdict::Refuse(retry) => {
                    outcome.refused = Some(retry);
                    outcome.state = state;
                }
            }
            outcome.state
        });
        outcome.withheld = check.withholds(outcome);
        let admitted = outcome.refused.is_none() || !check.enforced;
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
        let now = Micros(now.0.saturating_sub(self.clock_spread.load(Ordering::Relaxed)));
        if shard.is_packed(pending) {
            self.free_room(shard.purge(now, &spare));
            shard.stretch(pending);
        }
        if self.take() {
            return true;
        }
        self.free_room(shard.purge(now, &spare));
        if self.take() {
            return true;
        }
        for _ in 0..REACH.min(self.shards.len()) {
            let next = self.cursor.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            // Never waits, so the order of locks stands; a shard this decision holds is passed by.
            if let Some(mut other) = self.shards[next].0.try_lock() {
                self.free_room(other.purge(now, |_| false));
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

    fn free_room(&self, slots: usize) {
        if slots > 0 {
            self.taken.fetch_sub(slots, Ordering::Relaxed);
        }
    }
}

impl Store for MemoryStore {
    #[inline]
    fn try_decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decided> {
        Some(Ok(self.decide_now(asked.checks, outcomes)))
    }

    async fn decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Decided {
        Ok(self.decide_now(asked.checks, outcomes))
    }

    async fn charge_after(&self, charges: &[DeferredCheck]) {
        self.charge_detached(charges);
    }

    fn charge_detached(&self, charges: &[DeferredCheck]) {
        for charge in charges {
            self.charge_one_after(&charge.check());
        }
    }

    fn try_charge_after(&self, charges: &[DeferredCheck]) -> bool {
        self.charge_detached(charges);
        true
    }

    fn release(&self, slots: &[DeferredCheck]) {
        for held in slots {
            self.refund(&held.check(), held.outcome());
        }
    }

    async fn flush(&self) {}
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
