//! A part of the table of users, behind one lock.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{KnownUser, TrustReport};
use crate::bounded_table::{BoundedTable, Position};
use crate::limit::trust::{DayCounts, Score, TrustRecord};
use crate::store::BucketId;
use crate::telemetry::UserScores;

/// How many days may wait to be told: older ones would not count any more.
const MOST_DAYS: usize = 30;

#[derive(Debug)]
pub(super) struct TrustShard {
    entries: BoundedTable<UserEntry>,
    /// Whether a store has to be told.
    reports: bool,
    scores: UserScores,
}

#[derive(Debug)]
struct UserEntry {
    /// All that is known here: what the store has told, and what it has not been told yet.
    record: TrustRecord,
    score: Score,
    /// What was counted here and not told yet, by day.
    unreported: SmallVec<[DayCounts; 1]>,
    /// The name of the record in the shared store; empty where there is none.
    name: Box<[u8]>,
}

impl UserEntry {
    /// How much there is to remember of it: what has to be told first, then violations, then calls.
    fn weight(&self, today: u32) -> (bool, u32, u64) {
        let sums = self.record.sums(today);
        (!self.unreported.is_empty(), sums.violations, sums.successes + sums.failures)
    }

    fn note_unreported(&mut self, counts: &DayCounts) {
        if counts.is_nothing() {
            return;
        }
        match self.unreported.iter_mut().find(|it| it.day == counts.day) {
            Some(same) => same.add(counts),
            None => {
                if self.unreported.len() >= MOST_DAYS {
                    self.unreported.remove(0);
                }
                self.unreported.push(*counts);
            }
        }
    }
}

impl TrustShard {
    pub(super) fn new(most: usize, reports: bool, scores: UserScores) -> Self {
        TrustShard { entries: BoundedTable::new(most), reports, scores }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn look_up(&self, id: BucketId, today: u32) -> Option<KnownUser> {
        let entry = &self.entries[self.entries.find(id)?];
        Some(KnownUser { score: entry.score, sums: entry.record.sums(today) })
    }

    pub(super) fn introduce(
        &mut self,
        id: BucketId,
        score: Score,
        today: u32,
        name: impl FnOnce() -> Vec<u8>,
    ) {
        match self.entries.find(id) {
            Some(at) => {
                self.scores.remove(self.entries[at].score);
                self.scores.add(score);
                self.entries[at].score = score;
            }
            None => {
                let name = if self.reports { name() } else { Vec::new() };
                if let Some(at) = self.insert(id, score, name.into(), today) {
                    self.mark(at);
                }
            }
        }
    }

    pub(super) fn count(&mut self, id: BucketId, counts: &DayCounts) {
        let Some(at) = self.entries.find(id) else { return };
        let entry = &mut self.entries[at];
        entry.record.add(counts);
        if self.reports {
            entry.note_unreported(counts);
        }
        // Also if there is nothing to tell: a user who comes back is worth asking about again.
        self.mark(at);
    }

    pub(super) fn take_reports(&mut self, most: usize, reports: &mut Vec<TrustReport>) {
        for (id, at) in self.entries.take_dirty(most) {
            let entry = &mut self.entries[at];
            let (name, days) = (entry.name.clone(), std::mem::take(&mut entry.unreported));
            reports.push(TrustReport { id, name, days });
        }
    }

    pub(super) fn put_back(&mut self, report: &TrustReport) {
        let Some(at) = self.entries.find(report.id) else { return };
        report.days.iter().for_each(|counts| self.entries[at].note_unreported(counts));
        self.mark(at);
    }

    pub(super) fn merge_shared(&mut self, id: BucketId, mut heard: TrustRecord) {
        let Some(at) = self.entries.find(id) else { return };
        let entry = &mut self.entries[at];
        // What was counted since the report went out is not in there.
        entry.unreported.iter().for_each(|counts| heard.add(counts));
        entry.record = heard;
    }

    /// Those of whom there is most to remember.
    pub(super) fn kept(&self, most: usize, today: u32) -> Vec<(BucketId, TrustRecord, Score)> {
        let all = self.entries.iter();
        let mut known: Vec<_> = all.filter(|(_, it)| !it.record.sums(today).is_nothing()).collect();
        if known.len() > most {
            known.sort_by_cached_key(|(_, entry)| Reverse(entry.weight(today)));
            known.truncate(most);
        }
        known.iter().map(|(id, entry)| (*id, entry.record, entry.score)).collect()
    }

    pub(super) fn restore(&mut self, id: BucketId, record: TrustRecord, score: Score, today: u32) {
        if record.sums(today).is_nothing() || self.entries.find(id).is_some() {
            return;
        }
        if let Some(at) = self.insert(id, score, Box::default(), today) {
            self.entries[at].record = record;
        }
    }

    fn mark(&mut self, at: Position) {
        if self.reports {
            self.entries.mark_dirty(at);
        }
    }

    /// A new entry, in place of another if the shard is full.
    fn insert(
        &mut self,
        id: BucketId,
        score: Score,
        name: Box<[u8]>,
        today: u32,
    ) -> Option<Position> {
        let (record, unreported) = (TrustRecord::default(), SmallVec::new());
        let entry = UserEntry { record, score, unreported, name };
        let inserted = self.entries.insert(id, entry, |it| Some(it.weight(today)))?;
        self.scores.add(score);
        if let Some(removed) = inserted.removed {
            self.scores.remove(removed.score);
        }
        Some(inserted.at)
    }
}

impl Drop for TrustShard {
    fn drop(&mut self) {
        self.entries.iter().for_each(|(_, entry)| self.scores.remove(entry.score));
    }
}
