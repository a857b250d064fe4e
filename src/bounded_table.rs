//! A table of a bounded size that knows which of its entries a store has to be told about.
//!
//! What guards know of callers and what is known of users lie in such tables, one behind each lock. A
//! new entry takes the place of the one that weighs least among some. The bound holds for the list of
//! what has to be told as well, however long the store is away.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use crate::store::BucketId;

/// How many entries are compared to find one that may go.
const SAMPLE: usize = 16;
/// How many are looked at if all of those have to stay.
const MOST_SEARCHED: usize = 1_024;

#[derive(Debug)]
pub(crate) struct BoundedTable<E> {
    /// Positions in `slots`, by id.
    index: HashTable<u32>,
    slots: Vec<Slot<E>>,
    most: usize,
    /// Where the search for an entry that may go begins.
    cursor: usize,
    /// Entries that the store has to be told about, and some that have made room since.
    dirty: Vec<BucketId>,
}

#[derive(Debug)]
struct Slot<E> {
    id: BucketId,
    is_dirty: bool,
    entry: E,
}

/// Where an entry is, until another one is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(usize);

/// A new entry, and the one that has made room for it.
#[derive(Debug)]
pub(crate) struct Inserted<E> {
    pub(crate) at: Position,
    pub(crate) removed: Option<E>,
}

impl<E> BoundedTable<E> {
    /// `most` is at least 1.
    pub(crate) fn new(most: usize) -> Self {
        let (index, slots, dirty) = (HashTable::new(), Vec::new(), Vec::new());
        BoundedTable { index, slots, most, cursor: 0, dirty }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BucketId, &E)> {
        self.slots.iter().map(|slot| (slot.id, &slot.entry))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (BucketId, &mut E)> {
        self.slots.iter_mut().map(|slot| (slot.id, &mut slot.entry))
    }

    pub(crate) fn find(&self, id: BucketId) -> Option<Position> {
        let found = self.index.find(hash(id), |at| self.slots[*at as usize].id == id);
        found.map(|at| Position(*at as usize))
    }

    /// Adds an entry that is not there yet. In a full table the lightest of some makes room; one
    /// without a weight has to stay. `None` if none was found that may go.
    pub(crate) fn insert<W: Ord>(
        &mut self,
        id: BucketId,
        entry: E,
        weight: impl Fn(&E) -> Option<W>,
    ) -> Option<Inserted<E>> {
        let mut removed = None;
        if self.slots.len() >= self.most {
            let lightest = self.lightest(weight)?;
            removed = Some(self.remove(lightest));
        }
        let at = self.slots.len();
        self.slots.push(Slot { id, is_dirty: false, entry });
        let slots = &self.slots;
        self.index.insert_unique(hash(id), at as u32, |at| hash(slots[*at as usize].id));
        Some(Inserted { at: Position(at), removed })
    }

    /// Notes that the store has to be told about an entry.
    pub(crate) fn mark_dirty(&mut self, Position(at): Position) {
        let slot = &mut self.slots[at];
        if std::mem::replace(&mut slot.is_dirty, true) {
            return;
        }
        self.dirty.push(slot.id);
        // Entries that have made room are still listed, and a store may be away for long.
        if self.dirty.len() > 2 * self.most {
            let dirty = self.slots.iter().filter(|slot| slot.is_dirty);
            self.dirty = dirty.map(|slot| slot.id).collect();
        }
    }

    /// The same for all of which that is so.
    pub(crate) fn mark_all_dirty(&mut self, which: impl Fn(&E) -> bool) {
        for at in 0..self.slots.len() {
            if which(&self.slots[at].entry) {
                self.mark_dirty(Position(at));
            }
        }
    }

    /// Some entries that the store has to be told about. They are not marked any more.
    pub(crate) fn take_dirty(&mut self, most: usize) -> Vec<(BucketId, Position)> {
        let from = self.dirty.len().saturating_sub(most);
        let mut taken = Vec::new();
        for id in self.dirty.split_off(from) {
            let Some(at) = self.find(id) else { continue };
            // One that made room and came back may be listed twice.
            if std::mem::take(&mut self.slots[at.0].is_dirty) {
                taken.push((id, at));
            }
        }
        taken
    }

    fn lightest<W: Ord>(&mut self, weight: impl Fn(&E) -> Option<W>) -> Option<usize> {
        let (many, cursor) = (self.slots.len(), self.cursor);
        let weighed = |step: usize| {
            let at = (cursor + step) % many;
            Some((weight(&self.slots[at].entry)?, at))
        };
        let sample = (0..many.min(SAMPLE)).filter_map(weighed);
        let (mut searched, mut found) = (SAMPLE, sample.min());
        if found.is_none() {
            searched = many.min(MOST_SEARCHED);
            found = (SAMPLE..searched).find_map(weighed);
        }
        self.cursor = (cursor + searched) % many;
        found.map(|(_, at)| at)
    }

    fn remove(&mut self, at: usize) -> E {
        let id = self.slots[at].id;
        if let Ok(found) = self.index.find_entry(hash(id), |it| *it as usize == at) {
            found.remove();
        }
        let removed = self.slots.swap_remove(at);
        // The last one has moved to its place.
        if let Some(moved) = self.slots.get(at) {
            let (from, moved) = (self.slots.len() as u32, hash(moved.id));
            if let Some(it) = self.index.find_mut(moved, |it| *it == from) {
                *it = at as u32;
            }
        }
        removed.entry
    }
}

impl<E> Index<Position> for BoundedTable<E> {
    type Output = E;

    fn index(&self, Position(at): Position) -> &E {
        &self.slots[at].entry
    }
}

impl<E> IndexMut<Position> for BoundedTable<E> {
    fn index_mut(&mut self, Position(at): Position) -> &mut E {
        &mut self.slots[at].entry
    }
}

/// Ids are keyed hashes already.
fn hash(id: BucketId) -> u64 {
    id.0 as u64
}

#[cfg(test)]
mod tests;
