//! What guards say of a request: they count it, and may warn or block its caller.

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::auditing::GuardedRequest;
use super::compiled::CompiledGuard;
use super::inputs::PlanInputs;
use super::plan::{
    AcceptedInputs, PendingInputs, PlanSource, PlannedGuard, PlannedGuards, RequestHead,
    RequestPlan,
};
use super::request::{CountedBy, RequestContent};
use super::{Gateway, RequestContext};
use crate::clock::Micros;
use crate::guards::{Detection, GuardCount};
use crate::limit::guard::GuardStage;
use crate::limit::{Mode, OnError};
use crate::respond::{Answer, Fault, FieldName, Fields, blocked, grpc};
use crate::store::StoreError;
use crate::telemetry::{GuardAction, RequestMeter};

/// What came of counting a request.
#[derive(Debug, Default)]
pub(super) struct GuardVerdict<'a> {
    /// The guards that have warned its caller.
    warned: SmallVec<[&'a CompiledGuard; 1]>,
    pub(super) block: Option<GuardBlock<'a>>,
}

/// The block of a caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardBlock<'a> {
    /// Of several the one that has blocked it for longest.
    guard: &'a CompiledGuard,
    until: Micros,
    asked_at: Micros,
}

impl<'a> GuardBlock<'a> {
    /// The one of two that ends later.
    fn longest(first: Option<Self>, second: GuardBlock<'a>) -> Option<Self> {
        first.filter(|first| first.until >= second.until).or(Some(second))
    }

    /// The answer to the caller. The map of the request's headers is used again.
    fn answer(self, headers: &mut HeaderMap) -> Answer {
        let GuardBlock { guard, until, asked_at } = self;
        let is_grpc = grpc::is_grpc(headers);
        guard.blocked_text.answer(until, asked_at, is_grpc, std::mem::take(headers))
    }
}

impl GuardVerdict<'_> {
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
    #[inline]
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
    /// Whether a guard has blocked the caller of a request, without counting it. `None` if none has.
    pub(super) fn find_block<'a>(
        &self,
        request: &RequestContext<'_>,
        guards: &PlannedGuards<'a>,
    ) -> Option<GuardBlock<'a>> {
        let (mut block, now) = (None, self.clock.now());
        for PlannedGuard { guard, id, .. } in guards.iter() {
            let GuardCount { stage, until, .. } = self.guards.look_up(&guard.numbers, *id, now);
            if stage == GuardStage::Blocked && guard.guard.mode == Mode::Enforce {
                request.config.guard_meters[guard.index].count(GuardAction::Refused);
                block = GuardBlock::longest(block, GuardBlock { guard, until, asked_at: now });
            }
        }
        block
    }

    /// Has all its guards count a request, unless one of them has blocked the caller.
    ///
    /// # Errors
    /// If the store that gateways share does not answer, and a guard denies everything then.
    pub(super) fn count_guards<'a>(
        &self,
        request: &RequestContext<'_>,
        plan: &RequestPlan<'a>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
        counted_by: &mut CountedBy,
    ) -> Result<GuardVerdict<'a>, StoreError> {
        // One that has blocked the caller does not count the request itself.
        if plan.guards.len() > 1
            && let Some(block) = self.find_block(request, &plan.guards)
        {
            return Ok(GuardVerdict { block: Some(block), ..GuardVerdict::default() });
        }
        let (planner, keys) = (self.planner(request.config), plan.limits.keys.view());
        let (route, address) = (&plan.route, &plan.caller.address);
        let source = PlanSource { planner, route, address, head, inputs };
        let (mut verdict, now) = (GuardVerdict::default(), self.clock.now());
        let mut available = Ok(());
        for planned in plan.guards.iter() {
            let (guard, counting) = (planned.guard, GuardedRequest { planned, source, keys, now });
            let counted = match self.count_guard(&counting, counted_by) {
                Ok(counted) => counted,
                Err(error) => {
                    available = Err(error);
                    continue;
                }
            };
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
                    if counted.detection != Detection::None {
                        self.count_offence(plan.trust.as_ref());
                    }
                    verdict.warned.push(guard);
                }
                GuardStage::Warned => {}
                GuardStage::Blocked => {
                    meter.count(GuardAction::Refused);
                    if enforced {
                        let block = GuardBlock { guard, until: counted.until, asked_at: now };
                        verdict.block = GuardBlock::longest(verdict.block, block);
                    }
                }
            }
        }
        if verdict.block.is_some() { Ok(verdict) } else { available.map(|()| verdict) }
    }

    /// A request that waits for a limit is planned again when the configuration changes, and counted
    /// once.
    fn count_guard(
        &self,
        request: &GuardedRequest<'_, '_>,
        counted_by: &mut CountedBy,
    ) -> Result<GuardCount, StoreError> {
        let PlannedGuard { guard, id, .. } = *request.planned;
        let look_up = || self.guards.look_up(&guard.numbers, id, request.now);
        let alone = self.guards.is_alone();
        match (guard.guard.on_error, guard.guard.mode) {
            (OnError::Deny, Mode::Enforce) if alone => {
                let known = Some(look_up()).filter(|it| it.stage == GuardStage::Blocked);
                known.ok_or(StoreError::Unavailable)
            }
            // Nothing is counted, and what is known stays.
            (OnError::Allow | OnError::Deny, _) if alone => Ok(look_up()),
            _ if counted_by.contains(&id) => Ok(look_up()),
            _ => {
                counted_by.push(id);
                Ok(self.guards.count(&guard.numbers, id, request.now, request))
            }
        }
    }

    /// The answer to a caller that is blocked.
    pub(super) fn refuse_blocked(
        &self,
        block: GuardBlock<'_>,
        plan: &mut RequestPlan<'_>,
        headers: &mut HeaderMap,
        meter: &mut RequestMeter,
    ) -> Answer {
        meter.failed(blocked::ERROR);
        self.count_refusal(&mut plan.trust);
        block.answer(headers)
    }

    /// Has the guards of its route count a request that Weir answers itself. A blocked caller gets
    /// another answer.
    ///
    /// # Errors
    /// As [`count_guards`](Gateway::count_guards).
    pub(super) fn guard_own_answer(
        &self,
        request: &RequestContext<'_>,
        content: &mut RequestContent<'_>,
        meter: &mut RequestMeter,
        mut answer: Answer,
    ) -> Result<Answer, Fault> {
        let RequestContent { headers, counted_by, .. } = content;
        let planner = self.planner(request.config);
        let head = RequestHead::of(request.parts, headers);
        let Ok(route) = planner.route(head) else { return Ok(answer) };
        let mut plan = RequestPlan::begin(route, planner.address(request.peer, headers));
        let inputs = PlanInputs::of(request.peer);
        plan.plan_guards(planner, head, inputs.accepted(), PendingInputs::default());
        let verdict = self.count_guards(request, &plan, head, inputs.accepted(), counted_by)?;
        if let Some(block) = verdict.block {
            return Ok(self.refuse_blocked(block, &mut plan, headers, meter));
        }
        verdict.mark_answer(&mut answer.fields);
        Ok(answer)
    }
}
