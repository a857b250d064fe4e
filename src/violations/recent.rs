//! One worker's recent violations: the first few of a caller in a window are recorded whole, the
//! rest is counted and summed up in one line when the window has ended.
//!
//! After the first few a violation costs a look-up in a table of a fixed size: no lock, no memory,
//! no text. How much is recorded in a second is bounded for all keys together
//! ([`AuditLog::has_room`]), so a flood of new keys fills no log either. Every violation is in a
//! line, in a sum, or counted as dropped.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Violation, ViolationEvent};
use crate::store::BucketId;
use crate::telemetry::AuditLog;

/// For how long violations of one key are summed up.
const WINDOW: Duration = Duration::from_secs(10);
/// How many of them have lines of their own.
const WHOLE_LINES: u8 = 3;
/// How many keys are told apart at a time.
const SLOTS: usize = 1024;
/// The slots that a key may be in, side by side.
const WAYS: usize = 4;

/// What is the same: one event of one bucket. The name of a bucket has that of its limit in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViolationKey {
    pub event: ViolationEvent,
    pub bucket: BucketId,
}

/// One for each worker. What is left is recorded when it is dropped.
#[derive(Debug)]
pub struct RecentViolations {
    audit: AuditLog,
    slots: RefCell<Box<[Option<Slot>]>>,
    /// Events that are in no line, since the last flush.
    dropped: Cell<u64>,
}

#[derive(Debug)]
struct Slot {
    key: ViolationKey,
    window_ends: Instant,
    lines: u8,
    /// Those without a line of their own.
    repeated: u64,
    /// The last line, if there is one. It is the one that the log keeps, so it costs little.
    last: Option<Arc<str>>,
}

impl Slot {
    fn new(key: ViolationKey, now: Instant) -> Self {
        Slot { key, window_ends: now + WINDOW, lines: 0, repeated: 0, last: None }
    }

    fn has_ended(&self, now: Instant) -> bool {
        now >= self.window_ends
    }
}

impl RecentViolations {
    pub fn new(audit: AuditLog) -> Self {
        let slots = (0..SLOTS).map(|_| None).collect();
        RecentViolations { audit, slots: RefCell::new(slots), dropped: Cell::new(0) }
    }

    /// Notes a violation. `describe` is called only if it is recorded whole.
    pub fn note(&self, key: ViolationKey, now: Instant, describe: impl FnOnce() -> Violation) {
        let mut slots = self.slots.borrow_mut();
        let set = &mut slots[set_of(key)];
        // Under a flood nearly all are one more of the same.
        let repeats =
            |it: &&mut Slot| it.key == key && it.lines >= WHOLE_LINES && !it.has_ended(now);
        if let Some(slot) = set.iter_mut().flatten().find(repeats) {
            slot.repeated += 1;
            return;
        }
        let slot = self.slot(set, key, now);
        if slot.lines < WHOLE_LINES && self.audit.has_room(now) {
            let violation = describe().bounded();
            slot.last = Some(self.audit.record_violation(&violation, now));
            slot.lines += 1;
        } else {
            slot.repeated += 1;
        }
    }

    /// Records the sums of windows that have ended.
    pub fn flush(&self, now: Instant) {
        for entry in self.slots.borrow_mut().iter_mut() {
            if entry.as_ref().is_some_and(|slot| slot.has_ended(now)) {
                self.close(entry, now);
            }
        }
        self.audit.count_dropped(self.dropped.take());
    }

    /// The slot of a key: its own, or a free one, or that of the key with the fewest violations.
    fn slot<'s>(
        &self,
        set: &'s mut [Option<Slot>],
        key: ViolationKey,
        now: Instant,
    ) -> &'s mut Slot {
        let own = set.iter().position(|it| it.as_ref().is_some_and(|slot| slot.key == key));
        let index = own.unwrap_or_else(|| {
            let used = |it: &Option<Slot>| {
                it.as_ref().map_or(0, |slot| 1 + u64::from(slot.lines) + slot.repeated)
            };
            (0..WAYS).min_by_key(|index| used(&set[*index])).unwrap_or_default()
        });
        let entry = &mut set[index];
        if own.is_none() {
            self.close(entry, now);
            self.forget(entry);
        } else if entry.as_ref().is_some_and(|slot| slot.has_ended(now)) {
            self.close(entry, now);
        }
        entry.get_or_insert_with(|| Slot::new(key, now))
    }

    /// Sums up a slot and frees it. One whose sum cannot be recorded now stays as it is.
    fn close(&self, entry: &mut Option<Slot>, now: Instant) {
        let Some(slot) = entry else { return };
        let Some(last) = slot.last.as_deref().filter(|_| slot.repeated > 0) else {
            return self.forget(entry);
        };
        if !self.audit.has_room(now) {
            return;
        }
        if let Ok(last) = serde_json::from_str::<Violation>(last) {
            self.audit.record_violation(&last.summed_up(slot.repeated), now);
            *entry = None;
        }
    }

    fn forget(&self, entry: &mut Option<Slot>) {
        if let Some(slot) = entry.take() {
            self.dropped.set(self.dropped.get() + slot.repeated);
        }
    }
}

/// The slots that a key may be in. Ids are keyed hashes: nobody can choose keys that meet in one set.
fn set_of(key: ViolationKey) -> Range<usize> {
    let first = (key.bucket.0 as usize % (SLOTS / WAYS)) * WAYS;
    first..first + WAYS
}

impl Drop for RecentViolations {
    fn drop(&mut self) {
        let now = Instant::now();
        for entry in self.slots.take().iter_mut() {
            self.close(entry, now);
            self.forget(entry);
        }
        self.audit.count_dropped(self.dropped.take());
    }
}

#[cfg(test)]
mod tests;
