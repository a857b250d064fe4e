//! The shared buckets: where keys are counted that find the table full of live buckets.
//!
//! There are at most [`OVERFLOW_BUCKETS`](super::OVERFLOW_BUCKETS) for each limit, so this part is
//! as bounded as the table, and no live bucket is dropped to make room.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::shard::{PastCharge, Shard};
use crate::clock::Micros;
use crate::limit::{Policy, State};

#[derive(Debug)]
pub(super) struct Overflow {
    shard: Mutex<Shard>,
    len: AtomicUsize,
    /// No shared bucket is live from then on.
    until: AtomicU64,
}

impl Overflow {
    pub(super) fn new() -> Self {
        Self::of(Shard::new())
    }

    /// With these buckets to begin with.
    pub(super) fn of(shard: Shard) -> Self {
        let (len, until) = (AtomicUsize::new(shard.len()), AtomicU64::new(shard.latest().0));
        Self { shard: Mutex::new(shard), len, until }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock()
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn until(&self) -> Micros {
        Micros(self.until.load(Ordering::Acquire))
    }

    /// Makes room for one more shared bucket, and takes note of what `write` writes. `shard` is
    /// this overflow's own, locked.
    pub(super) fn put(
        &self,
        shard: &mut Shard,
        state: State,
        now: Micros,
        write: impl FnOnce(&mut Shard),
    ) {
        if shard.is_packed(0) {
            shard.purge(now, |_| false);
            shard.stretch(0);
        }
        write(shard);
        self.len.store(shard.len(), Ordering::Relaxed);
        self.until.fetch_max(state.ends_at.0, Ordering::AcqRel);
    }

    /// Refunds a charge to a shared bucket.
    pub(super) fn refund(&self, tag: u64, policy: &Policy, now: Micros, charge: PastCharge) {
        self.change(|shard| shard.refund(tag, policy, now, charge));
    }

    /// Gives back some of what shared buckets hold.
    pub(super) fn change(&self, refund: impl FnOnce(&mut Shard)) {
        let mut shard = self.lock();
        refund(&mut shard);
        // Slots are held until they are released: only then does the mark come down again.
        self.until.store(shard.latest().0, Ordering::Release);
    }

    /// A shared bucket, clamped to what the policy can hold, or a fresh one. `shard` is this
    /// overflow's own, locked.
    pub(super) fn get(&self, shard: &mut Shard, tag: u64, policy: &Policy, now: Micros) -> State {
        let state = shard.get(tag, policy, now).unwrap_or_default();
        // Clamped to a longer window it ends later than it did.
        self.until.fetch_max(state.ends_at.0, Ordering::AcqRel);
        state
    }
}
