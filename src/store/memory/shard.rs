//! One part of the table: the buckets behind one lock.
//!
//! A slot is 24 bytes and a byte of hashbrown's own. The tag stands for the key: shards are
//! chosen by the other half of the keyed hash, so within a shard a tag is 64 unguessable bits.
//!
//! Most algorithms need no more than a slot holds. The entries of a `sliding_log` lie beside the
//! table, and its slot says when the last of them ages out and what they sum up to.

use hashbrown::{HashMap, HashTable};

use crate::clock::Micros;
use crate::limit::sliding_log::{Log, SlidingLog};
use crate::limit::{Policy, State, Verdict};

/// A cost to be evaluated on a clamped state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evaluation {
    pub(super) state: State,
    pub(super) now: Micros,
    pub(super) cost: u64,
    pub(super) waited: u64,
}

/// A charge that was made, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastCharge {
    pub(super) cost: u64,
    pub(super) at: Micros,
}

#[derive(Debug)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
    /// By tag; none that has no slot.
    logs: HashMap<u64, Log>,
    /// No slot ends before this, so until then there is nothing to purge and a shard that is full
    /// of live buckets is not searched at every request.
    earliest: Micros,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u64,
    until: Micros,
    rest: u64,
}

impl Slot {
    fn state(&self) -> State {
        State::new(self.until, self.rest)
    }

    /// Writes a state, and notes its end if no other slot ends as early.
    #[inline]
    fn set(&mut self, state: State, earliest: &mut Micros) {
        // A refusal writes nothing, not even the same again.
        if (state.ends_at, state.rest) != (self.until, self.rest) {
            (self.until, self.rest) = (state.ends_at, state.rest);
            *earliest = state.ends_at.min(*earliest);
        }
    }
}

impl Shard {
    pub(super) fn new() -> Self {
        let (slots, logs) = (HashTable::new(), HashMap::new());
        Self { slots, logs, earliest: Micros(u64::MAX) }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no space for one more slot beside those that are `pending`.
    pub(super) fn is_packed(&self, pending: usize) -> bool {
        self.slots.len() + pending >= self.slots.capacity()
    }

    /// The bucket's state, as it is.
    pub(super) fn state(&mut self, tag: u64) -> Option<State> {
        let mut found = None;
        self.update(tag, |state| {
            found = Some(state);
            state
        });
        found
    }

    /// The bucket's state, clamped to what the policy can hold.
    pub(super) fn get(&mut self, tag: u64, policy: &Policy, now: Micros) -> Option<State> {
        if let Policy::SlidingLog(it) = policy {
            return self.get_log(tag, it, now).map(|(state, _)| state);
        }
        let mut found = State::default();
        let present = self.update(tag, |state| {
            found = policy.clamp(state, now);
            found
        });
        present.then_some(found)
    }

    /// What a log comes to, and whether it had to be clamped.
    fn get_log(&mut self, tag: u64, policy: &SlidingLog, now: Micros) -> Option<(State, bool)> {
        let mut until = Micros(0);
        if !self.update(tag, |state| {
            until = state.ends_at;
            state
        }) {
            return None;
        }
        if until <= now {
            self.logs.remove(&tag);
        }
        let Some(log) = self.logs.get_mut(&tag) else { return Some((State::default(), false)) };
        let was_clamped = policy.clamp_log(log, until, now);
        let state = policy.sum_up(log, now);
        if was_clamped {
            self.update(tag, |_| state);
        }
        Some((state, was_clamped))
    }

    /// What a policy says of a cost, on the clamped state that [`Shard::get`] has found.
    pub(super) fn evaluate(&self, tag: u64, policy: &Policy, request: Evaluation) -> Verdict {
        let Evaluation { state, now, cost, waited } = request;
        match policy {
            Policy::SlidingLog(it) => match self.logs.get(&tag) {
                Some(log) => it.evaluate_log(log, now, cost),
                None => it.evaluate_log(&Log::default(), now, cost),
            },
            _ => policy.evaluate_waited(state, now, cost, waited),
        }
    }

    /// Charges the log of a bucket, which may be a new one. True if it is.
    pub(super) fn charge_log(
        &mut self,
        tag: u64,
        policy: &SlidingLog,
        now: Micros,
        cost: u64,
    ) -> bool {
        let log = self.logs.entry(tag).or_default();
        policy.charge_log(log, now, cost);
        let state = policy.sum_up(log, now);
        self.put(tag, state)
    }

    pub(super) fn log(&self, tag: u64) -> Option<&Log> {
        self.logs.get(&tag)
    }

    /// Gives a bucket these entries. It has to have a slot, now or with the next write.
    pub(super) fn put_log(&mut self, tag: u64, log: Log) {
        self.logs.insert(tag, log);
    }

    /// Refunds a charge.
    pub(super) fn refund(&mut self, tag: u64, policy: &Policy, now: Micros, charge: PastCharge) {
        let PastCharge { cost, at: charged_at } = charge;
        match policy {
            Policy::SlidingLog(it) => {
                let Some((state, was_clamped)) = self.get_log(tag, it, now) else { return };
                let Some(log) = self.logs.get_mut(&tag) else { return };
                if was_clamped || state.ends_at <= now || charged_at > now {
                    return;
                }
                it.refund_log(log, now, cost, charged_at);
                let state = it.sum_up(log, now);
                self.update(tag, |_| state);
            }
            _ => {
                self.update(tag, |state| policy.refund(state, now, cost, charged_at));
            }
        }
    }

    /// The buckets that have not ended by then, with their logs.
    pub(super) fn live(&self, now: Micros) -> impl Iterator<Item = (u64, State, Option<&Log>)> {
        let live = self.slots.iter().filter(move |slot| slot.until > now);
        live.map(|slot| (slot.tag, slot.state(), self.logs.get(&slot.tag)))
    }

    /// When the last of the buckets ends.
    pub(super) fn latest(&self) -> Micros {
        self.slots.iter().map(|slot| slot.until).max().unwrap_or_default()
    }

    /// Replaces a bucket's state by what `next` makes of it. False if there is no such bucket.
    #[inline]
    pub(super) fn update(&mut self, tag: u64, next: impl FnOnce(State) -> State) -> bool {
        let Some(slot) = self.slots.find_mut(tag, |slot| slot.tag == tag) else {
            return false;
        };
        slot.set(next(slot.state()), &mut self.earliest);
        true
    }

    /// Which slot a bucket has. It stays there until one is added or dropped.
    #[inline]
    pub(super) fn find(&self, tag: u64) -> Option<usize> {
        self.slots.find_bucket_index(tag, |slot| slot.tag == tag)
    }

    /// Clamps the bucket in a slot to what the policy can hold, and tells what it holds.
    #[inline]
    pub(super) fn clamp(&mut self, slot: usize, policy: &Policy, now: Micros) -> State {
        let Some(slot) = self.slots.get_bucket_mut(slot) else { return State::default() };
        let state = policy.clamp(slot.state(), now);
        slot.set(state, &mut self.earliest);
        state
    }

    /// Writes the bucket in a slot.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, state: State) {
        if let Some(slot) = self.slots.get_bucket_mut(slot) {
            slot.set(state, &mut self.earliest);
        }
    }

    /// Writes a bucket's state. True if the bucket is a new one.
    pub(super) fn put(&mut self, tag: u64, state: State) -> bool {
        if self.update(tag, |_| state) {
            return false;
        }
        let slot = Slot { tag, until: state.ends_at, rest: state.rest };
        self.slots.insert_unique(tag, slot, |slot| slot.tag);
        self.earliest = self.earliest.min(state.ends_at);
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
            let keep = slot.until > now || spare(slot.tag);
            if keep {
                earliest = earliest.min(slot.until);
            } else if !self.logs.is_empty() {
                self.logs.remove(&slot.tag);
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
        let mut states: Vec<_> = self.slots.iter().map(|slot| (slot.tag, slot.state())).collect();
        states.sort_by_key(|(tag, _)| *tag);
        states
    }
}
