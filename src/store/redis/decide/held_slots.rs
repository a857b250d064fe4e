//! The slots of `concurrency` limits that one worker's requests hold.
//!
//! Redis has its own count of them, which may be wrong: a request may have left while it was being
//! decided, a call may have been given up and run after all, Redis may have lost its data. So a
//! report is never a difference but a total, and a bucket whose count may be wrong is only marked
//! dirty. What a dead worker held lapses (`lua/concurrency.lua`).
//!
//! There are two kinds of report: changes, as soon as possible, and that slots are still held, each
//! bucket at its own time, so that ten thousand of them are a trickle and not a flood. How they are
//! sent is in [`resync`](super::resync).
//!
//! What is kept is bounded: buckets with slots by the requests in flight, buckets without (which
//! Redis may still have to hear of) by `max_keys`. A slot that was taken and released while Redis was
//! away leaves nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::time::Instant;

use super::signal::Signal;
use crate::clock;
use crate::limit::Policy;
use crate::limit::concurrency::LEASE;
use crate::store::BucketId;
use crate::store::redis::wire::adjustment::{Adjustment, Op};

/// A lease is renewed after this at the latest, and after half of it at the earliest: buckets that
/// were taken together drift apart.
const RENEWAL: Duration = Duration::from_millis(LEASE.as_millis() as u64 / 3);
/// How often leases are checked for being due.
pub(crate) const SWEEP: Duration = Duration::from_millis(100);
/// Changes in one chunk: at least as many as one call can take slots, or they would pile up.
const CHANGES: usize = 512;
/// Renewals in one chunk. A decision may come right behind them.
const RENEWALS: usize = 64;

#[derive(Debug)]
pub(crate) struct HeldSlots {
    table: RefCell<HoldTable>,
    /// Chunks on their way.
    in_flight: Cell<usize>,
    changed: Signal,
    /// The first bucket was taken.
    begun: Signal,
}

#[derive(Debug)]
struct HoldTable {
    held: HashMap<BucketId, SlotHold>,
    /// What is to be reported, in order. An entry counts if its bucket bears the same number.
    changes: VecDeque<(u64, BucketId)>,
    /// How many entries there have ever been, and how many count.
    entries: u64,
    pending: usize,
    /// Leases that are due.
    renewals: VecDeque<BucketId>,
    swept: Instant,
    drift: u32,
    /// Buckets without a slot, and how many of them are kept.
    idle: usize,
    most_idle: usize,
}

/// One worker's slots in one bucket.
#[derive(Debug)]
struct SlotHold {
    name: Box<[u8]>,
    policy: Policy,
    count: u64,
    /// What Redis counts for this worker, if that is certain.
    reported: Option<u64>,
    /// Its entry in [`HoldTable::changes`], or zero.
    entry: u64,
    renew_at: Instant,
}

/// Slots as they are reported to Redis.
#[derive(Debug)]
pub(crate) struct SlotReport {
    bucket: BucketId,
    pub(crate) name: Box<[u8]>,
    policy: Policy,
    count: u64,
}

impl SlotReport {
    pub(crate) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment { op: Op::Hold, name: &self.name, policy: &self.policy, cost: self.count }
    }
}

impl HeldSlots {
    /// Keeps at most so many buckets that only Redis knows slots of.
    pub(crate) fn new(most_idle: usize) -> Self {
        let table = HoldTable {
            held: HashMap::new(),
            changes: VecDeque::new(),
            entries: 0,
            pending: 0,
            renewals: VecDeque::new(),
            swept: clock::cached_now(),
            drift: 0,
            idle: 0,
            most_idle,
        };
        HeldSlots {
            table: RefCell::new(table),
            in_flight: Cell::new(0),
            changed: Signal::default(),
            begun: Signal::default(),
        }
    }

    /// A request holds slots that Redis gave it, which has renewed the lease of all in the bucket.
    pub(crate) fn take(&self, bucket: BucketId, name: &[u8], policy: &Policy, count: u64) {
        let renew_at = self.table.borrow_mut().renewal(clock::cached_now());
        self.change(bucket, name, policy, |held| {
            held.count += count;
            held.reported = held.reported.map(|reported| reported + count);
            held.renew_at = renew_at;
        });
    }

    /// A request holds slots that Redis does not know of.
    pub(crate) fn take_alone(&self, bucket: BucketId, name: &[u8], policy: &Policy, count: u64) {
        self.change(bucket, name, policy, |held| held.count += count);
    }

    /// A request has ended.
    pub(crate) fn release(&self, bucket: BucketId, name: &[u8], policy: &Policy, count: u64) {
        self.change(bucket, name, policy, |held| held.count = held.count.saturating_sub(count));
    }

    /// Redis may have another count of this bucket.
    pub(crate) fn mark_dirty(&self, bucket: BucketId, name: &[u8], policy: &Policy) {
        self.change(bucket, name, policy, |held| held.reported = None);
    }

    /// Redis may have other counts of all of them, or none.
    pub(crate) fn mark_all_dirty(&self) {
        let table = &mut *self.table.borrow_mut();
        for (bucket, held) in &mut table.held {
            held.reported = None;
            if held.entry == 0 {
                table.entries += 1;
                held.entry = table.entries;
                table.changes.push_back((held.entry, *bucket));
                table.pending += 1;
            }
        }
        self.changed.raise();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.borrow().held.is_empty()
    }

    /// Whether Redis knows of all that is held, and of no more.
    pub(crate) fn is_synced(&self) -> bool {
        self.table.borrow().pending == 0 && self.in_flight.get() == 0
    }

    /// Whether there is something to report and nothing on its way.
    pub(crate) fn is_due(&self) -> bool {
        let table = self.table.borrow();
        self.in_flight.get() == 0 && (table.pending > 0 || !table.renewals.is_empty())
    }

    /// Resolves when there is something to report and nothing on its way.
    pub(crate) async fn due(&self) {
        while !self.is_due() {
            self.changed.raised().await;
        }
    }

    /// Resolves when there is something that could be due one day.
    pub(crate) async fn any(&self) {
        while self.is_empty() {
            self.begun.raised().await;
        }
    }

    /// Finds the leases that are due.
    pub(crate) fn sweep(&self, now: Instant) {
        let table = &mut *self.table.borrow_mut();
        if now < table.swept + SWEEP || !table.renewals.is_empty() {
            return;
        }
        table.swept = now;
        let due = |held: &SlotHold| held.count > 0 && held.entry == 0 && held.renew_at <= now;
        let due = table.held.iter().filter(|(_, held)| due(held)).map(|(bucket, _)| *bucket);
        table.renewals.extend(due);
        self.changed.raise();
    }

    /// What is to be reported next: first those buckets that are asked for right behind it, then
    /// others, unless something is on its way already. From here on Redis counts as knowing it.
    pub(crate) fn take_chunk(
        &self,
        now: Instant,
        asked: impl Iterator<Item = BucketId>,
    ) -> Vec<SlotReport> {
        let table = &mut *self.table.borrow_mut();
        let mut chunk = Vec::new();
        if table.pending > 0 {
            chunk.extend(asked.filter_map(|bucket| table.report_change(bucket, now)));
        }
        if self.in_flight.get() == 0 {
            while chunk.len() < CHANGES
                && let Some((entry, bucket)) = table.changes.pop_front()
            {
                if table.held.get(&bucket).is_some_and(|held| held.entry == entry) {
                    chunk.extend(table.report_change(bucket, now));
                }
            }
            let most = chunk.len() + RENEWALS;
            while chunk.len() < most
                && let Some(bucket) = table.renewals.pop_front()
            {
                chunk.extend(table.report(bucket, now));
            }
        }
        if !chunk.is_empty() {
            self.in_flight.update(|in_flight| in_flight + 1);
        }
        chunk
    }

    /// A chunk is no longer on its way. `received`: Redis has certainly got it.
    pub(crate) fn finish_chunk(&self, chunk: &[SlotReport], received: bool) {
        self.in_flight.update(|in_flight| in_flight - 1);
        if !received {
            for it in chunk {
                self.mark_dirty(it.bucket, &it.name, &it.policy);
            }
        }
        self.changed.raise();
    }

    fn change(
        &self,
        bucket: BucketId,
        name: &[u8],
        policy: &Policy,
        change: impl FnOnce(&mut SlotHold),
    ) {
        let table = &mut *self.table.borrow_mut();
        let held = match table.held.entry(bucket) {
            Entry::Occupied(it) => it.into_mut(),
            Entry::Vacant(it) => {
                self.begun.raise();
                table.idle += 1;
                it.insert(SlotHold {
                    name: name.into(),
                    policy: *policy,
                    count: 0,
                    reported: Some(0),
                    entry: 0,
                    renew_at: clock::cached_now(),
                })
            }
        };
        let was_idle = held.count == 0;
        held.policy = *policy;
        change(held);
        let is_idle = held.count == 0;
        table.idle = table.idle + usize::from(is_idle) - usize::from(was_idle);
        if held.reported != Some(held.count) && held.entry == 0 {
            table.entries += 1;
            held.entry = table.entries;
            table.changes.push_back((held.entry, bucket));
            table.pending += 1;
        }
        // What there is no room for lapses in Redis, sooner than it could be reported.
        if is_idle && (held.reported == Some(0) || table.idle > table.most_idle) {
            table.forget(bucket);
        }
        if table.pending > 0 {
            self.changed.raise();
        }
    }
}

impl HoldTable {
    /// When a lease is to be renewed that was given now. Steps of the golden ratio spread evenly,
    /// however many they are.
    fn renewal(&mut self, now: Instant) -> Instant {
        self.drift = self.drift.wrapping_add(0x9e37_79b9);
        now + RENEWAL - (RENEWAL / 2).mul_f64(f64::from(self.drift) / f64::from(u32::MAX))
    }

    /// The report of a bucket, if it has changed.
    fn report_change(&mut self, bucket: BucketId, now: Instant) -> Option<SlotReport> {
        if self.held.get(&bucket)?.entry == 0 {
            return None;
        }
        self.report(bucket, now)
    }

    fn report(&mut self, bucket: BucketId, now: Instant) -> Option<SlotReport> {
        let renew_at = self.renewal(now);
        let held = self.held.get_mut(&bucket)?;
        if held.entry != 0 {
            held.entry = 0;
            self.pending -= 1;
        }
        held.reported = Some(held.count);
        held.renew_at = renew_at;
        let SlotHold { ref name, policy, count, .. } = *held;
        let report = SlotReport { bucket, name: name.clone(), policy, count };
        if count == 0 {
            self.forget(bucket);
        }
        Some(report)
    }

    /// Drops a bucket without a slot.
    fn forget(&mut self, bucket: BucketId) {
        let Some(held) = self.held.remove(&bucket) else { return };
        self.idle -= 1;
        if held.entry != 0 {
            self.pending -= 1;
        }
        // Its entry stays until its turn comes; while Redis is away that is never.
        if self.changes.len() > 2 * self.pending + CHANGES {
            let held = &self.held;
            self.changes.retain(|(entry, it)| held.get(it).is_some_and(|it| it.entry == *entry));
        }
    }
}

#[cfg(test)]
mod tests;
