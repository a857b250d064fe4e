//! A part of the table of guards, behind one lock.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;

use super::{GuardCount, GuardReport, GuardSubject, KnownGuard, Penalty, PenaltyNotice};
use crate::clock::Micros;
use crate::limit::guard::{GuardNumbers, GuardStage, GuardState};
use crate::store::BucketId;

/// How many keys are compared to find one that may go.
const SAMPLE: usize = 16;

#[derive(Debug)]
pub(super) struct GuardShard {
    /// Indexes of `entries`, by the key's id.
    index: HashTable<u32>,
    entries: Vec<GuardEntry>,
    most: usize,
    /// Where the search for a key that may go begins.
    hand: usize,
    /// Keys that the store has to be told about.
    dirty: Vec<BucketId>,
}

#[derive(Debug)]
struct GuardEntry {
    id: BucketId,
    state: GuardState,
    /// What was counted here and not told yet.
    untold: u32,
    /// The same of the window before, which was over before it could be told.
    untold_before: u32,
    is_dirty: bool,
    /// Known from the first request on where the store has to be told, else from the first offence.
    subject: Option<Box<GuardSubject>>,
}

impl GuardEntry {
    fn is_clean(&self) -> bool {
        self.state.stage == GuardStage::Clean
    }

    fn penalty(&self) -> Option<Penalty> {
        let GuardSubject { guard, key, shared_key } = self.subject.as_deref()?;
        let GuardState { stage, until, offence, count, .. } = self.state;
        (stage != GuardStage::Clean).then(|| Penalty {
            id: self.id,
            guard: guard.to_string(),
            key: key.clone(),
            shared_key: shared_key.clone(),
            stage,
            until,
            offence,
            count,
        })
    }
}

impl GuardShard {
    pub(super) fn new(most: usize) -> Self {
        let (index, entries, dirty) = (HashTable::new(), Vec::new(), Vec::new());
        GuardShard { index, entries, most, hand: 0, dirty }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn count(
        &mut self,
        numbers: &GuardNumbers,
        id: BucketId,
        now: Micros,
        reports: bool,
        subject: impl FnOnce() -> GuardSubject,
    ) -> GuardCount {
        let Some(at) = self.find(id).or_else(|| self.insert(id, now)) else {
            // All keys that there is room for are warned or blocked.
            let (stage, until) = (GuardStage::Clean, Micros(0));
            return GuardCount { stage, until, count: 1, detected: false };
        };
        let entry = &mut self.entries[at];
        let before = numbers.at(entry.state, now);
        let state = numbers.count(before, now, 1);
        if before.window_end != entry.state.window_end {
            entry.untold_before = std::mem::take(&mut entry.untold);
        }
        entry.state = state;
        let detected = state.stage != before.stage;
        if entry.subject.is_none() && (reports || detected) {
            entry.subject = Some(Box::new(subject()));
        }
        if reports && state != before {
            entry.untold = entry.untold.saturating_add(1);
            if !std::mem::replace(&mut entry.is_dirty, true) {
                self.dirty.push(id);
            }
        }
        GuardCount { stage: state.stage, until: state.until, count: state.count, detected }
    }

    pub(super) fn look_up(&self, numbers: &GuardNumbers, id: BucketId, now: Micros) -> GuardCount {
        let known = self.find(id).map(|at| self.entries[at].state).unwrap_or_default();
        let GuardState { stage, until, count, .. } = numbers.at(known, now);
        GuardCount { stage, until, count, detected: false }
    }

    pub(super) fn take_reports(
        &mut self,
        most: usize,
        guards: &HashMap<Arc<str>, KnownGuard>,
        reports: &mut Vec<GuardReport>,
    ) {
        let from = self.dirty.len().saturating_sub(most);
        for id in self.dirty.split_off(from) {
            let Some(at) = self.find(id) else { continue };
            let entry = &mut self.entries[at];
            entry.is_dirty = false;
            let requests = u64::from(std::mem::take(&mut entry.untold));
            let before = u64::from(std::mem::take(&mut entry.untold_before));
            let Some(subject) = entry.subject.as_deref() else { continue };
            // A guard that a reload has removed counts nothing any more.
            let Some(guard) = guards.get(&subject.guard) else { continue };
            let (subject, numbers, state) = (subject.clone(), guard.numbers, entry.state);
            if before > 0 {
                let window_end = Micros(state.window_end.0.saturating_sub(numbers.window_us));
                let (subject, state) = (subject.clone(), GuardState { window_end, ..state });
                reports.push(GuardReport { id, subject, numbers, requests: before, state });
            }
            reports.push(GuardReport { id, subject, numbers, requests, state });
        }
    }

    pub(super) fn put_back(&mut self, report: &GuardReport) {
        let Some(at) = self.find(report.id) else { return };
        let entry = &mut self.entries[at];
        if entry.state.window_end == report.state.window_end {
            let requests = u32::try_from(report.requests).unwrap_or(u32::MAX);
            entry.untold = entry.untold.saturating_add(requests);
        }
        self.mark(at);
    }

    pub(super) fn hear(
        &mut self,
        report: &GuardReport,
        heard: GuardState,
        now: Micros,
    ) -> Option<Penalty> {
        let at = self.find(report.id)?;
        let entry = &mut self.entries[at];
        let before = report.numbers.at(entry.state, now);
        let mut state = report.numbers.merge(before, heard, now);
        if heard.window_end == state.window_end {
            state.count = state.count.max(heard.count + u64::from(entry.untold));
        }
        entry.state = state;
        // What only this gateway knows is told with the next report.
        if (state.stage, state.until) != (heard.stage, heard.until)
            && state.stage != GuardStage::Clean
        {
            self.mark(at);
        }
        if state.stage > before.stage { self.entries[at].penalty() } else { None }
    }

    pub(super) fn learn(
        &mut self,
        id: BucketId,
        notice: &PenaltyNotice,
        numbers: &GuardNumbers,
        now: Micros,
    ) {
        let Some(heard) = notice.state() else { return };
        if heard.stage == GuardStage::Clean {
            self.lift(id);
            return;
        }
        if heard.until <= now {
            return;
        }
        let Some(at) = self.find(id).or_else(|| self.insert(id, now)) else { return };
        let entry = &mut self.entries[at];
        entry.state = numbers.merge(entry.state, heard, now);
        entry.state.count = entry.state.count.max(notice.count);
        entry.subject.get_or_insert_with(|| {
            Box::new(GuardSubject {
                guard: notice.guard.as_str().into(),
                key: notice.key.clone(),
                shared_key: notice.name.as_bytes().into(),
            })
        });
    }

    pub(super) fn mark_penalties(&mut self) {
        for at in 0..self.entries.len() {
            if !self.entries[at].is_clean() {
                self.mark(at);
            }
        }
    }

    pub(super) fn penalties(&self, now: Micros) -> Vec<Penalty> {
        let live = self.entries.iter().filter(|entry| entry.state.until > now);
        live.filter_map(GuardEntry::penalty).collect()
    }

    pub(super) fn lift(&mut self, id: BucketId) -> bool {
        let Some(at) = self.find(id) else { return false };
        let entry = &mut self.entries[at];
        let had = !entry.is_clean();
        (entry.untold, entry.untold_before) = (0, 0);
        // Offences of this window are forgiven, too.
        entry.state = GuardState { window_end: entry.state.window_end, ..GuardState::default() };
        had
    }

    fn mark(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if !std::mem::replace(&mut entry.is_dirty, true) {
            self.dirty.push(entry.id);
        }
    }

    fn find(&self, id: BucketId) -> Option<usize> {
        let found = self.index.find(hash(id), |at| self.entries[*at as usize].id == id);
        found.map(|at| *at as usize)
    }

    /// A new entry. `None` if there is no room for one.
    fn insert(&mut self, id: BucketId, now: Micros) -> Option<usize> {
        if self.entries.len() >= self.most {
            let gone = self.dispensable(now)?;
            self.remove(gone);
        }
        let at = self.entries.len();
        let state = GuardState::default();
        self.entries.push(GuardEntry {
            id,
            state,
            untold: 0,
            untold_before: 0,
            is_dirty: false,
            subject: None,
        });
        let entries = &self.entries;
        self.index.insert_unique(hash(id), at as u32, |at| hash(entries[*at as usize].id));
        Some(at)
    }

    /// Of some keys that are neither warned nor blocked, one whose window has ended, or the one with
    /// the fewest requests.
    fn dispensable(&mut self, now: Micros) -> Option<usize> {
        let (many, hand) = (self.entries.len(), self.hand);
        let mut best: Option<(u64, usize)> = None;
        for step in 0..many.min(SAMPLE) {
            let at = (hand + step) % many;
            let entry = &self.entries[at];
            let ended = entry.state.window_end <= now && entry.state.until <= now;
            if !ended && !entry.is_clean() {
                continue;
            }
            let count = if ended { 0 } else { entry.state.count };
            if best.is_none_or(|(least, _)| count < least) {
                best = Some((count, at));
            }
            if ended {
                break;
            }
        }
        self.hand = (hand + SAMPLE) % many.max(1);
        best.map(|(_, at)| at)
    }

    fn remove(&mut self, at: usize) {
        let id = self.entries[at].id;
        let found = self.index.find_entry(hash(id), |it| *it as usize == at);
        if let Ok(found) = found {
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

/// Ids are keyed hashes already.
fn hash(id: BucketId) -> u64 {
    id.0 as u64
}
