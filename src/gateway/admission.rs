//! The decision on a request: all of its checks at one instant, by the store.
//!
//! Where a limit has requests wait, until it admits them (strategy `queue`, [`queued`]) or until
//! their turn has come (`leaky_bucket`, [`paced`]), that happens here, too.

mod paced;
mod queued;

use tokio::time::Instant;

use super::outcomes::{LimitOutcome, LimitOutcomes};
use super::{Gateway, RequestContext, RequestGuard};
use crate::clock::{self, Micros};
use crate::limit::Mode;
use crate::respond::Fault;
use crate::store::{Decision, Store, StoreError};
use crate::telemetry::Outcome;

/// A decision, and when it was there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    pub decision: Decision,
    pub decided_at: Instant,
}

/// Why a request gets no further.
#[derive(Debug)]
pub(super) enum AdmitError {
    Fault(Fault),
    /// Another configuration is served by now: the request, which has only waited, is planned anew.
    Outdated,
}

impl<F: Into<Fault>> From<F> for AdmitError {
    fn from(fault: F) -> Self {
        AdmitError::Fault(fault.into())
    }
}

impl Gateway {
    /// Decides a request where neither the store nor a limit has it wait; `None` elsewhere. Most
    /// requests are decided here, and pay for no future.
    pub(super) fn admit_immediately(
        &self,
        request: &RequestContext<'_>,
        limits: &mut LimitOutcomes<'_, '_>,
    ) -> Option<Result<Admission, StoreError>> {
        let planned = &*limits.planned;
        if planned.queues || planned.checks.is_empty() || planned.unkeyed().next().is_some() {
            return None;
        }
        if planned.paces && self.queues.pacing.is_used() {
            return None;
        }
        let (asked, outcomes) = limits.asked();
        let decision = self.store.try_decide(asked, outcomes)?;
        // The store has looked at the clock to decide.
        let decided_at = clock::cached_now();
        let admission = decision.map(|decision| Admission { decision, decided_at });
        if let Ok(admission) = admission {
            observe(request, admission);
        }
        count(request, limits, admission.as_ref().is_ok_and(|it| it.decision.admitted));
        Some(admission)
    }

    /// Decides a request, and has it wait if that is how it may pass. Each limit counts what came
    /// of it.
    pub(super) async fn admit(
        &self,
        request: &RequestContext<'_>,
        guard: &RequestGuard,
        limits: &mut LimitOutcomes<'_, '_>,
    ) -> Result<Admission, AdmitError> {
        for index in limits.planned.unkeyed() {
            let shadow = request.config.compiled.limits[index].limit.mode == Mode::Shadow;
            let outcome = if shadow { Outcome::ShadowRefused } else { Outcome::Refused };
            request.config.limit_meters[index].count(outcome);
        }
        if limits.planned.checks.is_empty() {
            let decision = Decision { now: Micros::default(), admitted: true, alone: false };
            return Ok(Admission { decision, decided_at: request.started });
        }
        let admission = self.decide_or_queue(request, guard, limits).await;
        if !matches!(admission, Err(AdmitError::Outdated)) {
            let admitted = admission.as_ref().is_ok_and(|it| it.decision.admitted);
            count(request, limits, admitted);
        }
        admission
    }

    /// One decision for all checks.
    async fn decide(&self, limits: &mut LimitOutcomes<'_, '_>) -> Result<Admission, StoreError> {
        let _reservations = match self.reserve_pacing(limits) {
            Ok(reservations) => reservations,
            Err(full) => return self.reject(limits, full.check, full.rejection).await,
        };
        let (asked, outcomes) = limits.asked();
        let decision = self.store.decide(asked, outcomes).await?;
        // The store has looked at the clock to decide.
        Ok(Admission { decision, decided_at: clock::cached_now() })
    }
}

/// How long it took to decide.
fn observe(request: &RequestContext<'_>, admission: Admission) {
    let config = request.config;
    let alone = admission.decision.alone;
    let seconds = if alone { &config.alone_seconds } else { &config.decision_seconds };
    seconds.observe((admission.decided_at - request.started).as_secs_f64());
}

/// Counts what each limit said. Of a request that is refused, the limits that did not refuse count
/// nothing: a store need not even have asked them. Nor do the levels of a tree that only watches, where
/// another would have refused.
fn count(request: &RequestContext<'_>, limits: &LimitOutcomes<'_, '_>, admitted: bool) {
    for LimitOutcome { limit, outcome, .. } in limits.told() {
        let outcome = match (outcome.refused, limit.limit.mode) {
            _ if !outcome.decided => Outcome::Unchecked,
            (None, Mode::Shadow) if outcome.withheld => continue,
            (None, Mode::Shadow) => Outcome::ShadowAllowed,
            (Some(_), Mode::Shadow) => Outcome::ShadowRefused,
            (None, Mode::Enforce) if admitted => Outcome::Allowed,
            (None, Mode::Enforce) => continue,
            (Some(_), Mode::Enforce) if admitted && limit.degrades() => Outcome::Degraded,
            (Some(_), Mode::Enforce) => Outcome::Refused,
        };
        request.config.limit_meters[limit.index].count(outcome);
    }
}
