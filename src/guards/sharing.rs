//! What a store needs to have gateways share their guards.

use std::sync::Arc;

use super::{GuardTable, Penalty};
use crate::clock::Micros;
use crate::limit::guard::GuardStage;
use crate::store::BucketHasher;
use crate::telemetry::{AuditEvent, AuditLog, GuardAction, GuardCounters, Metrics};

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
        self.audit.record(AuditEvent::BurstDetected {
            blocked,
            identifier: &self.table.caller_names().of(&penalty.key),
            guard: &penalty.guard,
            shadow: self.table.is_shadow(&penalty.guard),
            request: None,
            request_count: penalty.count,
            retry_after: penalty.until.since(now).as_secs_f64(),
        });
    }
}
