//! Slots of `concurrency` that a process holds while another takes its place.
//!
//! They are in no snapshot, since the requests that hold them end with their process. But after a
//! takeover that process finishes these requests, and until then its successor has to count them, too:
//! it is told again and again how many there are in which bucket.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::MemoryStore;
use crate::clock::Micros;
use crate::limit::{State, concurrency};

/// All slots that the requests of one process hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlots {
    /// The same in processes that name their buckets alike.
    naming: u64,
    /// Only a store that has as many shards finds a bucket in the same one.
    shards: usize,
    buckets: Vec<HeldBucket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct HeldBucket {
    /// The overflow comes after the last of the others.
    shard: usize,
    tag: u64,
    slots: u64,
}

/// What another process holds, as counted in this one's buckets.
#[derive(Debug, Default)]
pub(super) struct InheritedSlots(Mutex<HashMap<(usize, u64), u64>>);

impl MemoryStore {
    pub(super) fn held_slots(&self, naming: u64) -> HeldSlots {
        let now = self.clock.now();
        let mut buckets = Vec::new();
        let mut collect = |shard: usize, live: &super::Shard| {
            let held = live.live(now).filter(|(_, state, _)| state.ends_at >= concurrency::HELD);
            buckets.extend(held.map(|(tag, state, _)| HeldBucket {
                shard,
                tag,
                slots: state.rest,
            }));
        };
        for (index, shard) in self.shards.iter().enumerate() {
            collect(index, &shard.0.lock());
        }
        collect(self.shards.len(), &self.overflow.lock());
        HeldSlots { naming, shards: self.shards.len(), buckets }
    }

    /// Takes slots, whether they are free or not. False if there is no room for another bucket: then its
    /// key shares one.
    fn take_slots(&self, shard: usize, tag: u64, slots: u64) -> bool {
        let now = self.clock.now();
        let Some(shard) = self.shards.get(shard) else {
            self.overflow.take_slots(tag, slots, now);
            return true;
        };
        let mut shard = shard.0.lock();
        if shard.update(tag, |state| concurrency::take(state, now, slots)) {
            return true;
        }
        let is_room = self.reserve(&mut shard, 0, now, |_| false);
        if is_room {
            shard.put(tag, concurrency::take(State::default(), now, slots));
        }
        is_room
    }

    fn release_slots(&self, shard: usize, tag: u64, slots: u64) {
        match self.shards.get(shard) {
            Some(shard) => {
                shard.0.lock().update(tag, |state| concurrency::release(state, slots));
            }
            None => self.overflow.release_slots(tag, slots),
        }
    }
}

impl super::Overflow {
    fn take_slots(&self, tag: u64, slots: u64, now: Micros) {
        let mut shard = self.lock();
        let state = concurrency::take(shard.state(tag).unwrap_or_default(), now, slots);
        self.put(&mut shard, state, now, |shard| _ = shard.put(tag, state));
    }

    fn release_slots(&self, tag: u64, slots: u64) {
        self.change(|shard| _ = shard.update(tag, |state| concurrency::release(state, slots)));
    }
}

impl InheritedSlots {
    /// Counts these in the place of those before. `None`: the other process has ended. False if its
    /// buckets cannot be found in this store.
    pub(super) fn replace(
        &self,
        store: &MemoryStore,
        naming: u64,
        held: Option<&HeldSlots>,
    ) -> bool {
        let is_alike = |it: &&HeldSlots| it.naming == naming && it.shards == store.shards.len();
        let buckets = held.filter(is_alike).map_or(&[][..], |held| &held.buckets);
        let mut inherited = self.0.lock();
        let mut before = std::mem::take(&mut *inherited);
        for HeldBucket { shard, tag, slots } in buckets.iter().copied() {
            let counted = before.remove(&(shard, tag)).unwrap_or(0);
            if slots < counted {
                store.release_slots(shard, tag, counted - slots);
            }
            let is_counted = slots <= counted || store.take_slots(shard, tag, slots - counted);
            inherited.insert((shard, tag), if is_counted { slots } else { counted });
        }
        for ((shard, tag), slots) in before {
            store.release_slots(shard, tag, slots);
        }
        held.is_none_or(|held| is_alike(&held))
    }
}

#[cfg(test)]
mod tests;
