//! Violations of a request: limits that refused it, and guards that took it for a flood.

use tokio::time::Instant;

use super::Gateway;
use super::outcomes::{LimitOutcome, LimitOutcomes};
use super::plan::{CallerTexts, PlanSource, PlannedGuard};
use crate::clock::{self, Micros};
use crate::guards::{CountedRequest, GuardCount, GuardSubject};
use crate::limit::{Mode, Policy, Retry};
use crate::store::KeysView;
use crate::telemetry::request_id;
use crate::violations::{Violation, ViolationEvent, ViolationKey, retry_after_seconds};

impl Gateway {
    /// Notes what the limits of a request have refused, also those that only watch.
    pub(super) fn note_refusals(
        &self,
        limits: &LimitOutcomes<'_, '_>,
        source: PlanSource<'_>,
        now: Instant,
    ) {
        for refused in limits.told().filter(|it| it.outcome.decided) {
            if let Some(retry) = refused.outcome.refused {
                let event = ViolationEvent::exceeded(refused.check.policy);
                let key = ViolationKey { event, bucket: refused.check.bucket };
                self.violations.note(key, now, || describe_refusal(event, &refused, retry, source));
            }
        }
    }

    /// Notes that a guard has warned or blocked the caller of a request.
    pub(super) fn note_detection(&self, request: &GuardedRequest<'_, '_>, counted: &GuardCount) {
        let event = ViolationEvent::detected(counted.stage);
        let key = ViolationKey { event, bucket: request.planned.id };
        self.violations.note(key, clock::cached_now(), || request.violation(counted));
    }
}

/// A request that a guard counts.
#[derive(Debug)]
pub(super) struct GuardedRequest<'a, 'r> {
    pub(super) planned: &'r PlannedGuard<'a>,
    pub(super) source: PlanSource<'r>,
    pub(super) keys: KeysView<'r>,
    pub(super) now: Micros,
}

impl CountedRequest for GuardedRequest<'_, '_> {
    fn subject(&self) -> GuardSubject {
        self.planned.subject(self.source, self.keys)
    }

    fn violation(&self, counted: &GuardCount) -> Violation {
        let GuardedRequest { planned, source, now, .. } = self;
        let event = ViolationEvent::detected(counted.stage);
        Violation {
            guard: Some(planned.guard.name.to_string()),
            shadow: planned.guard.guard.mode == Mode::Shadow,
            request_count: Some(counted.count),
            retry_after: Some(retry_after_seconds(counted.until, *now)),
            ..of_request(event, "guard", planned.caller_texts(*source), *source)
        }
    }
}

fn describe_refusal(
    event: ViolationEvent,
    refused: &LimitOutcome<'_, '_>,
    retry: Retry,
    source: PlanSource<'_>,
) -> Violation {
    let LimitOutcome { limit, check, outcome, .. } = refused;
    let (policy, limit) = (check.policy, &limit.limit);
    let texts = source.caller_texts(&limit.key, limit.missing);
    let mut violation = Violation {
        limit: Some(refused.logged_name(source.planner.compiled.names)),
        shadow: limit.mode == Mode::Shadow,
        degraded: limit.mode == Mode::Enforce && !check.enforced,
        tokens: Some(policy.report(outcome.state, outcome.now).remaining),
        retry_after: match retry {
            Retry::At(at) => Some(retry_after_seconds(at, outcome.now)),
            Retry::Never => None,
        },
        ..of_request(event, policy.algorithm(), texts, source)
    };
    if let Policy::SlidingWindow(window) = policy {
        violation.estimated_count = Some(window.estimate(outcome.state, outcome.now));
        violation.capacity = Some(window.rate().count());
    }
    violation
}

/// Who sent a request and what it asked for, as logs name callers.
fn of_request(
    event: ViolationEvent,
    limit_type: &'static str,
    texts: CallerTexts,
    source: PlanSource<'_>,
) -> Violation {
    let names = source.planner.compiled.names;
    let named = |name: Option<String>| name.map(|name| names.of(&name));
    let route = source.route.settings;
    Violation {
        endpoint: Some(route.path.to_string()),
        route: Some(route.name.clone()),
        ip: Some(names.of(&source.address.caller.ip.to_string())),
        user: named(texts.user),
        client: named(texts.client),
        tenant: named(texts.tenant),
        plan: texts.plan,
        // With an access log every request has one; otherwise those that brought one.
        request_id: request_id(source.head.headers).map(str::to_owned),
        ..Violation::new(event, names.of(&texts.key), limit_type)
    }
}
