//! One part of the table: the buckets behind one lock.
//!
//! A slot is 24 bytes and a byte of hashbrown's own. The tag stands for the key: shards are
//! chosen by the other half of the keyed hash, so within a shard a tag is 64 unguessable bits.

use hashbrown::HashTable;

use crate::clock::Micros;
use crate::limit::{Policy, State};

#[derive(Debug)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
    /// No slot ends before this, so until then there is nothing to purge and a shard that is full
    /// of live buckets is not searched at every request.
    earliest: Micros,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u64,
    state: State,
}

impl Shard {
    pub(super) const fn new() -> Self {
        Self { slots: HashTable::new(), earliest: Micros(u64::MAX) }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no space for one more slot beside those that are `pending`.
    pub(super) fn is_packed(&self, pending: usize) -> bool {
        self.slots.len() + pending >= self.slots.capacity()
    }

    /// The bucket's state, drawn in to what the policy can hold.
    pub(super) fn get(&mut self, tag: u64, policy: &Policy, now: Micros) -> Option<State> {
        let mut found = State::default();
        let present = self.update(tag, |state| {
            found = policy.settle(state, now);
            found
        });
        present.then_some(found)
    }

    /// Replaces a bucket's state by what `next` makes of it. False if there is no such bucket.
    #[inline]
    pub(super) fn update(&mut self, tag: u64, next: impl FnOnce(State) -> State) -> bool {
        let Some(slot) = self.slots.find_mut(tag, |slot| slot.tag == tag) else {
            return false;
        };
        let state = next(slot.state);
        // A refusal writes nothing, not even the same again.
        if state != slot.state {
            slot.state = state;
            self.earliest = self.earliest.min(state.until);
        }
        true
    }

    /// Writes a bucket's state. True if the bucket is a new one.
    pub(super) fn put(&mut self, tag: u64, state: State) -> bool {
        if self.update(tag, |_| state) {
            return false;
        }
        self.slots.insert_unique(tag, Slot { tag, state }, |slot| slot.tag);
        self.earliest = self.earliest.min(state.until);
        true
    }

    /// Drops the buckets that are as good as absent, except those that `spare` names, and says
    /// how many went.
    pub(super) fn purge(&mut self, now: Micros, spare: impl Fn(u64) -> bool) -> usize {
        if self.earliest > now {
            return 0;
        }
        let before = self.slots.len();
        let mut earliest = Micros(u64::MAX);
        self.slots.retain(|slot| {
            let keep = slot.state.until > now || spare(slot.tag);
            if keep {
                earliest = earliest.min(slot.state.until);
            }
            keep
        });
        self.earliest = earliest;
        before - self.slots.len()
    }

    /// Makes space for one more slot beside those that are `pending` in a packed table after a
    /// purge, so that the next purge, which looks at every slot, is some insertions away. Dropped
    /// slots may have left marks that still take space: a table that has them is laid out anew,
    /// and only one that is really full is doubled.
    pub(super) fn stretch(&mut self, pending: usize) {
        let most = self.slots.num_buckets() / 8 * 7;
        if self.slots.len() + pending > most / 16 * 15 {
            let free = self.slots.capacity() - self.slots.len();
            self.slots.reserve(free + 1, |slot| slot.tag);
        } else if self.is_packed(pending) {
            let slots = std::mem::replace(&mut self.slots, HashTable::with_capacity(most));
            for slot in slots {
                self.slots.insert_unique(slot.tag, slot, |slot| slot.tag);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.allocation_size()
    }

    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<(u64, State)> {
        let mut states: Vec<_> = self.slots.iter().map(|slot| (slot.tag, slot.state)).collect();
        states.sort_by_key(|(tag, _)| *tag);
        states
    }
}
