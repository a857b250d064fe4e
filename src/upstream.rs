//! Where admitted requests go: servers, their connections, and the choice between them.
//!
//! Each worker has its own [`Upstream`] and its own connections, which never cross threads. What
//! workers have to agree on about a server is in [`SharedUpstreams`]: its health, ejection, slots and
//! addresses. On the way of a request these are atomics; locks are for rare events. A reload keeps the
//! connections of every server that is still configured.

mod balance;
mod body_sender;
mod breaker;
mod connect;
mod ejection;
mod exchange;
mod failing_clients;
mod failure_log;
mod hashing;
mod health;
mod http2_body;
mod http2_connection;
mod http2_exchange;
mod http2_pool;
mod http2_senders;
mod http2_stream;
mod http2_uploads;
mod link;
mod pending;
mod pool;
mod record;
mod resizable_semaphore;
mod resolve;
mod shared;
mod slots;
mod transport;
mod trials;
mod worker_connections;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::local::LocalHistogram;
use tokio::time::Instant;

pub(crate) use balance::PickRequest;
pub(crate) use breaker::BreakerPass;
pub(crate) use connect::{ConnectError, TlsFailure};
pub(crate) use exchange::{Exchange, ExchangeError, Upgraded, UpstreamBody};
pub(crate) use failing_clients::FailureScope;
pub(crate) use hashing::{KeyDigest, KeyHasher};
pub(crate) use health::HealthChecks;
pub(crate) use http2_exchange::{Http2Body, Http2Exchange};
pub(crate) use link::{ConnectionSharing, Link, LinkRequest, OpenError};
pub(crate) use pool::{ActiveRequest, PooledConnection, Server};
pub(crate) use shared::{ServerStatus, SharedUpstreams};
pub(crate) use transport::Transport;

use crate::config::settings::{self, Breaker, Ejection};
use crate::telemetry::{Failure, FailureMeter, Metrics};
use crate::tls::TlsClient;
use balance::Balancer;
use breaker::BreakerState;
use connect::ServerProtocol;
use pool::Recall;
use shared::ServerId;

/// Retries may add at most this share to an upstream's traffic, in percent.
const RETRY_SHARE: u32 = 20;
/// What a quiet upstream may retry at once, in requests.
const RETRY_BURST: u32 = 10;
/// The same shortage of the gateway itself is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// An upstream as one worker sees it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub connect_timeout: Duration,
    pub retries: u32,
    pub max_response_headers: usize,
    pub seconds: LocalHistogram,
    pub failures: Rc<FailureMeter>,
    servers: Vec<Rc<Server>>,
    balancer: Balancer,
    ejection: Ejection,
    max_pending: usize,
    breaker: Option<UpstreamBreaker>,
    /// Hundredths of a retry that may still be made.
    retry_budget: Cell<u32>,
    logged: Cell<Option<Instant>>,
}

/// The breaker of an upstream that has one.
#[derive(Debug)]
struct UpstreamBreaker {
    settings: Breaker,
    state: Arc<BreakerState>,
}

impl Upstream {
    /// Builds the worker's view, taking over the servers it already had.
    pub(crate) fn new(upstream: &settings::Upstream, known: &Servers, metrics: &Metrics) -> Self {
        let servers =
            upstream.servers.iter().map(|it| known.server(upstream, &it.origin)).collect();
        Upstream {
            connect_timeout: upstream.connect_timeout,
            retries: upstream.retries,
            max_response_headers: upstream.max_response_headers,
            seconds: metrics.upstream_seconds.with_label_values(&[upstream.name.as_str()]).local(),
            failures: Rc::new(FailureMeter::new(&upstream.name, metrics)),
            servers,
            balancer: Balancer::new(upstream.balance.clone(), &upstream.servers),
            ejection: upstream.ejection,
            max_pending: upstream.max_pending,
            breaker: upstream.breaker.map(|settings| UpstreamBreaker {
                settings,
                state: known.shared.breaker(&upstream.name),
            }),
            retry_budget: Cell::new(RETRY_BURST * 100),
            logged: Cell::new(None),
        }
    }

    /// Picks the server for the next attempt.
    pub(crate) fn pick(&self, request: PickRequest<'_>) -> Rc<Server> {
        let server = self.balancer.pick(&self.servers, request);
        server.shared.ejection.note_attempt(request.now, request.client, &self.ejection);
        server.clone()
    }

    /// Lets a request try, unless it would fail as those before it did.
    ///
    /// # Errors
    /// If the breaker is open: with the time until another request may try.
    #[inline]
    pub(crate) fn admit(&self, client: IpAddr, now: Instant) -> Result<BreakerPass, Duration> {
        let Some(breaker) = &self.breaker else { return Ok(BreakerPass::Closed) };
        breaker.state.admit(now, client, &breaker.settings).inspect_err(|_| {
            self.failures.count(Failure::BreakerOpen);
        })
    }

    /// A response to a request of that client has come.
    #[inline]
    pub(crate) fn note_answered(&self, server: &Server, client: IpAddr) {
        server.shared.ejection.note_answered(client);
        if let Some(breaker) = &self.breaker {
            breaker.state.note_answered();
        }
    }

    /// A request has failed for good. `scope`: whom that holds against; all failures are counted.
    pub(crate) fn count_failed(&self, failure: Failure, scope: FailureScope) {
        self.failures.count(failure);
        if let Some(breaker) = self.breaker.as_ref().filter(|_| failure != Failure::Saturated) {
            breaker.state.note_failed(Instant::now(), scope, &breaker.settings);
        }
    }

    /// A request of that client was sent, and there is no response to it.
    pub(crate) fn note_failed(&self, server: &Server, client: IpAddr) {
        let others_remain = || {
            let is_out = |it: &&Rc<Server>| it.shared.ejection.is_out_for(client);
            let out = self.servers.iter().filter(is_out).count();
            out < self.ejection.most_of(self.servers.len()) && out + 1 < self.servers.len()
        };
        server.shared.note_failed(Instant::now(), client, &self.ejection, others_remain);
    }

    /// Whether a request that failed at one server can go to another.
    pub(crate) fn has_others(&self) -> bool {
        self.servers.len() > 1
    }

    /// Whether another server can be reached, as far as requests and probes have shown: one that was not
    /// asked yet may be well.
    fn can_be_reached_without(&self, server: &Server) -> bool {
        let is_well = |it: &Server| !it.shared.ejection.is_unreachable() && it.shared.is_healthy();
        self.servers.iter().any(|it| !std::ptr::eq(&**it, server) && is_well(it))
    }

    /// Counts a request towards what retries may add.
    pub(crate) fn earn_retries(&self) {
        let budget = self.retry_budget.get() + RETRY_SHARE;
        self.retry_budget.set(budget.min(RETRY_BURST * 100));
    }

    /// Takes one retry out of the budget, if there is one.
    #[must_use = "a retry needs the budget"]
    pub(crate) fn spend_retry(&self) -> bool {
        let left = self.retry_budget.get().checked_sub(100);
        if let Some(left) = left {
            self.retry_budget.set(left);
        }
        left.is_some()
    }

    /// Adds what was counted here to the metrics everybody sees.
    pub(crate) fn flush_meters(&self) {
        self.seconds.flush();
        self.failures.flush();
    }

    /// Logs what the gateway has run out of: once, and again while it lasts.
    fn log_exhausted(&self, error: &ConnectError) {
        let now = Instant::now();
        if self.logged.get().is_none_or(|last| now - last > LOG_INTERVAL) {
            self.logged.set(Some(now));
            tracing::error!(
                "the gateway cannot open connections to upstreams: {error}; raise the limit on open \
                 files if it is reached"
            );
        }
    }
}

/// Every server one worker knows, with its idle connections.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    shared: Arc<SharedUpstreams>,
    known: RefCell<HashMap<ServerKey, Rc<Server>>>,
}

/// Connections of one are of no use to another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ServerKey {
    id: ServerId,
    tls: Option<TlsClient>,
    http2: bool,
}

impl Servers {
    pub(crate) fn new(shared: Arc<SharedUpstreams>) -> Self {
        Servers { shared, known: RefCell::default() }
    }

    fn server(&self, upstream: &settings::Upstream, origin: &settings::Origin) -> Rc<Server> {
        let mut known = self.known.borrow_mut();
        let new = || {
            let shared = self.shared.server(upstream, origin);
            let server =
                Rc::new(Server::new(origin, ServerProtocol::new(origin, upstream), shared));
            if server.address.is_name() {
                let following = server.address.clone().follow(Rc::downgrade(&server));
                tokio::task::spawn_local(following);
            }
            server
        };
        let (tls, http2) = (upstream.tls.clone(), upstream.http2);
        let key = ServerKey { id: ServerId::new(upstream, origin), tls, http2 };
        let server = known.entry(key).or_insert_with(new);
        server.configure(upstream);
        server.clone()
    }

    /// Closes connections that have been idle for too long, and forgets servers that are no longer configured.
    pub(crate) fn tidy(&self) {
        self.tidy_with(Recall::Any);
    }

    /// The same when this worker has heard of a reload, and others may not have.
    pub(crate) fn tidy_after_reload(&self) {
        self.tidy_with(Recall::Idle);
    }

    fn tidy_with(&self, recall: Recall) {
        let now = Instant::now();
        self.known.borrow_mut().retain(|_, server| {
            server.close_idle(now, recall);
            Rc::strong_count(server) > 1
        });
    }
}
