//! One JSON line for each event that an operator may have to account for.
//!
//! To standard error unless told otherwise. A clone writes where all others do, also after a
//! reload has named other targets. [Violations](crate::violations) are events as well; they come at
//! the rate of an attack, so they share a [budget], and the last of them are kept for those
//! who ask.

mod budget;
mod event;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prometheus::IntCounter;
use serde::Serialize;
use tokio::time::Instant;
use tracing_appender::non_blocking::WorkerGuard;

use super::line_writer::LineWriter;
use super::metrics::Metrics;
use crate::clock;
use crate::config::settings::{AuditTargets, LogTarget};
use crate::violations::{KeptLine, KeptViolation, Violation, ViolationRing};
use budget::AuditBudget;
pub use event::AuditEvent;

/// How many violations may wait for the stream that gateways share.
const MAX_UNSENT: usize = 2_000;

/// Where events are recorded.
#[derive(Debug, Clone)]
pub struct AuditLog {
    shared: Arc<AuditShared>,
}

#[derive(Debug)]
struct AuditShared {
    targets: Mutex<Vec<LineWriter>>,
    budget: AuditBudget,
    /// The last violations.
    ring: Mutex<ViolationRing>,
    /// Whether violations go to a stream as well, and those that have yet to be sent.
    streamed: AtomicBool,
    unsent: Mutex<VecDeque<Arc<str>>>,
    dropped: IntCounter,
}

/// Targets that have been opened. The guards write out what is left when they are dropped.
#[derive(Debug, Default)]
pub struct OpenedTargets {
    pub lines: Vec<LineWriter>,
    pub guards: Vec<WorkerGuard>,
}

impl OpenedTargets {
    /// # Errors
    /// If a file cannot be opened for appending; which one it is.
    pub fn open(targets: &AuditTargets) -> Result<Self, (LogTarget, io::Error)> {
        let mut opened = OpenedTargets::default();
        for target in &targets.lines {
            let line_writer = LineWriter::open_rotating(target, targets.rotation)
                .map_err(|error| (target.clone(), error))?;
            if let Some((lines, guard)) = line_writer {
                opened.lines.push(lines);
                opened.guards.push(guard);
            }
        }
        Ok(opened)
    }
}

impl AuditLog {
    /// A log with no target yet.
    pub fn nowhere(metrics: &Metrics) -> AuditLog {
        let shared = AuditShared {
            targets: Mutex::default(),
            budget: AuditBudget::new(),
            ring: Mutex::default(),
            streamed: AtomicBool::new(false),
            unsent: Mutex::default(),
            dropped: metrics.audit_dropped.clone(),
        };
        AuditLog { shared: Arc::new(shared) }
    }

    /// Has all clones write to these from now on.
    pub fn redirect(&self, lines: Vec<LineWriter>) {
        *self.shared.targets.lock() = lines;
    }

    /// Whether violations are sent to the stream that gateways share.
    pub fn set_streamed(&self, streamed: bool) {
        self.shared.streamed.store(streamed, Ordering::Relaxed);
    }

    pub fn is_streamed(&self) -> bool {
        self.shared.streamed.load(Ordering::Relaxed)
    }

    /// As [`LineWriter::reopen`].
    pub fn reopen(&self) {
        self.shared.targets.lock().iter().for_each(LineWriter::reopen);
    }

    /// Writes one line, without waiting for it.
    pub fn record(&self, event: AuditEvent<'_>) {
        self.write(&line_of(&event::line(clock::unix_time(), &event)));
    }

    /// Whether another violation may be recorded in this second.
    #[inline]
    pub fn has_room(&self, now: Instant) -> bool {
        self.shared.budget.has_room(now)
    }

    /// Records a violation, and says as which line. The caller has asked whether there is room.
    pub fn record_violation(&self, violation: &Violation, now: Instant) -> Arc<str> {
        let line = line_of(violation);
        self.shared.budget.spend(line.len(), now);
        self.write(&line);
        let line: Arc<str> = line.trim_end().into();
        if violation.is_listed() {
            if self.is_streamed() {
                self.queue(line.clone());
            }
            self.shared.ring.lock().push(violation.time, line.clone());
        }
        line
    }

    /// Records one that is rare, or counts it as dropped if there is no room for it.
    pub fn note_violation(&self, violation: Violation) {
        let now = Instant::now();
        if self.has_room(now) {
            self.record_violation(&violation.bounded(), now);
        } else {
            self.count_dropped(violation.events());
        }
    }

    pub fn count_dropped(&self, events: u64) {
        if events > 0 {
            self.shared.dropped.inc_by(events);
        }
    }

    /// The last violations of this process, oldest first.
    pub fn violations(&self) -> Vec<KeptLine> {
        self.shared.ring.lock().all()
    }

    /// Puts back those that an earlier process has kept.
    pub fn restore_violations(&self, kept: Vec<KeptViolation>) {
        self.shared.ring.lock().restore(kept);
    }

    /// Takes violations that have yet to be sent to the stream, the oldest first.
    pub fn take_unsent(&self, most: usize) -> Vec<Arc<str>> {
        let mut unsent = self.shared.unsent.lock();
        let count = most.min(unsent.len());
        unsent.drain(..count).collect()
    }

    /// They could not be sent.
    pub fn put_back_unsent(&self, violations: Vec<Arc<str>>) {
        let mut unsent = self.shared.unsent.lock();
        for violation in violations.into_iter().rev() {
            if unsent.len() == MAX_UNSENT {
                self.count_dropped(events_in(&violation));
            } else {
                unsent.push_front(violation);
            }
        }
    }

    fn queue(&self, violation: Arc<str>) {
        let mut unsent = self.shared.unsent.lock();
        if unsent.len() == MAX_UNSENT
            && let Some(oldest) = unsent.pop_front()
        {
            self.count_dropped(events_in(&oldest));
        }
        unsent.push_back(violation);
    }

    fn write(&self, line: &str) {
        for target in self.shared.targets.lock().iter_mut() {
            let lost = target.write_line(line.as_bytes());
            self.count_dropped(lost);
        }
    }
}

fn line_of(line: &impl Serialize) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// For how many events a line stands.
fn events_in(line: &str) -> u64 {
    serde_json::from_str::<Violation>(line).map_or(1, |it| it.events())
}
