//! The shared buckets: where keys count that find the table full of live ones.
//!
//! There are at most [`OVERFLOW_BUCKETS`](super::OVERFLOW_BUCKETS) for each limit, so this part is
//! as bounded as the table, and nobody's bucket is forgotten to make room.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::shard::Shard;
use crate::clock::Micros;
use crate::limit::State;

#[derive(Debug)]
pub(super) struct Overflow {
    shard: Mutex<Shard>,
    len: AtomicUsize,
    /// No shared bucket is live from then on.
    until: AtomicU64,
}

impl Overflow {
    pub(super) fn new() -> Self {
        Self { shard: Mutex::new(Shard::new()), len: AtomicUsize::new(0), until: AtomicU64::new(0) }
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

    /// Writes a shared bucket. `shard` is this overflow's own, locked.
    pub(super) fn put(&self, shard: &mut Shard, tag: u64, state: State, now: Micros) {
        if shard.is_packed() {
            shard.purge(now, |_| false);
            shard.stretch();
        }
        shard.put(tag, state);
        self.len.store(shard.len(), Ordering::Relaxed);
        self.until.fetch_max(state.until.0, Ordering::AcqRel);
    }
}
