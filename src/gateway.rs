//! The whole way of a request, in one place.
//!
//! Read [`Gateway::handle`] and [`Gateway::serve`] from top to bottom: they are the sentence of the
//! design. A request is planned ([`plan`]: route, caller, access, limits), its limits are decided all
//! at once ([`admission`]), and it is then either refused or forwarded. What it leaves to be done is
//! its guard's ([`guard`]).

mod admission;
mod auditing;
mod compiled;
mod connections;
mod early_hints;
mod forwarding;
mod guard;
mod guarding;
mod https_redirect;
mod in_flight;
mod inputs;
mod lifecycle;
mod max_forwards;
mod outcomes;
pub mod pacing;
pub mod plan;
mod queues;
mod request;
mod signals;
mod trusting;
mod wall_step;
mod worker_config;

use std::cell::RefCell;
use std::convert::Infallible;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

pub use compiled::{Compiled, CompiledBucket, CompiledTenants, ExternalSnapshot, ServedConfig};
pub use guard::RequestGuard;
pub use in_flight::RequestsInFlight;
pub use lifecycle::ProcessShared;
pub use queues::WaitQueues;
pub use request::{ClientExchange, ClientRequest, RequestEnd};
pub use signals::{RequestSignals, WaitingMark};

use crate::body::Body;
use crate::caller::Peer;
use crate::caller::jwt::TokenCache;
use crate::clock::{self, Clock};
use crate::forward::ForwardedResponse;
use crate::guards::GuardTable;
use crate::protocol::Protocol;
use crate::respond::{Answer, RateHeaders};
use crate::store::{AnyStore, BucketHasher};
use crate::telemetry::RequestMeter;
use crate::trust::TrustTable;
use crate::upstream::Servers;
use crate::violations::RecentViolations;
use admission::{Admission, AdmitError};
use forwarding::Outgoing;
use guarding::GuardVerdict;
use inputs::{InputError, PlanInputs};
use outcomes::LimitOutcomes;
use plan::{PendingInputs, PlanSource, Planner, RequestHead, RequestPlan};
use request::{CountedBy, RequestContent, RequestContext, finish};
use wall_step::WallStep;
use worker_config::{WorkerConfig, WorkerTree};

/// One worker's gateway.
#[derive(Debug)]
pub struct Gateway {
    store: Rc<AnyStore>,
    queues: Arc<WaitQueues>,
    hasher: BucketHasher,
    /// This process's name in `Via`.
    via: Arc<str>,
    servers: Servers,
    config: RefCell<Rc<WorkerConfig>>,
    /// The tenants of `config`. Requests let go of them once they are decided: there may be a hundred
    /// thousand, and they change while others are under way.
    tree: RefCell<Rc<WorkerTree>>,
    /// The tokens of callers that were seen before.
    tokens: TokenCache,
    /// Wakes requests that wait for a limit when `config` is another one.
    config_changed: Notify,
    /// What guards know of callers.
    guards: Arc<GuardTable>,
    /// Who was refused lately.
    violations: RecentViolations,
    /// What is known of users.
    trust: Arc<TrustTable>,
    in_flight: Arc<RequestsInFlight>,
    clock: Clock,
    wall: WallStep,
}

impl Gateway {
    /// Answers a request, and measures it.
    ///
    /// # Errors
    /// None: there is an answer to everything.
    pub async fn handle(
        self: &Rc<Self>,
        peer: &Peer,
        protocol: Protocol,
        exchange: ClientExchange<'_>,
    ) -> Result<(), Infallible> {
        let ClientExchange { client: ClientRequest { parts, body }, signals, answer } = exchange;
        let started = clock::now();
        let mut config = self.config.borrow().clone();
        let record = config.compiled.recorder.as_ref().and_then(|recorder| {
            let from_trusted = config.compiled.addresses.is_trusted(peer.ip);
            recorder.begin(parts, || config.compiled.names.of(&peer.text), from_trusted)
        });
        let mut meter = RequestMeter::start(config.unrouted.clone(), started, record);
        let mut guard = RequestGuard::new(signals);
        if let Err(fault) =
            guard.enter(&self.in_flight, config.compiled.settings.server.max_requests)
        {
            meter.failed(fault.error());
            *answer = Answer::from(fault);
            finish(answer, meter, guard);
            return Ok(());
        }
        let headers = mem::take(&mut parts.headers);
        let mut content = RequestContent { headers, body, counted_by: CountedBy::default() };
        let parts = &*parts;

        let own = max_forwards::answer(&parts.method, &parts.uri, &mut content.headers);
        let own = own.map(Ok).or_else(|| {
            let Compiled { settings, addresses, .. } = &*config.compiled;
            let (server, headers) = (&settings.server, &content.headers);
            https_redirect::answer(server, addresses, peer, protocol.scheme, &parts.uri, headers)
        });
        match own {
            Some(own) => {
                let own = own.unwrap_or_else(|fault| {
                    meter.failed(fault.error());
                    fault.into()
                });
                let context = RequestContext { config: &config, peer, parts, protocol, started };
                // No limit is asked, but whom nobody lets in gets no answer here either.
                let access = self.planner(&config).address(peer, &content.headers).access;
                let answered = context
                    .check_access(access)
                    .and_then(|()| self.guard_own_answer(&context, &mut content, &mut meter, own));
                *answer = answered.unwrap_or_else(|fault| {
                    meter.failed(fault.error());
                    Answer::of_fault(fault, protocol)
                });
            }
            None => loop {
                let planner = self.planner(&config);
                let route = match planner.route(RequestHead::of(parts, &content.headers)) {
                    Ok(route) => route,
                    Err(fault) => {
                        meter.failed(fault.error());
                        *answer = Answer::of_fault(fault, protocol);
                        break;
                    }
                };
                meter.take_route(&config.routes[route.index].meter);
                let address = planner.address(peer, &content.headers);
                let mut plan = RequestPlan::begin(route, address);
                let context = RequestContext { config: &config, peer, parts, protocol, started };
                let (guard, meter) = (&mut guard, &mut meter);
                let served = self.serve(&context, &mut plan, &mut content, guard, meter, answer);
                match served.await {
                    Ok(()) => {}
                    Err(AdmitError::Fault(fault)) => {
                        meter.failed(fault.error());
                        *answer = Answer::of_fault(fault, protocol);
                    }
                    Err(AdmitError::Outdated) => {
                        drop(plan);
                        config = self.config.borrow().clone();
                        continue;
                    }
                }
                self.count_answer(plan.trust.as_ref(), answer.response.status());
                answer.edit(&plan.route.settings.response_headers);
                break;
            },
        }

        finish(answer, meter, guard);
        Ok(())
    }

    /// From a plan that has route and address to the answer.
    async fn serve<'a>(
        self: &'a Rc<Self>,
        request: &RequestContext<'a>,
        plan: &mut RequestPlan<'a>,
        content: &mut RequestContent<'_>,
        guard: &mut RequestGuard,
        meter: &mut RequestMeter,
        answer: &mut Answer,
    ) -> Result<(), AdmitError> {
        let planner = self.planner(request.config);
        debug_assert!(Rc::ptr_eq(request.config, &self.config.borrow()), "nothing has waited yet");
        let tree = self.tree.borrow().clone();
        if let Some(record) = meter.record() {
            let ip = plan.caller.address.caller.ip;
            record.set_client(|| planner.compiled.names.of(&ip.to_string()));
        }
        let RequestContent { headers, body, counted_by } = content;
        body.set_max(plan.route.settings.max_body);
        let mut inputs = PlanInputs::of(request.peer);
        let arrived = match self.known_inputs(planner, plan, headers, body, &mut inputs) {
            Ok(None) => Ok(()),
            Ok(Some(steps)) => {
                self.await_inputs(request, plan, steps, headers, body, &mut inputs).await
            }
            Err(fault) => Err(fault.into()),
        };
        let head = RequestHead::of(request.parts, headers);
        let planned = match arrived {
            Ok(()) => plan.complete(planner, &tree, head, inputs.accepted()),
            Err(InputError::Fault(fault)) => {
                plan.plan_guards(planner, head, inputs.accepted(), PendingInputs::default());
                Err(fault)
            }
            Err(InputError::Blocked(block)) => {
                *answer = self.refuse_blocked(block, plan, headers, meter);
                return Ok(());
            }
        };
        self.note_score(planner, plan, head, inputs.accepted());
        // Guards count what fails, too, and a blocked caller hears of nothing else.
        let guards = match plan.guards.is_empty() {
            true => GuardVerdict::default(),
            false => self.count_guards(request, plan, head, inputs.accepted(), counted_by)?,
        };
        if let Some(block) = guards.block {
            *answer = self.refuse_blocked(block, plan, headers, meter);
            return Ok(());
        }
        if let Err(fault) = planned {
            meter.failed(fault.error());
            *answer = Answer::of_fault(fault, request.protocol);
            guards.mark_answer(&mut answer.fields);
            return Ok(());
        }
        request.check_access(plan.access)?;

        let RequestPlan { route, caller, limits, .. } = plan;
        let mut limits = LimitOutcomes::new(limits);
        let deciding_since = meter.record().and_then(|record| record.span_start());
        let Admission { decision, decided_at } = match self.admit_immediately(request, &mut limits)
        {
            Some(admission) => admission?,
            None => self.admit(request, guard, &mut limits).await?,
        };
        guard.signals().note_decided();
        if let Some((record, since)) = meter.record().zip(deciding_since) {
            record.decided(since);
        }
        if limits.has_refused() {
            let head = RequestHead::of(request.parts, headers);
            let (address, inputs) = (&caller.address, inputs.accepted());
            let source = PlanSource { planner, route, address, head, inputs };
            self.note_refusals(&limits, source, decided_at);
        }
        drop(inputs);
        let respond = planner.compiled.settings.respond;
        let rate = RateHeaders::new(respond, decision.now, self.wall.at(decided_at));
        if !decision.admitted {
            if let Some(record) = meter.record() {
                let names = planner.compiled.names;
                let limit = limits.refusing().first().map(|it| it.logged_name(names));
                record.refused(limit, limits.refusal_error(decision.now));
            }
            limits.refuse(rate, decision.now, respond.retry_jitter, headers, answer);
            self.count_refusal(&mut plan.trust);
            guards.mark_answer(&mut answer.fields);
            return Ok(());
        }
        if let Some(open) = limits.open_charges(&tree) {
            guard.keep(self, request.config, open);
        }
        drop(tree);
        let admitted_at = self.pace(guard, &limits, decided_at).await.unwrap_or(decided_at);
        let destination = forwarding::destination(request.config, route, &limits, headers);
        if !planner.compiled.guards.is_empty() {
            guards.mark_request(headers);
        }
        let outgoing = Outgoing {
            request,
            route,
            caller: &caller.address.caller,
            identity: &caller.identity,
            via: &self.via,
            signals: guard.signals(),
            affinity: plan.affinity,
        };
        let body = mem::replace(*body, Body::empty());
        let forwarded = outgoing.forward(destination, headers, body, admitted_at).await;
        if let Some(record) = meter.record() {
            let upstream = destination.name(request.config);
            if !upstream.is_empty() {
                record.forwarded(upstream, admitted_at);
            }
        }
        let client_failure = guard.is_client_failure(forwarded.as_ref().err());
        match forwarded {
            Ok(ForwardedResponse { status, content }) => {
                *answer.response.status_mut() = status;
                *answer.response.body_mut() = content;
                mem::swap(answer.response.headers_mut(), headers);
            }
            Err(fault) => {
                meter.failed(fault.error());
                *answer = Answer::of_fault(fault, request.protocol);
            }
        }
        let Answer { response, fields, .. } = answer;
        if guard.is_pending() {
            limits.note_charged(&guard.charge(response, client_failure).await);
        }
        rate.write(limits.applied(), response.headers_mut(), fields);
        guards.mark_answer(fields);
        Ok(())
    }

    fn planner<'a>(&'a self, config: &'a WorkerConfig) -> Planner<'a> {
        let (via, trust) = (&*self.via, &*self.trust);
        Planner { compiled: &config.compiled, hasher: &self.hasher, via, trust }
    }
}
