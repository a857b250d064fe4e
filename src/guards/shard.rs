//! A part of the table of guards, behind one lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::key_text::bounded_key;
use super::{
    CountedRequest, Detection, GuardCount, GuardReport, GuardSubject, Penalty, PenaltyCursor,
    PenaltyId, PenaltyNotice,
};
use crate::bounded_table::{BoundedTable, Position};
use crate::clock::Micros;
use crate::limit::guard::{GuardNumbers, GuardStage, GuardState};
use crate::store::BucketId;
use crate::violations::Violation;

/// Whether the store is told what is counted, and whether it can be asked now who noticed it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reporting {
    Never,
    Later,
    Now,
}

#[derive(Debug)]
pub(super) struct GuardShard {
    entries: BoundedTable<GuardEntry>,
}

#[derive(Debug, Default)]
struct GuardEntry {
    state: GuardState,
    /// What was counted here and not told yet.
    unreported: u32,
    /// The same of the window before, which was over before it could be told.
    unreported_before: u32,
    /// What was noticed here, until the store has said whether others have noticed it before.
    pending: Option<Box<Violation>>,
    /// Known from the first request on where the store has to be told, else from the first offence.
    subject: Option<Box<GuardSubject>>,
}

impl GuardEntry {
    fn is_clean(&self) -> bool {
        self.state.stage == GuardStage::Clean
    }

    /// How much there is to lose; `None` if it is blocked, and must not be forgotten. Those who are
    /// only counted make room before those who are warned.
    fn weight(&self, now: Micros) -> Option<(GuardStage, u64)> {
        let GuardState { window_end, count, stage, until, .. } = self.state;
        match stage {
            _ if window_end <= now && until <= now => Some((GuardStage::Clean, 0)),
            GuardStage::Blocked if until > now => None,
            stage => Some((stage, count)),
        }
    }

    /// Goes on to an instant. Requests that were not told yet stay with their window.
    fn advance(&mut self, numbers: &GuardNumbers, now: Micros) -> GuardState {
        let window_end = self.state.window_end;
        self.state = numbers.at(self.state, now);
        if self.state.window_end != window_end {
            let unreported = std::mem::take(&mut self.unreported);
            let follows = window_end.0 + numbers.window_us == self.state.window_end.0;
            self.unreported_before = if follows { unreported } else { 0 };
        }
        self.state
    }

    fn forgive_unreported(&mut self) {
        (self.unreported, self.unreported_before) = (0, 0);
    }

    fn penalty(&self, id: BucketId) -> Option<Penalty> {
        let GuardSubject { guard, mode, key, shared_key } = self.subject.as_deref()?;
        let GuardState { stage, until, offence, offence_count: count, .. } = self.state;
        (stage != GuardStage::Clean).then(|| Penalty {
            id,
            guard: guard.to_string(),
            mode: *mode,
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
        GuardShard { entries: BoundedTable::new(most) }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// `None` if all keys that there is room for are blocked.
    pub(super) fn count(
        &mut self,
        numbers: &GuardNumbers,
        id: BucketId,
        now: Micros,
        reporting: Reporting,
        request: &impl CountedRequest,
    ) -> Option<GuardCount> {
        let at = self.entries.find(id).or_else(|| self.insert(id, now))?;
        let entry = &mut self.entries[at];
        let before = entry.advance(numbers, now);
        let state = numbers.count(before, now, 1);
        entry.state = state;
        let GuardState { stage, until, count, .. } = state;
        let mut counted = GuardCount { stage, until, count, detection: Detection::None };
        if stage != before.stage {
            let asks = reporting == Reporting::Now && entry.pending.is_none();
            counted.detection = if asks { Detection::Pending } else { Detection::Noticed };
            if asks {
                entry.pending = Some(Box::new(request.violation(&counted).bounded()));
            }
        }
        let reports = reporting != Reporting::Never;
        if entry.subject.is_none() && (reports || counted.detection != Detection::None) {
            entry.subject = Some(Box::new(request.subject()));
        }
        if reports && state != before {
            entry.unreported = entry.unreported.saturating_add(1);
            self.entries.mark_dirty(at);
        }
        Some(counted)
    }

    pub(super) fn look_up(
        &mut self,
        numbers: &GuardNumbers,
        id: BucketId,
        now: Micros,
    ) -> GuardCount {
        // What is clamped stays so: else it would go on with the clock.
        let known = self.entries.find(id).map(|at| self.entries[at].advance(numbers, now));
        let GuardState { stage, until, count, .. } = known.unwrap_or_default();
        GuardCount { stage, until, count, detection: Detection::None }
    }

    pub(super) fn take_reports(
        &mut self,
        most: usize,
        guards: &HashMap<Arc<str>, GuardNumbers>,
        reports: &mut Vec<GuardReport>,
    ) {
        for (id, at) in self.entries.take_dirty(most) {
            let entry = &mut self.entries[at];
            let requests = u64::from(std::mem::take(&mut entry.unreported));
            let before = u64::from(std::mem::take(&mut entry.unreported_before));
            let Some(subject) = entry.subject.as_deref() else { continue };
            // A guard that a reload has removed counts nothing any more.
            let Some(&numbers) = guards.get(&subject.guard) else { continue };
            let (subject, state) = (subject.clone(), entry.state);
            // With the first of two, since that one tells the store of the stage.
            let mut pending = entry.pending.take();
            if before > 0 {
                let window_end = Micros(state.window_end.0.saturating_sub(numbers.window_us));
                let (subject, state) = (subject.clone(), GuardState { window_end, ..state });
                let (requests, pending) = (before, pending.take());
                reports.push(GuardReport { id, subject, numbers, requests, state, pending });
            }
            reports.push(GuardReport { id, subject, numbers, requests, state, pending });
        }
    }

    pub(super) fn put_back(&mut self, report: &GuardReport) {
        let Some(at) = self.entries.find(report.id) else { return };
        let entry = &mut self.entries[at];
        let requests = u32::try_from(report.requests).unwrap_or(u32::MAX);
        let (reported, counted) = (report.state.window_end, entry.state.window_end);
        if reported == counted {
            entry.unreported = entry.unreported.saturating_add(requests);
        } else if reported.0 + report.numbers.window_us == counted.0 {
            entry.unreported_before = entry.unreported_before.saturating_add(requests);
        }
        // Of two that have been noticed since then the later one is kept.
        if entry.pending.is_none() {
            entry.pending = report.pending.clone();
        }
        self.entries.mark_dirty(at);
    }

    pub(super) fn take_pending(&mut self) -> Vec<(Penalty, Violation)> {
        let pending = self.entries.iter_mut().filter_map(|(id, entry)| {
            let violation = entry.pending.take()?;
            Some((entry.penalty(id)?, *violation))
        });
        pending.collect()
    }

    pub(super) fn merge_shared(&mut self, report: &GuardReport, shared: GuardState, now: Micros) {
        let Some(at) = self.entries.find(report.id) else { return };
        let entry = &mut self.entries[at];
        let here = entry.advance(&report.numbers, now);
        let mut state = report.numbers.merge(here, shared, now);
        if state.lifted != here.lifted {
            entry.forgive_unreported();
        }
        if shared.window_end == state.window_end {
            state.count = state.count.max(shared.count + u64::from(entry.unreported));
        }
        entry.state = state;
        // What only this gateway knows is told with the next report.
        let is_known = (state.stage, state.until) == (shared.stage, shared.until);
        if !is_known && state.stage != GuardStage::Clean {
            self.entries.mark_dirty(at);
        }
    }

    /// `None` if there is no room for it.
    pub(super) fn apply_notice(
        &mut self,
        id: BucketId,
        notice: &PenaltyNotice,
        numbers: &GuardNumbers,
        now: Micros,
    ) -> Option<()> {
        let Some(heard) = notice.state() else { return Some(()) };
        if heard.stage == GuardStage::Clean {
            self.lift_heard(id, &heard, numbers, now);
            return Some(());
        }
        if heard.until <= now {
            return Some(());
        }
        let at = self.entries.find(id).or_else(|| self.insert(id, now))?;
        let entry = &mut self.entries[at];
        let here = entry.advance(numbers, now);
        entry.state = numbers.merge(here, heard, now);
        entry.subject.get_or_insert_with(|| {
            Box::new(GuardSubject {
                guard: notice.guard.as_str().into(),
                mode: notice.mode(),
                key: bounded_key(notice.key.clone()),
                shared_key: notice.name.as_bytes().into(),
            })
        });
        Some(())
    }

    pub(super) fn mark_penalties(&mut self) {
        self.entries.mark_all_dirty(|entry| !entry.is_clean());
    }

    pub(super) fn penalties(
        &self,
        now: Micros,
        which: impl Fn(&GuardSubject, PenaltyId) -> bool,
    ) -> Vec<Penalty> {
        let found = self.live(now).filter(|(id, _, subject)| {
            let public_id = PenaltyId::new(*id, &subject.shared_key);
            which(subject, public_id)
        });
        found.filter_map(|(id, entry, _)| entry.penalty(id)).collect()
    }

    /// Clamps penalties that nobody has asked for since the clock was set back.
    pub(super) fn advance_penalties(
        &mut self,
        now: Micros,
        guards: &HashMap<Arc<str>, GuardNumbers>,
    ) {
        for (_, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.is_clean()) {
            let guard = entry.subject.as_deref().map(|it| &it.guard);
            if let Some(&numbers) = guard.and_then(|it| guards.get(it)) {
                entry.advance(&numbers, now);
            }
        }
    }

    /// Where those that are warned or blocked stand in the list of penalties.
    pub(super) fn places(
        &self,
        now: Micros,
    ) -> impl Iterator<Item = (PenaltyCursor, BucketId)> + '_ {
        self.live(now).map(|(id, entry, subject)| {
            let public_id = PenaltyId::new(id, &subject.shared_key);
            (PenaltyCursor::new(entry.state.until, public_id), id)
        })
    }

    pub(super) fn penalty(&self, id: BucketId) -> Option<Penalty> {
        self.entries.find(id).and_then(|at| self.entries[at].penalty(id))
    }

    fn live(&self, now: Micros) -> impl Iterator<Item = (BucketId, &GuardEntry, &GuardSubject)> {
        let live =
            self.entries.iter().filter(move |(_, it)| !it.is_clean() && it.state.until > now);
        live.filter_map(|(id, entry)| Some((id, entry, entry.subject.as_deref()?)))
    }

    /// Whatever penalty the key has is lifted, at that instant.
    pub(super) fn lift(&mut self, id: BucketId, lifted: Micros) -> bool {
        let Some(at) = self.entries.find(id) else { return false };
        let entry = &mut self.entries[at];
        let had = !entry.is_clean();
        entry.forgive_unreported();
        // Offences of this window are forgiven, too.
        let window_end = entry.state.window_end;
        entry.state = GuardState { window_end, lifted, ..GuardState::default() };
        had
    }

    /// Another gateway has lifted a penalty. One that began later stays.
    fn lift_heard(
        &mut self,
        id: BucketId,
        heard: &GuardState,
        numbers: &GuardNumbers,
        now: Micros,
    ) {
        let Some(at) = self.entries.find(id) else { return };
        let entry = &mut self.entries[at];
        let (here, lifted) = (entry.advance(numbers, now), heard.lifted.min(now));
        // It is the same also if the guard's numbers were changed meanwhile.
        if here.offence == heard.offence && !entry.is_clean() {
            self.lift(id, lifted.max(here.lifted));
            return;
        }
        entry.state = numbers.lift(here, lifted);
        if entry.state.lifted != here.lifted {
            entry.forgive_unreported();
        }
    }

    /// A new entry. `None` if there is no room for one.
    fn insert(&mut self, id: BucketId, now: Micros) -> Option<Position> {
        let inserted = self.entries.insert(id, GuardEntry::default(), |it| it.weight(now));
        inserted.map(|it| it.at)
    }
}
