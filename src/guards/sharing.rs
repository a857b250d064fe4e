//! What a store needs to have gateways share their guards.

use std::sync::Arc;

use super::{GuardTable, Penalty};
use crate::clock::Micros;
use crate::limit::Mode;
use crate::limit::guard::GuardStage;
use crate::store::BucketHasher;
use crate::telemetry::{AuditLog, GuardAction, GuardCounters, Metrics};
use crate::violations::{Violation, ViolationEvent, retry_after_seconds};

/// Whether the key had been blocked here when the store was to be told that it was warned.
pub fn is_overtaken(noticed: &Violation, stage: GuardStage) -> bool {
    noticed.event == ViolationEvent::BurstDetectedWarning && stage == GuardStage::Blocked
}

#[derive(Debug, Clone)]
pub struct GuardSharing {
    pub table: Arc<GuardTable>,
    pub hasher: BucketHasher,
    pub metrics: Metrics,
    pub audit: AuditLog,
}

impl GuardSharing {
    /// Counts and records an offence: with the request that was one too many, or without one if only
    /// several gateways together have found it.
    pub fn note_detection(&self, penalty: &Penalty, noticed: Option<Violation>, now: Micros) {
        let action = GuardAction::detected(penalty.stage);
        GuardCounters::new(&penalty.guard, penalty.mode, &self.metrics).count(action);
        let event = ViolationEvent::detected(penalty.stage);
        let violation = noticed.unwrap_or_else(|| Violation {
            guard: Some(penalty.guard.clone()),
            shadow: penalty.mode == Mode::Shadow,
            ..Violation::new(event, penalty.key.clone(), "guard")
        });
        self.audit.note_violation(Violation {
            event,
            severity: event.severity(),
            request_count: Some(penalty.count),
            retry_after: Some(retry_after_seconds(penalty.until, now)),
            ..violation
        });
    }

    /// The same where another offence has been noticed, counted and recorded here before a store was told
    /// of this one: it is recorded as it was.
    pub fn note_overtaken(&self, penalty: &Penalty, noticed: Violation) {
        let action = GuardAction::detected(GuardStage::Warned);
        GuardCounters::new(&penalty.guard, penalty.mode, &self.metrics).count(action);
        self.audit.note_violation(noticed);
    }

    /// Counts and records what was noticed here and could not be told to a store.
    pub fn note_pending(&self, now: Micros) {
        for (penalty, violation) in self.table.take_pending() {
            match is_overtaken(&violation, penalty.stage) {
                true => self.note_overtaken(&penalty, violation),
                false => self.note_detection(&penalty, Some(violation), now),
            }
        }
    }
}
