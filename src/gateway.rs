//! The whole way of a request, in one place.
//!
//! Read [`Gateway::handle`] and [`Gateway::serve`] from top to bottom: they are the sentence of the
//! design. A request is planned ([`plan`]: route, caller, access, limits), its limits are decided all
//! at once ([`admission`]), and it is then either refused or forwarded. What it leaves to be done is
//! its guard's ([`guard`]).

mod admission;
mod auditing;
mod compiled;
mod forwarding;
mod guard;
mod guarding;
mod inputs;
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
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

pub use compiled::{Compiled, CompiledBucket, CompiledTenants, ExternalSnapshot, ServedConfig};
pub use guard::RequestGuard;
pub use queues::WaitQueues;
pub use request::{ClientRequest, RequestEnd};
pub use signals::RequestSignals;

use crate::body::Body;
use crate::caller::Peer;
use crate::caller::jwt::TokenCache;
use crate::clock::{self, Clock};
use crate::guards::GuardTable;
use crate::listen::proxy_protocol::HeaderError;
use crate::protocol::Protocol;
use crate::respond::{Answer, Fault, Fields, RateHeaders};
use crate::store::{AnyStore, BucketHasher, Store, StoreControl};
use crate::telemetry::{AccessLogEntry, AuditLog, RequestMeter};
use crate::trust::TrustTable;
use crate::upstream::Servers;
use crate::violations::RecentViolations;
use admission::{Admission, AdmitError};
use forwarding::Outgoing;
use guarding::GuardVerdict;
use inputs::{InputError, PlanInputs};
use outcomes::LimitOutcomes;
use plan::{PendingInputs, PlanSource, Planner, RequestHead, RequestPlan};
use request::{CountedBy, RequestContent, RequestContext};
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
    clock: Clock,
    wall: WallStep,
}

/// What all gateways of the process have in common.
#[derive(Debug, Clone)]
pub struct ProcessShared {
    pub queues: Arc<WaitQueues>,
    /// This process's name in `Via`.
    pub via: Arc<str>,
    /// The secret of the token caches.
    pub token_secret: [u8; 16],
    pub guards: Arc<GuardTable>,
    pub trust: Arc<TrustTable>,
    pub audit: AuditLog,
}

impl Gateway {
    pub fn new(
        store: Arc<dyn StoreControl>,
        hasher: BucketHasher,
        shared: ProcessShared,
        served: ServedConfig,
    ) -> Self {
        let ServedConfig { compiled, tree } = served;
        let servers = Servers::default();
        let ProcessShared { queues, via, token_secret, guards, trust, audit } = shared;
        let clock = store.clock();
        Gateway {
            store: Rc::new(store.worker_store()),
            queues,
            hasher,
            via,
            config: RefCell::new(Rc::new(WorkerConfig::new(compiled, &servers))),
            tree: RefCell::new(Rc::new(WorkerTree(tree))),
            servers,
            tokens: TokenCache::new(&token_secret),
            config_changed: Notify::new(),
            guards,
            violations: RecentViolations::new(audit),
            trust,
            wall: WallStep::new(clock.clone()),
            clock,
        }
    }

    /// Serves another configuration from the next request on, and to requests that wait for a limit.
    pub fn configure(&self, served: ServedConfig) {
        let ServedConfig { compiled, tree } = served;
        self.tree.replace(Rc::new(WorkerTree(tree)));
        let config = self.config.borrow().replaced_by(compiled, &self.servers);
        let before = self.config.replace(Rc::new(config));
        // Long answers may keep the old configuration alive; what it has counted is due now.
        before.flush_meters();
        self.config_changed.notify_waiters();
        self.servers.tidy();
    }

    /// No request waits for a limit any more: the process is about to end.
    pub fn drain(&self) {
        self.queues.drain();
    }

    /// Resolves when all detached work of ended requests is done.
    pub async fn flush(&self) {
        self.store.flush().await;
    }

    /// Closes upstream connections that have been idle for too long.
    pub fn tidy(&self) {
        self.servers.tidy();
    }

    /// Adds what this worker has counted to the shared metrics, and to the audit log.
    pub fn flush_meters(&self) {
        self.config.borrow().flush_meters();
        self.violations.flush(clock::now());
    }

    /// Answers a request, and measures it.
    ///
    /// # Errors
    /// None: there is an answer to everything.
    pub async fn handle(
        self: &Rc<Self>,
        peer: &Peer,
        protocol: Protocol,
        request: ClientRequest,
    ) -> Result<Answer, Infallible> {
        let started = clock::now();
        let mut config = self.config.borrow().clone();
        let (mut parts, body) = request.request.into_parts();
        let log = config.compiled.access_log.as_ref();
        let names = &config.compiled.names;
        let entry = log.map(|log| AccessLogEntry::begin(log, names.of(&peer.text), &mut parts));
        let mut meter = RequestMeter::start(config.unrouted.clone(), started, entry);
        let mut guard = RequestGuard::new(request.signals);
        let headers = mem::take(&mut parts.headers);
        let mut content = RequestContent { headers, body, counted_by: CountedBy::default() };

        let own = max_forwards::answer(&parts.method, &parts.uri, &mut content.headers);
        let mut answer = match own {
            Some(answer) => {
                let context =
                    RequestContext { config: &config, peer, parts: &parts, protocol, started };
                // No limit is asked, but whom nobody lets in gets no answer here either.
                let access = self.planner(&config).address(peer, &content.headers).access;
                let answered = context.check_access(access).and_then(|()| {
                    self.guard_own_answer(&context, &mut content, &mut meter, answer)
                });
                match answered {
                    Ok(answer) => answer,
                    Err(fault) => {
                        meter.failed(fault.error());
                        fault.into()
                    }
                }
            }
            None => loop {
                let planner = self.planner(&config);
                let route = match planner.route(RequestHead::of(&parts, &content.headers)) {
                    Ok(route) => route,
                    Err(fault) => {
                        meter.failed(fault.error());
                        break fault.into();
                    }
                };
                meter.take_route(&config.routes[route.index].meter);
                let address = planner.address(peer, &content.headers);
                let mut plan = RequestPlan::begin(route, address);
                let context =
                    RequestContext { config: &config, peer, parts: &parts, protocol, started };
                let served = self.serve(&context, &mut plan, &mut content, &mut guard, &mut meter);
                let mut answer = match served.await {
                    Ok(answer) => answer,
                    Err(AdmitError::Fault(fault)) => {
                        meter.failed(fault.error());
                        fault.into()
                    }
                    Err(AdmitError::Outdated) => {
                        drop(plan);
                        config = self.config.borrow().clone();
                        continue;
                    }
                };
                self.count_answer(plan.trust.as_ref(), answer.response.status());
                answer.edit(&plan.route.settings.response_headers);
                break answer;
            },
        };

        if let Some(entry) = meter.entry() {
            entry.tell_id(answer.response.headers_mut());
        }
        // A request that was only finished for its charges has no client to answer.
        if !guard.signals().client_has_left() {
            meter.answered(answer.response.status());
        }
        answer.response.body_mut().attach(RequestEnd { meter, _guard: guard });
        Ok(answer)
    }

    /// Measures a request that could not be parsed, and so never came here.
    pub fn note_unparsed(&self, peer: &Peer, fault: &Fault) {
        let config = self.config.borrow().clone();
        let log = config.compiled.access_log.as_ref();
        let entry =
            log.map(|log| AccessLogEntry::unparsed(log, config.compiled.names.of(&peer.text)));
        let mut meter = RequestMeter::start(config.unrouted.clone(), clock::cached_now(), entry);
        meter.failed(fault.error());
        meter.answered(fault.status());
    }

    /// Whether a connection from there has to begin with a PROXY header.
    pub fn awaits_proxy_header(&self, peer: IpAddr) -> bool {
        let config = self.config.borrow();
        let Compiled { settings, addresses, .. } = &*config.compiled;
        settings.server.proxy_protocol && addresses.is_trusted(peer.to_canonical())
    }

    /// Counts a connection without the PROXY header that it has to begin with.
    pub fn note_missing_proxy_header(&self, peer: SocketAddr, error: &HeaderError) {
        self.config.borrow().compiled.metrics.proxy_header_errors.inc();
        tracing::debug!(%peer, %error, "a connection was closed unread");
    }

    /// From a plan that has route and address to an answer.
    async fn serve<'a>(
        self: &'a Rc<Self>,
        request: &RequestContext<'a>,
        plan: &mut RequestPlan<'a>,
        content: &mut RequestContent,
        guard: &mut RequestGuard,
        meter: &mut RequestMeter,
    ) -> Result<Answer, AdmitError> {
        let planner = self.planner(request.config);
        debug_assert!(Rc::ptr_eq(request.config, &self.config.borrow()), "nothing has waited yet");
        let tree = self.tree.borrow().clone();
        if let Some(entry) = meter.entry() {
            let ip = plan.caller.address.caller.ip;
            entry.client = planner.compiled.names.of(&ip.to_string());
        }
        let RequestContent { headers, body, counted_by } = content;
        let mut inputs = PlanInputs::default();
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
                return Ok(self.refuse_blocked(block, plan, headers, meter));
            }
        };
        self.note_score(planner, plan, head, inputs.accepted());
        // Guards count what fails, too, and a blocked caller hears of nothing else.
        let guards = match plan.guards.is_empty() {
            true => GuardVerdict::default(),
            false => self.count_guards(request, plan, head, inputs.accepted(), counted_by)?,
        };
        if let Some(block) = guards.block {
            return Ok(self.refuse_blocked(block, plan, headers, meter));
        }
        if let Err(fault) = planned {
            meter.failed(fault.error());
            let mut answer = Answer::from(fault);
            guards.mark_answer(&mut answer.fields);
            return Ok(answer);
        }
        request.check_access(plan.access)?;

        let RequestPlan { route, caller, limits, .. } = plan;
        let mut limits = LimitOutcomes::new(limits);
        let Admission { decision, decided_at } = match self.admit_immediately(request, &mut limits)
        {
            Some(admission) => admission?,
            None => self.admit(request, guard, &mut limits).await?,
        };
        if limits.has_refused() {
            let head = RequestHead::of(request.parts, headers);
            let (address, inputs) = (&caller.address, inputs.accepted());
            let source = PlanSource { planner, route, address, head, inputs };
            self.note_refusals(&limits, source, decided_at);
        }
        drop(inputs);
        let (mut headers, body) = (mem::take(headers), mem::replace(body, Body::empty()));
        let respond = planner.compiled.settings.respond;
        let rate = RateHeaders::new(respond, decision.now, self.wall.at(decided_at));
        if !decision.admitted {
            if let Some(entry) = meter.entry() {
                let names = planner.compiled.names;
                entry.limit = limits.refusing().first().map(|it| it.logged_name(names));
                entry.error = Some(limits.refusal_error(decision.now));
            }
            let mut answer = limits.refuse(rate, decision.now, respond.retry_jitter, headers);
            self.count_refusal(&mut plan.trust);
            guards.mark_answer(&mut answer.fields);
            return Ok(answer);
        }
        if let Some(open) = limits.open_charges(&tree) {
            guard.keep(self, request.config, open);
        }
        drop(tree);
        let admitted_at = self.pace(guard, &limits, decided_at).await.unwrap_or(decided_at);
        let target = forwarding::target(request.config, route, &limits, &mut headers);
        if !planner.compiled.guards.is_empty() {
            guards.mark_request(&mut headers);
        }
        let outgoing = Outgoing {
            request,
            route,
            caller: &caller.address.caller,
            via: &self.via,
            signals: guard.signals(),
        };
        let forwarded = outgoing.forward(target, headers, body, admitted_at).await;
        let client_failure = guard.is_client_failure(&forwarded);
        let mut response = forwarded.unwrap_or_else(|fault| {
            meter.failed(fault.error());
            fault.into_response()
        });
        if guard.is_pending() {
            limits.note_charged(&guard.charge(&response, client_failure).await);
        }
        let mut fields = Fields::default();
        rate.write(limits.applied(), response.headers_mut(), &mut fields);
        guards.mark_answer(&mut fields);
        Ok(Answer { response, fields })
    }

    fn planner<'a>(&'a self, config: &'a WorkerConfig) -> Planner<'a> {
        let (via, trust) = (&*self.via, &*self.trust);
        Planner { compiled: &config.compiled, hasher: &self.hasher, via, trust }
    }
}
