//! Waiting in a queue until a limit admits: for the front of the queue, and then for the instant at
//! which the store said that the request would pass.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::outcomes::{LimitOutcomes, QueuedLimit};
use super::super::queues::{QueueEvent, QueueRejection, QueueRequest, QueueTicket, TIMER_SLACK};
use super::super::{Gateway, RequestContext, RequestGuard};
use super::{Admission, AdmitError, observe};
use crate::clock::{self, Micros};
use crate::limit::Policy;
use crate::store::{Decision, Store, StoreError};
use crate::telemetry::Outcome;

/// How often the first in a queue asks for slots of a `concurrency` limit. Those that this process
/// releases wake it at once, but other gateways may release some, too.
const SLOT_POLL: Duration = Duration::from_millis(20);

/// The last refusal of a request that waits.
#[derive(Debug, Clone, Copy)]
struct LastRefusal {
    admission: Admission,
    /// When the store was asked.
    asked_at: Instant,
    /// When it would pass, on the store's clock.
    passes: Micros,
    /// How often slots had become free before it was asked.
    freed: u64,
}

impl LastRefusal {
    /// When it passes at the earliest. When slots become free is not known.
    fn earliest(self, policy: &Policy) -> Instant {
        self.asked_at + if policy.is_held() { Duration::ZERO } else { self.wait() }
    }

    /// When to ask again.
    fn next_check(self, policy: &Policy, deadline: Instant) -> Instant {
        if policy.is_held() {
            return (self.admission.decided_at + SLOT_POLL).min(deadline);
        }
        self.admission.decided_at + self.wait()
    }

    /// Whether it cannot pass in time.
    fn is_final(self, policy: &Policy, deadline: Instant) -> bool {
        if policy.is_held() {
            return self.admission.decided_at >= deadline;
        }
        self.earliest(policy) > deadline + TIMER_SLACK
    }

    fn wait(self) -> Duration {
        self.passes.since(self.admission.decision.now)
    }
}

/// What came of waiting, unless the configuration has changed.
type Queued<T> = Result<Result<T, QueueRejection>, AdmitError>;

impl Gateway {
    pub(super) async fn decide_or_queue(
        &self,
        request: &RequestContext<'_>,
        guard: &RequestGuard,
        limits: &mut LimitOutcomes<'_, '_>,
    ) -> Result<Admission, AdmitError> {
        // FIFO: queue behind existing waiters.
        if self.queues.is_used()
            && let Some(queued) = limits.occupied_queue(|bucket| self.queues.is_occupied(bucket))
        {
            return self.queue(request, guard, limits, queued, None).await;
        }
        let freed = self.queues.freed_count();
        let asked_at = clock::cached_now();
        let admission = self.decide(limits).await?;
        // What comes after this is waiting for a limit, not for its store.
        observe(request, admission);
        if admission.decision.admitted {
            return Ok(admission);
        }
        match limits.queued_limit(admission.decision.now) {
            None => Ok(admission),
            Some((queued, passes)) => {
                let refusal = LastRefusal { admission, asked_at, passes, freed };
                self.queue(request, guard, limits, queued, Some(refusal)).await
            }
        }
    }

    /// Joins the queue of a limit, and waits there for the instant at which the request would pass.
    async fn queue(
        &self,
        request: &RequestContext<'_>,
        guard: &RequestGuard,
        limits: &mut LimitOutcomes<'_, '_>,
        queued: QueuedLimit,
        refusal: Option<LastRefusal>,
    ) -> Result<Admission, AdmitError> {
        let (limit, check) =
            (limits.planned.limits[queued.check], &limits.planned.checks[queued.check]);
        let joining = QueueRequest {
            bucket: check.bucket,
            policy: check.policy,
            cost: check.cost,
            earliest: refusal.map(|refusal| refusal.earliest(check.policy)),
            deadline: request.started + queued.max_wait,
            max_queue: queued.max_queue,
            depth: &limit.queue_depth,
        };
        let ticket = match self.queues.join(&joining) {
            Ok(ticket) => ticket,
            Err(rejection) => {
                let Some(LastRefusal { admission, .. }) = refusal else {
                    return Ok(self.reject(limits, queued.check, rejection).await?);
                };
                limits.refuse_for(queued.check, rejection.wait(admission.decided_at));
                return Ok(admission);
            }
        };
        request.config.limit_meters[limit.index].count(Outcome::Queued);
        let _waiting = guard.wait();
        match self.wait_and_decide(request, limits, queued, &ticket, refusal).await? {
            Ok(admission) => {
                let outcome = &limits.outcomes[queued.check];
                if admission.decision.admitted && outcome.decided {
                    ticket.admitted(outcome, admission.decided_at);
                }
                Ok(admission)
            }
            Err(rejection) => Ok(self.reject(limits, queued.check, rejection).await?),
        }
    }

    /// From the end of the queue to its front.
    async fn wait_for_front(
        &self,
        request: &RequestContext<'_>,
        policy: &Policy,
        ticket: &QueueTicket<'_>,
        deadline: Instant,
    ) -> Queued<()> {
        let mut until = deadline;
        loop {
            tokio::select! {
                event = timeout_at(until, ticket.first()) => match event {
                    Ok(QueueEvent::Ready) => return Ok(Ok(())),
                    Ok(QueueEvent::TooLate(passes)) => {
                        return Ok(Err(QueueRejection::TooLate(passes)));
                    }
                    Ok(QueueEvent::Draining) => return Ok(Err(QueueRejection::Draining)),
                    Err(_) => {}
                },
                () = self.config_replaced(request) => return Err(AdmitError::Outdated),
            }
            // Those before it may only have woken up late, and what it costs is there by then.
            let passes = ticket.passes();
            if policy.is_held() || passes > deadline + TIMER_SLACK {
                return Ok(Err(QueueRejection::TooLate(passes)));
            }
            until = Instant::now() + TIMER_SLACK;
        }
    }

    /// From the end of the queue to its front, and to a decision.
    async fn wait_and_decide(
        &self,
        request: &RequestContext<'_>,
        limits: &mut LimitOutcomes<'_, '_>,
        queued: QueuedLimit,
        ticket: &QueueTicket<'_>,
        mut last: Option<LastRefusal>,
    ) -> Queued<Admission> {
        let deadline = request.started + queued.max_wait;
        let mut policy = limits.planned.checks[queued.check].policy;
        if let Err(rejection) = self.wait_for_front(request, policy, ticket, deadline).await? {
            return Ok(Err(rejection));
        }
        let mut first_since = Some(Instant::now());
        if let Some(at) = ticket.next_check() {
            tokio::select! {
                () = sleep_until(at) => {}
                event = ticket.freed(at, self.queues.freed_count()) => {
                    if event == QueueEvent::Draining {
                        return Ok(Err(QueueRejection::Draining));
                    }
                }
                () = self.config_replaced(request) => return Err(AdmitError::Outdated),
            }
        }
        loop {
            if let Some(refusal) = last {
                if refusal.is_final(policy, deadline) {
                    return Ok(Ok(refusal.admission));
                }
                tokio::select! {
                    () = sleep_until(refusal.next_check(policy, deadline)) => {}
                    event = ticket.freed(refusal.earliest(policy), refusal.freed) => {
                        if event == QueueEvent::Draining {
                            return Ok(Ok(refusal.admission));
                        }
                    }
                    () = self.config_replaced(request) => return Err(AdmitError::Outdated),
                }
            }
            // While it is the first, what refills in this bucket is its own, also what refilled while
            // it woke up. Of its other limits it knows nothing of the kind.
            let waited = first_since.map_or(Duration::ZERO, |since| since.elapsed());
            limits.planned.checks[queued.check].waited = waited.as_micros() as u64;
            // Reading the clock also renews the cached instant, which is from before the wait and which
            // a store that knows refusals beforehand goes by.
            let (freed, asked_at) = (self.queues.freed_count(), clock::now());
            let admission = self.decide(limits).await?;
            if admission.decision.admitted {
                return Ok(Ok(admission));
            }
            // While it waits for another limit, what refills here is everybody's.
            let refused = limits.outcomes[queued.check].refused;
            first_since = refused.and(first_since.or(Some(admission.decided_at)));
            let Some((longest, passes)) = limits.queued_limit(admission.decision.now) else {
                return Ok(Ok(admission));
            };
            policy = limits.planned.checks[longest.check].policy;
            last = Some(LastRefusal { admission, asked_at, passes, freed });
        }
    }

    /// Resolves when another file is served than the one that the request was planned by. Overrides
    /// do not count: a request that waits keeps its position, and the numbers it was planned with.
    async fn config_replaced(&self, request: &RequestContext<'_>) {
        loop {
            let changed = self.config_changed.notified();
            let served = self.config.borrow().compiled.settings.clone();
            if !Arc::ptr_eq(&request.config.compiled.settings, &served) {
                return;
            }
            changed.await;
        }
    }

    /// Refuses a request without having the store decide, which only says how its buckets are.
    pub(super) async fn reject(
        &self,
        limits: &mut LimitOutcomes<'_, '_>,
        check: usize,
        rejection: QueueRejection,
    ) -> Result<Admission, StoreError> {
        let (asked, outcomes) = limits.asked();
        let decision = self.store.peek(asked, outcomes).await?;
        let decided_at = clock::now();
        // What is left, if anything is, belongs to the requests that wait.
        limits.refuse_for(check, rejection.wait(decided_at));
        Ok(Admission { decision: Decision { admitted: false, ..decision }, decided_at })
    }
}
