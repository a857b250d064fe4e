//! What guards say of a request: they count it, and may warn or block its caller.

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::auditing::GuardedRequest;
use super::compiled::CompiledGuard;
use super::outcomes::is_grpc;
use super::plan::{PlanSource, PlannedGuard, PlannedGuards};
use super::{Gateway, RequestContext};
use crate::clock::Micros;
use crate::guards::{Detection, GuardCount};
use crate::limit::guard::GuardStage;
use crate::limit::{Mode, OnError};
use crate::respond::{Answer, FieldName, Fields};
use crate::store::{BucketKeys, StoreError};
use crate::telemetry::GuardAction;

/// What came of counting a request.
#[derive(Debug, Default)]
pub(super) struct GuardVerdict<'a> {
    /// The guards that have warned its caller.
    warned: SmallVec<[&'a CompiledGuard; 1]>,
    /// The one that has blocked it for longest.
    blocked: Option<Block<'a>>,
    /// How many guards this request was one too many for.
    pub(super) offences: usize,
}

/// The block of a caller.
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    guard: &'a CompiledGuard,
    until: Micros,
    asked_at: Micros,
}

impl GuardVerdict<'_> {
    /// The answer to a caller that is blocked. The map of the request's headers is used again.
    pub(super) fn blocked(&self, headers: &mut HeaderMap) -> Option<Answer> {
        let Block { guard, until, asked_at } = self.blocked?;
        let is_grpc = is_grpc(headers);
        Some(guard.blocked_text.answer(until, asked_at, is_grpc, std::mem::take(headers)))
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Marks a request on its way to the upstream. A mark from a client is removed.
    pub(super) fn mark_request(&self, headers: &mut HeaderMap) {
        headers.remove(FieldName::XWeirWarning.header());
        match &self.warned[..] {
            [] => {}
            [guard] => {
                headers.insert(FieldName::XWeirWarning.header(), guard.header_name.clone());
            }
            guards => {
                let names: Vec<&str> = guards.iter().map(|it| &*it.name).collect();
                if let Ok(value) = HeaderValue::try_from(names.join(", ")) {
                    headers.insert(FieldName::XWeirWarning.header(), value);
                }
            }
        }
    }

    /// Marks the answer likewise.
    pub(super) fn mark_answer(&self, fields: &mut Fields) {
        if self.warned.is_empty() {
            return;
        }
        fields.add_with(FieldName::XWeirWarning, |value| {
            for (index, guard) in self.warned.iter().enumerate() {
                value.text(if index == 0 { b"" } else { b", " }).text(guard.name.as_bytes());
            }
        });
    }
}

impl Gateway {
    /// Counts a request with all its guards.
    ///
    /// # Errors
    /// If the store that gateways share does not answer, and a guard denies everything then.
    pub(super) fn count_guards<'a>(
        &self,
        request: &RequestContext<'_>,
        guards: &PlannedGuards<'a>,
        keys: &BucketKeys,
        source: PlanSource<'_>,
    ) -> Result<GuardVerdict<'a>, StoreError> {
        let mut verdict = GuardVerdict::default();
        let now = self.clock.now();
        for planned in guards {
            let (guard, counting) = (planned.guard, GuardedRequest { planned, source, keys, now });
            let counted = self.count_guard(&counting)?;
            let meter = &request.config.guard_meters[guard.index];
            let enforced = guard.guard.mode == Mode::Enforce;
            if counted.detection == Detection::Noticed {
                meter.count(GuardAction::detected(counted.stage));
                self.note_detection(&counting, &counted);
            }
            match counted.stage {
                GuardStage::Clean => {}
                GuardStage::Warned if enforced => {
                    // A blocked request is counted as refused.
                    verdict.offences += usize::from(counted.detection != Detection::None);
                    verdict.warned.push(guard);
                }
                GuardStage::Warned => {}
                GuardStage::Blocked => {
                    meter.count(GuardAction::Refused);
                    let until = counted.until;
                    if enforced && verdict.blocked.is_none_or(|it| until > it.until) {
                        verdict.blocked = Some(Block { guard, until, asked_at: now });
                    }
                }
            }
        }
        Ok(verdict)
    }

    fn count_guard(&self, request: &GuardedRequest<'_, '_>) -> Result<GuardCount, StoreError> {
        let PlannedGuard { guard, id, .. } = *request.planned;
        let alone = self.guards.is_alone();
        match (guard.guard.on_error, guard.guard.mode) {
            (OnError::Deny, Mode::Enforce) if alone => Err(StoreError::Unavailable),
            // Nothing is counted, and what is known stays.
            (OnError::Allow | OnError::Deny, _) if alone => {
                Ok(self.guards.look_up(&guard.numbers, id, request.now))
            }
            _ => Ok(self.guards.count(&guard.numbers, id, request.now, request)),
        }
    }
}
