//! A part of the table of users, behind one lock.

use std::cmp::Reverse;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{KnownUser, TrustReport};
use crate::limit::trust::{DayCounts, Score, TrustRecord};
use crate::store::BucketId;
use crate::telemetry::UserScores;

/// How many users are compared to find one that may go.
const SAMPLE: usize = 16;
/// How many days may wait to be told: older ones would not count any more.
const MOST_DAYS: usize = 30;

#[derive(Debug)]
pub(super) struct TrustShard {
    /// Indexes of `entries`, by the user's id.
    index: HashTable<u32>,
    entries: Vec<UserEntry>,
    most: usize,
    /// Where the search for a user that may go begins.
    hand: usize,
    /// Whether a store has to be told.
    reports: bool,
    /// Users that the store has to be told or asked about.
    dirty: Vec<BucketId>,
    scores: UserScores,
}

#[derive(Debug)]
struct UserEntry {
    id: BucketId,
    /// All that is known here: what the store has told, and what it has not been told yet.
    record: TrustRecord,
    score: Score,
    is_dirty: bool,
    /// What was counted here and not told yet, by day.
    untold: SmallVec<[DayCounts; 1]>,
    /// The name of the record in the shared store; empty where there is none.
    name: Box<[u8]>,
}

impl UserEntry {
    /// How much there is to remember of it: what has to be told first, then violations, then calls.
    fn weight(&self, today: u32) -> (bool, u32, u64) {
        let sums = self.record.sums(today);
        (!self.untold.is_empty(), sums.violations, sums.successes + sums.failures)
    }

    fn note_untold(&mut self, counts: &DayCounts) {
        if counts.is_nothing() {
            return;
        }
        match self.untold.iter_mut().find(|it| it.day == counts.day) {
            Some(same) => same.add(counts),
            None => {
                if self.untold.len() >= MOST_DAYS {
                    self.untold.remove(0);
                }
                self.untold.push(*counts);
            }
        }
    }
}

impl TrustShard {
    pub(super) fn new(most: usize, reports: bool, scores: UserScores) -> Self {
        let (index, entries, dirty) = (HashTable::new(), Vec::new(), Vec::new());
        TrustShard { index, entries, most, hand: 0, reports, dirty, scores }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn look_up(&self, id: BucketId, today: u32) -> Option<KnownUser> {
        let entry = &self.entries[self.find(id)?];
        Some(KnownUser { score: entry.score, sums: entry.record.sums(today) })
    }

    pub(super) fn introduce(
        &mut self,
        id: BucketId,
        score: Score,
        today: u32,
        name: impl FnOnce() -> Vec<u8>,
    ) {
        match self.find(id) {
            Some(at) => {
                self.scores.remove(self.entries[at].score);
                self.scores.add(score);
                self.entries[at].score = score;
            }
            None => {
                let name = if self.reports { name() } else { Vec::new() };
                let at = self.insert(id, score, name.into(), today);
                self.mark(at);
            }
        }
    }

    pub(super) fn count(&mut self, id: BucketId, counts: &DayCounts) {
        let Some(at) = self.find(id) else { return };
        let entry = &mut self.entries[at];
        entry.record.add(counts);
        if self.reports {
            entry.note_untold(counts);
        }
        // Also if there is nothing to tell: a user who comes back is worth asking about again.
        self.mark(at);
    }

    pub(super) fn take_reports(&mut self, most: usize, reports: &mut Vec<TrustReport>) {
        let from = self.dirty.len().saturating_sub(most);
        for id in self.dirty.split_off(from) {
            let Some(at) = self.find(id) else { continue };
            let entry = &mut self.entries[at];
            entry.is_dirty = false;
            let (name, days) = (entry.name.clone(), std::mem::take(&mut entry.untold));
            reports.push(TrustReport { id, name, days });
        }
    }

    pub(super) fn put_back(&mut self, report: &TrustReport) {
        let Some(at) = self.find(report.id) else { return };
        report.days.iter().for_each(|counts| self.entries[at].note_untold(counts));
        self.mark(at);
    }

    pub(super) fn hear(&mut self, id: BucketId, mut heard: TrustRecord) {
        let Some(at) = self.find(id) else { return };
        let entry = &mut self.entries[at];
        // What was counted since the report went out is not in there.
        entry.untold.iter().for_each(|counts| heard.add(counts));
        entry.record = heard;
    }

    /// Those of whom there is most to remember.
    pub(super) fn kept(&self, most: usize, today: u32) -> Vec<(BucketId, TrustRecord, Score)> {
        let known = self.entries.iter().filter(|it| !it.record.sums(today).is_nothing());
        let mut known: Vec<&UserEntry> = known.collect();
        if known.len() > most {
            known.sort_by_cached_key(|entry| Reverse(entry.weight(today)));
            known.truncate(most);
        }
        known.iter().map(|entry| (entry.id, entry.record, entry.score)).collect()
    }

    pub(super) fn restore(&mut self, id: BucketId, record: TrustRecord, score: Score, today: u32) {
        if record.sums(today).is_nothing() || self.find(id).is_some() {
            return;
        }
        let at = self.insert(id, score, Box::default(), today);
        self.entries[at].record = record;
    }

    fn mark(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if !self.reports || std::mem::replace(&mut entry.is_dirty, true) {
            return;
        }
        self.dirty.push(entry.id);
        // Users that had to make room are still listed, and a store may be away for long.
        if self.dirty.len() > 2 * self.most {
            let dirty = self.entries.iter().filter(|entry| entry.is_dirty);
            self.dirty = dirty.map(|entry| entry.id).collect();
        }
    }

    fn find(&self, id: BucketId) -> Option<usize> {
        let found = self.index.find(hash(id), |at| self.entries[*at as usize].id == id);
        found.map(|at| *at as usize)
    }

    /// A new entry, in place of another if the shard is full.
    fn insert(&mut self, id: BucketId, score: Score, name: Box<[u8]>, today: u32) -> usize {
        if self.entries.len() >= self.most {
            let gone = self.dispensable(today);
            self.remove(gone);
        }
        let at = self.entries.len();
        let (record, untold) = (TrustRecord::default(), SmallVec::new());
        self.entries.push(UserEntry { id, record, score, is_dirty: false, untold, name });
        self.scores.add(score);
        let entries = &self.entries;
        self.index.insert_unique(hash(id), at as u32, |at| hash(entries[*at as usize].id));
        at
    }

    /// Of some users the one of whom there is least to remember. There is at least one.
    fn dispensable(&mut self, today: u32) -> usize {
        let (many, hand) = (self.entries.len(), self.hand);
        self.hand = (hand + SAMPLE) % many;
        let sample = (0..many.min(SAMPLE)).map(|step| (hand + step) % many);
        sample.min_by_key(|at| self.entries[*at].weight(today)).unwrap_or(0)
    }

    fn remove(&mut self, at: usize) {
        let (id, score) = (self.entries[at].id, self.entries[at].score);
        self.scores.remove(score);
        if let Ok(found) = self.index.find_entry(hash(id), |it| *it as usize == at) {
            found.remove();
        }
        self.entries.swap_remove(at);
        // The last one has moved to its place.
        if let Some(moved) = self.entries.get(at) {
            let (from, moved) = (self.entries.len() as u32, hash(moved.id));
            if let Some(it) = self.index.find_mut(moved, |it| *it == from) {
                *it = at as u32;
            }
        }
    }
}

impl Drop for TrustShard {
    fn drop(&mut self) {
        self.entries.iter().for_each(|entry| self.scores.remove(entry.score));
    }
}

/// Ids are keyed hashes already.
fn hash(id: BucketId) -> u64 {
    id.0 as u64
}
