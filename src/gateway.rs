//! The whole way of a request, in one place.
//!
//! Read [`Gateway::handle`] and [`Gateway::pass`] from top to bottom: they are the sentence of
//! the design. A request finds its route, becomes a caller, collects the checks of every limit
//! that applies, has them decided all at once ([`admission`]), and is then either refused or
//! forwarded.

pub mod admission;
pub mod checks;
pub mod compiled;
pub mod dues;
pub mod identify;
pub mod live;
mod options;
pub mod queues;
pub mod rule;
pub mod turns;
pub mod way;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, header, request};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::body::Body;
use crate::caller::jwt::TokenCache;
use crate::caller::{Caller, Peer};
use crate::clock::{self, Clock};
use crate::forward::headers::{self, Outbound};
use crate::forward::{Passage, echo};
use crate::listen::proxy_protocol::HeaderError;
use crate::respond::{Answer, Fault, Fields, RateHeaders};
use crate::store::{self, AnyStore, BucketHasher, Store};
use crate::telemetry::{Entry, Meter};
use crate::upstream::Servers;
use admission::Stop;
use checks::Checks;
pub use compiled::{Compiled, Outside};
use dues::Dues;
use identify::{Looked, Token};
use live::{Live, LiveTarget};
pub use queues::Queues;
use way::Way;

/// One worker's gateway.
#[derive(Debug)]
pub struct Gateway {
    store: Rc<AnyStore>,
    queues: Arc<Queues>,
    hasher: BucketHasher,
    /// This process's name in `Via`.
    via: Arc<str>,
    servers: Servers,
    live: RefCell<Rc<Live>>,
    /// The tokens of callers that were seen before.
    tokens: TokenCache,
    /// Tells those who wait for a limit that `live` is another one.
    changed: Notify,
    clock: Clock,
    wall: Cell<(Option<Instant>, i64)>,
}

/// Names the limits that did not admit a request which is forwarded all the same.
const DEGRADED: HeaderName = HeaderName::from_static("x-weir-degraded");

const LOOK_AT_WALL: Duration = Duration::from_secs(1);

/// A request on its way, without what is used up along it.
#[derive(Debug)]
struct Visit<'a> {
    live: &'a Rc<Live>,
    way: &'a Way<'a>,
    peer: &'a Rc<Peer>,
    parts: &'a request::Parts,
    started: Instant,
}

impl Gateway {
    #[must_use]
    pub fn new(
        store: &store::Shared,
        hasher: BucketHasher,
        (queues, via, tokens): (Arc<Queues>, Arc<str>, [u8; 16]),
        compiled: Arc<Compiled>,
    ) -> Self {
        let servers = Servers::default();
        let live = RefCell::new(Rc::new(Live::new(compiled, &servers)));
        let (clock, store) = (store.clock(), Rc::new(store.for_worker()));
        let tokens = TokenCache::new(&tokens);
        let (changed, wall) = (Notify::new(), Cell::new((None, 0)));
        Gateway { store, queues, hasher, via, servers, live, tokens, changed, clock, wall }
    }

    /// Serves another configuration from the next request on, and to those who wait for a limit.
    pub fn configure(&self, compiled: Arc<Compiled>) {
        let live = Live::new(compiled, &self.servers);
        let before = self.live.replace(Rc::new(live));
        // Long answers may keep the old configuration alive; what it has counted is due now.
        before.flush_meters();
        self.changed.notify_waiters();
        self.servers.tidy();
    }

    /// Nobody waits for a limit any more: the gateway is about to leave.
    pub fn drain(&self) {
        self.queues.drain();
    }

    /// Resolves when nothing that ended requests have left to be done is still to be done.
    pub async fn settle(&self) {
        self.store.settle().await;
    }

    /// Closes upstream connections that have been idle for too long.
    pub fn tidy(&self) {
        self.servers.tidy();
    }

    /// Adds what this worker has counted to the metrics everybody sees.
    pub fn flush_meters(&self) {
        self.live.borrow().flush_meters();
    }

    /// Answers a request, whatever it takes, and notes what it took.
    ///
    /// # Errors
    /// None: there is an answer to everything.
    pub async fn handle(
        self: Rc<Self>,
        peer: Rc<Peer>,
        request: Request<Body>,
    ) -> Result<Answer, Infallible> {
        let (peer, started) = (&peer, clock::look());
        let mut live = self.live.borrow().clone();
        let (mut parts, mut body) = request.into_parts();
        let log = live.shared.access_log.as_ref();
        let entry = log.map(|log| Entry::begin(log, live.shared.names.of(&peer.text), &mut parts));
        let mut meter = Meter::start(live.unrouted.clone(), started, entry);
        let mut headers = mem::take(&mut parts.headers);

        let own = options::answer(&parts.method, &parts.uri, &mut headers);
        let mut answer = match own {
            Some(answer) => answer,
            None => loop {
                let way = match Way::find(&live, &parts, &headers, &self.via) {
                    Ok(way) => way,
                    Err(fault) => {
                        meter.failed(fault.error());
                        break fault.into();
                    }
                };
                meter.take_route(&way.route.meter);
                let visit = Visit { live: &live, way: &way, peer, parts: &parts, started };
                let passed = self.pass(&visit, (&mut headers, &mut body), &mut meter).await;
                let mut answer = match passed {
                    Ok(answer) => answer,
                    Err(Stop::Fault(fault)) => {
                        meter.failed(fault.error());
                        fault.into()
                    }
                    Err(Stop::Outdated) => {
                        live = self.live.borrow().clone();
                        continue;
                    }
                };
                answer.edit(&way.settings.response_headers);
                break answer;
            },
        };

        if let Some(entry) = meter.entry() {
            entry.tell_id(answer.response.headers_mut());
        }
        // One that was only seen through for its charges is nobody's answer.
        if !peer.has_left() {
            meter.answered(answer.response.status());
        }
        answer.response.body_mut().attach(meter);
        Ok(answer)
    }

    /// Notes a request that could not be read, and so never came here.
    pub fn note_unread(&self, peer: &Peer, fault: &Fault) {
        let live = self.live.borrow().clone();
        let log = live.shared.access_log.as_ref();
        let entry = log.map(|log| Entry::unread(log, live.shared.names.of(&peer.text)));
        let mut meter = Meter::start(live.unrouted.clone(), clock::recent(), entry);
        meter.failed(fault.error());
        meter.answered(fault.status());
    }

    /// Whether a connection from there has to begin with a PROXY header.
    #[must_use]
    pub fn awaits_proxy_header(&self, peer: IpAddr) -> bool {
        let live = self.live.borrow();
        let shared = &live.shared;
        shared.settings.server.proxy_protocol && shared.addresses.is_trusted(peer.to_canonical())
    }

    /// Notes a connection that had to and did not.
    pub fn note_unintroduced(&self, peer: SocketAddr, error: &HeaderError) {
        self.live.borrow().shared.metrics.proxy_header_errors.inc();
        tracing::debug!(%peer, %error, "a connection was closed unread");
    }

    /// From caller to answer, on a way that is known.
    async fn pass(
        self: &Rc<Self>,
        visit: &Visit<'_>,
        (headers, body): (&mut HeaderMap, &mut Body),
        meter: &mut Meter,
    ) -> Result<Answer, Stop> {
        let Visit { live, peer, .. } = *visit;
        let shared = &*live.shared;
        let caller = shared.addresses.caller(peer, headers);
        if let Some(entry) = meter.entry() {
            entry.client = shared.names.of(&caller.ip.to_string());
        }
        body.refuse_too_large().map_err(Fault::from)?;
        identify::refuse_doubled(shared, headers)?;
        let mut checks = Checks::default();
        // Most requests have nothing to wait for up to here, and pay for no future.
        let claims = match self.token(visit, headers)? {
            Token::Known(claims) => claims,
            unknown => self.claims(visit, &caller, unknown).await?,
        };
        let form = match visit.way.needs.form {
            true => self.form(visit, &caller, headers, body).await?,
            false => Looked::NoForm,
        };
        self.identify(visit, &caller, (headers, &form), claims.as_deref(), &mut checks)?;
        let (decision, decided) = match self.admit_at_once(visit, &mut checks) {
            Some(admitted) => admitted,
            None => self.admit(visit, &mut checks).await?,
        };
        let (mut headers, body) = (mem::take(headers), mem::replace(body, Body::empty()));
        let respond = shared.settings.respond;
        let rate = RateHeaders::new(respond, decision.now, self.wall_step(decided));
        if !decision.admitted {
            if let Some(entry) = meter.entry() {
                entry.limit = checks.refusing().next().map(|rule| rule.limit.name.clone());
                entry.error = Some(checks.refusal_error(decision.now));
            }
            let grpc = is_grpc(&headers);
            let mut answer = checks.refuse(rate, decision, respond.retry_jitter, headers);
            if grpc {
                // RESOURCE_EXHAUSTED, for clients that look there before the HTTP status.
                answer.fields.add("grpc-status", b"8");
            }
            return Ok(answer);
        }
        let mut dues = self.dues(visit, &checks);
        let decided = self.take_turn(visit, &checks, decided).await.unwrap_or(decided);
        let target = self.mark(visit, &checks, &mut headers);
        let forwarded = self.forward(visit, &caller, target, headers, body, decided).await;
        // No answer of the upstream, and the client is why.
        let unheard = peer.awaits_charge()
            && match &forwarded {
                Err(Fault::Body(_)) => true,
                other => other.is_err() && peer.has_left(),
            };
        let mut response = forwarded.unwrap_or_else(|fault| {
            meter.failed(fault.error());
            fault.into_response()
        });
        if let Some(mut dues) = dues.take() {
            let charged = match unheard {
                true => dues.settle_unheard().await,
                false => dues.settle(response.status(), response.headers()).await,
            };
            checks.note(&charged);
            if dues.holds() {
                meter.keep(Box::new(dues));
            }
        }
        let mut fields = Fields::default();
        rate.write(checks.applied(), response.headers_mut(), &mut fields);
        Ok(Answer { response, fields })
    }

    /// What an admitted request leaves to be done, if it is anything.
    fn dues(self: &Rc<Self>, visit: &Visit<'_>, checks: &Checks<'_>) -> Option<Dues> {
        let (live, peer) = (visit.live.clone(), visit.peer.clone());
        Some(Dues::new(self.clone(), live, peer, checks.dues()?))
    }

    /// Where an admitted request goes. One that a limit only lets pass in another way is marked.
    fn mark(&self, visit: &Visit<'_>, checks: &Checks<'_>, headers: &mut HeaderMap) -> LiveTarget {
        let Visit { live, way, .. } = *visit;
        if !live.shared.degrades {
            return way.route.target;
        }
        headers.remove(DEGRADED);
        match checks.degraded() {
            None => way.route.target,
            Some(limits) => {
                headers.insert(DEGRADED, limits);
                way.route.degraded
            }
        }
    }

    /// How far the wall clock was moved, looked at once a second.
    fn wall_step(&self, now: Instant) -> i64 {
        let (looked, step) = self.wall.get();
        if looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_AT_WALL) {
            return step;
        }
        let step = self.clock.wall_step();
        self.wall.set((Some(now), step));
        step
    }

    async fn forward(
        &self,
        visit: &Visit<'_>,
        caller: &Caller,
        target: LiveTarget,
        headers: HeaderMap,
        body: Body,
        decided: Instant,
    ) -> Result<Response<Body>, Fault> {
        let Visit { live, way, peer, parts, .. } = *visit;
        // RFC 9110 section 7.8: HTTP/1.0 has no upgrades.
        let upgrade = parts.version == Version::HTTP_11
            && body.is_empty()
            && headers::wants_upgrade(&headers);
        let outbound = Outbound {
            peer,
            caller,
            host: way.host(),
            via: &self.via,
            received: if parts.version == Version::HTTP_10 { "1.0" } else { "1.1" },
            has_via: way.has_via,
            edits: &way.settings.request_headers,
            address_header: live.shared.addresses.header(),
            counted: &live.shared.counted,
            doubles: &live.shared.doubles,
            by_method: live.shared.by_method,
            degrades: live.shared.degrades,
            upgrade,
        };
        match target {
            LiveTarget::Echo => {
                echo::echo(&parts.method, &way.target, &outbound, &headers, body).await
            }
            LiveTarget::Upstream(index, patience) => {
                let passage = Passage {
                    upstream: &live.upstreams[index],
                    method: &parts.method,
                    target: way.target.as_bytes(),
                    outbound: &outbound,
                    patience,
                    stall: live.shared.settings.server.request_timeout,
                };
                passage.run(headers, body, decided).await
            }
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}
