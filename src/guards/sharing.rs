//! What a store needs to have gateways share their guards.

use std::sync::Arc;

use super::{GuardTable, Penalty};
use crate::clock::Micros;
use crate::limit::guard::GuardStage;
use crate::store::BucketHasher;
use crate::telemetry::{AuditLog, GuardAction, GuardCounters, Metrics};
use crate::violations::{Violation, ViolationEvent, seconds_until};

#[derive(Debug, Clone)]
pub struct GuardSharing {
    pub table: Arc<GuardTable>,
    pub hasher: BucketHasher,
    pub metrics: Metrics,
    pub audit: AuditLog,
}

impl GuardSharing {
    /// Counts and records an offence that several gateways have found together.
    pub fn note_detection(&self, penalty: &Penalty, now: Micros) {
        let blocked = penalty.stage == GuardStage::Blocked;
        let action = if blocked { GuardAction::Blocked } else { GuardAction::Warned };
        GuardCounters::new(&penalty.guard, &self.metrics).count(action);
        let event = ViolationEvent::detected(penalty.stage);
        let identifier = self.table.caller_names().of(&penalty.key);
        // No single request was one too many: several gateways have counted it together.
        self.audit.note_violation(Violation {
            guard: Some(penalty.guard.clone()),
            shadow: self.table.is_shadow(&penalty.guard),
            request_count: Some(penalty.count),
            retry_after: Some(seconds_until(penalty.until, now)),
            ..Violation::new(event, identifier, "guard")
        });
    }
}
