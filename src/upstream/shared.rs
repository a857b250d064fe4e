//! What all workers share of upstreams and their servers: who is healthy, who is left out.
//!
//! Connections stay with their workers. What is here is a few numbers a server that change rarely,
//! so reading them on the way of a request costs next to nothing. A reload keeps those of every
//! server that is still configured, or still in use by a worker: one that is taken out and put back
//! is the same server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use tokio::time::Instant;

use super::ConnectError;
use super::breaker::BreakerState;
use super::ejection::{EjectionState, EjectionVerdict};
use super::resolve::ServerAddress;
use super::slots::ConnectionSlots;
use crate::config::settings::{self, Ejection, Origin};
use crate::telemetry::Metrics;

/// Every upstream of the process, by its name.
#[derive(Debug, Default)]
pub struct SharedUpstreams {
    metrics: Metrics,
    servers: Mutex<HashMap<ServerId, Arc<SharedServer>>>,
    breakers: Mutex<HashMap<String, Arc<BreakerState>>>,
}

/// A server of an upstream. Two upstreams may have the same server, and know it each for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ServerId {
    pub(super) upstream: String,
    pub(super) origin: Origin,
}

impl ServerId {
    pub(super) fn new(upstream: &settings::Upstream, origin: &Origin) -> Self {
        ServerId { upstream: upstream.name.clone(), origin: origin.clone() }
    }

    /// The settings of its upstream, if these have the server.
    fn find_in<'a>(&self, upstreams: &'a [settings::Upstream]) -> Option<&'a settings::Upstream> {
        let upstream = upstreams.iter().find(|it| it.name == self.upstream)?;
        upstream.servers.iter().any(|it| it.origin == self.origin).then_some(upstream)
    }
}

/// What operators are told of a server.
#[derive(Debug)]
pub(crate) struct ServerStatus {
    pub(crate) name: String,
    pub(crate) healthy: bool,
    pub(crate) ejected: bool,
    pub(crate) pending: usize,
}

/// One server of one upstream.
#[derive(Debug)]
pub(crate) struct SharedServer {
    upstream: String,
    /// As it is named in logs and metrics.
    pub(super) name: String,
    pub(super) address: ServerAddress,
    pub(super) ejection: EjectionState,
    pub(super) slots: Arc<ConnectionSlots>,
    /// Connections over HTTP/2 that take requests of anybody.
    live_connections: AtomicUsize,
    /// Not, if its probes say so.
    healthy: AtomicBool,
    /// `None` while it is not configured.
    ejections: Mutex<Option<IntCounter>>,
    probing: Mutex<Probing>,
}

/// One of a server's [live connections](SharedServer::has_live_connections), until it is dropped.
#[derive(Debug)]
pub(super) struct LiveConnection(Arc<SharedServer>);

impl LiveConnection {
    pub(super) fn new(server: &Arc<SharedServer>) -> Self {
        server.live_connections.fetch_add(1, Ordering::Relaxed);
        LiveConnection(server.clone())
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.0.live_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who may say whether a server is healthy, and where that is shown.
#[derive(Debug, Default)]
struct Probing {
    /// The last who began to probe.
    current: u64,
    /// While it is probed.
    gauge: Option<IntGauge>,
}

/// The right to say whether a server is healthy, until another is given out or probing ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeNumber(u64);

impl SharedUpstreams {
    pub fn new(metrics: &Metrics) -> Self {
        SharedUpstreams { metrics: metrics.clone(), ..SharedUpstreams::default() }
    }

    /// Holds servers to another configuration, and forgets those that it does not have and nobody uses.
    pub fn configure(&self, upstreams: &[settings::Upstream]) {
        self.servers.lock().retain(|id, server| match id.find_in(upstreams) {
            Some(upstream) => {
                server.configure(upstream, &self.metrics);
                true
            }
            None => {
                server.hide(&self.metrics);
                // A worker may find it again in its own table if it comes back soon, so both have to
                // be of the same mind.
                Arc::strong_count(server) > 1
            }
        });
        let has_breaker =
            |name: &str| upstreams.iter().any(|it| it.name == name && it.breaker.is_some());
        self.breakers.lock().retain(|name, breaker| {
            let kept = has_breaker(name);
            if !kept {
                breaker.reset();
                self.metrics.remove_breaker(name);
            }
            kept
        });
    }

    pub(crate) fn server(
        &self,
        upstream: &settings::Upstream,
        origin: &Origin,
    ) -> Arc<SharedServer> {
        let mut servers = self.servers.lock();
        let id = ServerId::new(upstream, origin);
        let new = || Arc::new(SharedServer::new(upstream, origin, &self.metrics));
        servers.entry(id).or_insert_with(new).clone()
    }

    /// What is known of a server, for operators.
    pub(crate) fn server_status(
        &self,
        upstream: &settings::Upstream,
        origin: &Origin,
    ) -> ServerStatus {
        let server = self.server(upstream, origin);
        ServerStatus {
            name: server.name.clone(),
            healthy: server.is_healthy(),
            ejected: server.ejection.is_out(),
            pending: server.slots.pending(),
        }
    }

    pub(crate) fn breaker_is_open(&self, upstream: &str) -> bool {
        self.breakers.lock().get(upstream).is_some_and(|it| it.is_open())
    }

    /// The breaker of an upstream that has one.
    pub(super) fn breaker(&self, upstream: &str) -> Arc<BreakerState> {
        let new = || {
            let gauge = self.metrics.upstream_breaker_open.with_label_values(&[upstream]);
            Arc::new(BreakerState::new(upstream, gauge))
        };
        self.breakers.lock().entry(upstream.to_owned()).or_insert_with(new).clone()
    }
}

impl SharedServer {
    fn new(upstream: &settings::Upstream, origin: &Origin, metrics: &Metrics) -> Self {
        let name = origin.authority();
        let server = SharedServer {
            upstream: upstream.name.clone(),
            ejection: EjectionState::new(&upstream.name, &name),
            name,
            address: ServerAddress::new(origin),
            slots: Arc::new(ConnectionSlots::new(upstream.max_connections)),
            live_connections: AtomicUsize::new(0),
            healthy: AtomicBool::new(true),
            ejections: Mutex::default(),
            probing: Mutex::default(),
        };
        server.configure(upstream, metrics);
        server
    }

    /// One that nobody else has.
    #[cfg(test)]
    pub(super) fn alone(upstream: &settings::Upstream, origin: &Origin) -> Arc<Self> {
        Arc::new(SharedServer::new(upstream, origin, &Metrics::new()))
    }

    fn configure(&self, upstream: &settings::Upstream, metrics: &Metrics) {
        let labels = [&self.upstream, &self.name];
        self.slots.resize(upstream.max_connections);
        // Over HTTP/2 requests with large heads may have to wait in any case.
        if upstream.max_connections > 0 || upstream.http2 {
            self.slots.show_pending(|| metrics.upstream_pending.with_label_values(&labels));
        }
        self.address.set_interval(upstream.resolve_interval);
        let ejections = || metrics.upstream_ejections.with_label_values(&labels);
        self.ejections.lock().get_or_insert_with(ejections);
        if !upstream.ejection.is_on() {
            self.ejection.note_turned_off();
        }
        if upstream.health.is_none() {
            self.end_probing();
            metrics.upstream_healthy.remove(&[&self.upstream, &self.name]);
        }
    }

    /// It is not configured any more. Its slots, and what requests have found out about it, stay for
    /// as long as anybody uses it.
    fn hide(&self, metrics: &Metrics) {
        self.end_probing();
        self.slots.hide_pending();
        *self.ejections.lock() = None;
        metrics.remove_server(&self.upstream, &self.name);
    }

    pub(super) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Somebody is to find out whether it is healthy, and nobody else from now on.
    pub(super) fn begin_probing(&self, metrics: &Metrics) -> ProbeNumber {
        let gauge = metrics.upstream_healthy.with_label_values(&[&self.upstream, &self.name]);
        gauge.set(i64::from(self.is_healthy()));
        let mut probing = self.probing.lock();
        probing.gauge = Some(gauge);
        probing.current += 1;
        ProbeNumber(probing.current)
    }

    /// Nobody finds out any more, so it counts as healthy.
    fn end_probing(&self) {
        let mut probing = self.probing.lock();
        probing.gauge = None;
        probing.current += 1;
        self.healthy.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// Notes what probes have found out. Returns false if it is no longer theirs to say: a probe that
    /// was under way during a reload ends after it.
    #[must_use = "what is not noted has not happened"]
    pub(super) fn set_healthy(&self, number: ProbeNumber, healthy: bool) -> bool {
        let probing = self.probing.lock();
        let is_current = ProbeNumber(probing.current) == number;
        if is_current {
            probing.gauge.as_ref().inspect(|gauge| gauge.set(i64::from(healthy)));
            self.healthy.store(healthy, Ordering::Relaxed);
        }
        is_current
    }

    /// Whether it has connections that take requests of anybody, so that it can be reached.
    pub(super) fn has_live_connections(&self) -> bool {
        self.live_connections.load(Ordering::Relaxed) > 0
    }

    /// No connection could be had.
    pub(super) fn note_unreachable(
        &self,
        settings: &Ejection,
        has_others: bool,
        error: &ConnectError,
    ) {
        let now = Instant::now();
        self.count(self.ejection.note_unreachable(now, settings, has_others, error));
    }

    /// A request got no response. `may_eject` is asked if that was one too many.
    pub(super) fn note_failed(
        &self,
        now: Instant,
        client: IpAddr,
        settings: &Ejection,
        may_eject: impl FnOnce() -> bool,
    ) {
        self.count(self.ejection.note_failed(now, client, settings, may_eject));
    }

    fn count(&self, verdict: EjectionVerdict) {
        if let EjectionVerdict::Ejected(_) = verdict {
            self.ejections.lock().as_ref().inspect(|ejections| ejections.inc());
        }
    }
}

#[cfg(test)]
mod tests;
