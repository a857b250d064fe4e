//! The metrics, and where they are registered. No label ever carries a caller's key.
//!
//! Looking up a series by its labels allocates and locks, and counting in one place from several
//! threads passes its cache line around. Workers therefore count in [meters](super::meter) of
//! their own, resolved when the configuration is compiled, and add up here before each scrape.

mod families;

use std::sync::Arc;

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Registry, TextEncoder};

use super::family::{Family, WriteFamily};
use super::page::MetricsPage;
use super::user_scores::UserScores;
use families::{Families, REGISTERED, counter, gauge, user_scores};

#[derive(Debug, Clone)]
pub struct Metrics {
    /// Those without labels.
    registry: Registry,
    families: Arc<[Box<dyn WriteFamily>]>,
    pub requests: Family<IntCounter>,
    pub decisions: Family<IntCounter>,
    pub access: Family<IntCounter>,
    pub guard_detections: Family<IntCounter>,
    pub audit_dropped: IntCounter,
    /// Spans that were not exported.
    pub trace_spans_dropped: IntCounter,
    pub user_scores: UserScores,
    pub decision_seconds: Family<Histogram>,
    pub request_seconds: Family<Histogram>,
    pub upstream_seconds: Family<Histogram>,
    pub upstream_errors: Family<IntCounter>,
    pub upstream_ejections: Family<IntCounter>,
    pub upstream_healthy: Family<IntGauge>,
    pub upstream_breaker_open: Family<IntGauge>,
    pub upstream_pending: Family<IntGauge>,
    /// By [`STORE_ERRORS`].
    pub store_errors: Family<IntCounter>,
    pub store_calls: IntCounter,
    pub store_nodes: IntGauge,
    pub leases: Family<IntGauge>,
    pub lease_tokens: IntGauge,
    pub overshoot_bound: Family<Gauge>,
    pub store_degraded: IntGauge,
    pub queue_depth: Family<IntGauge>,
    /// Where nobody waits: not shown.
    pub no_queue: IntGauge,
    pub buckets: IntGauge,
    pub buckets_overflow: IntGauge,
    pub connections: IntGauge,
    pub turned_away: IntCounter,
    pub turned_away_per_ip: IntCounter,
    pub proxy_header_errors: IntCounter,
    /// By [`HANDSHAKE_ERRORS`].
    pub tls_handshake_errors: Family<IntCounter>,
    /// By [`HTTP2_FLOODS`].
    pub http2_floods: Family<IntCounter>,
    pub certificate_expiry: Family<IntGauge>,
    pub reloads: Family<IntCounter>,
    /// Whether the files say what is served.
    pub last_reload: IntGauge,
    build: Family<IntGauge>,
}

/// Why a connection did not become one of TLS; `alert` is what the client has said.
pub const HANDSHAKE_ERRORS: [&str; 9] = [
    "alert",
    "client_certificate",
    "crowded",
    "disconnected",
    "incompatible",
    "malformed",
    "not_tls",
    "plain_http",
    "timeout",
];

/// What a client has flooded its connection with: frames that ask for nothing, streams that were reset
/// unanswered, or what the codec itself ends connections for.
pub const HTTP2_FLOODS: [&str; 3] = ["codec", "frames", "streams"];

/// Why a call to the store failed; `denied` is a login or a permission.
pub const STORE_ERRORS: [&str; 11] = [
    "timeout",
    "connection",
    "loading",
    "readonly",
    "busy",
    "oom",
    "cluster",
    "script",
    "reply",
    "denied",
    "other",
];

/// From what a decision in memory takes to what one over a network may, with a generous timeout.
const DECISION_BUCKETS: &[f64] =
    &[2.5e-7, 5e-7, 1e-6, 2.5e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 2e-2, 5e-2, 0.1];
const REQUEST_BUCKETS: &[f64] =
    &[5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 5.0];

impl Metrics {
    /// # Panics
    /// Never: the names are valid and each is registered once.
    pub fn new() -> Self {
        let registry = Registry::new();
        let mut families = Families::default();
        let metrics = Metrics {
            requests: families.counters(
                "weir_requests_total",
                "Requests answered.",
                &["route", "status"],
            ),
            decisions: families.counters(
                "weir_decisions_total",
                "What each limit said of the requests it applied to.",
                &["limit", "outcome"],
            ),
            access: families.counters(
                "weir_access_total",
                "Requests of callers that are never limited, or never get in.",
                &["action"],
            ),
            guard_detections: families.counters(
                "weir_guard_detections_total",
                "Floods that a guard has noticed, and requests of callers that it has blocked.",
                &["guard", "action"],
            ),
            audit_dropped: counter(
                &registry,
                "weir_audit_dropped_total",
                "Events that are in no line of the audit log and in no sum, because there were too \
                 many at once or a target did not keep up.",
            ),
            trace_spans_dropped: counter(
                &registry,
                "weir_trace_spans_dropped_total",
                "Spans of sampled traces that no collector has taken, because it failed or did not \
                 keep up.",
            ),
            user_scores: user_scores(&registry),
            decision_seconds: families.histograms(
                "weir_decision_seconds",
                "Time from a request's header to the decision on all its limits.",
                &["store"],
                DECISION_BUCKETS,
            ),
            request_seconds: families.histograms(
                "weir_request_seconds",
                "Time from a request's header to the end of its answer.",
                &["route"],
                REQUEST_BUCKETS,
            ),
            upstream_seconds: families.histograms(
                "weir_upstream_seconds",
                "Time from forwarding a request to the header of its response.",
                &["upstream"],
                REQUEST_BUCKETS,
            ),
            upstream_errors: families.counters(
                "weir_upstream_errors_total",
                "Requests that an upstream failed, once each, after all retries: no connection, \
                 no header in time, no HTTP, a body cut off, or a status of 500 or more; only the \
                 last two are in weir_upstream_seconds. Requests whose client left are not among \
                 them.",
                &["upstream", "error"],
            ),
            upstream_ejections: families.counters(
                "weir_upstream_ejections_total",
                "How often a server was left out because it failed.",
                &["upstream", "server"],
            ),
            upstream_healthy: families.gauges(
                "weir_upstream_healthy",
                "1 for a server whose probes succeed, 0 for one whose probes fail.",
                &["upstream", "server"],
            ),
            upstream_breaker_open: families.gauges(
                "weir_upstream_breaker_open",
                "1 while requests to an upstream, be it of some clients only, are answered with 503 \
                 because those before them failed.",
                &["upstream"],
            ),
            upstream_pending: families.gauges(
                "weir_upstream_pending",
                "Requests that wait for a connection, because a server has as many as it may.",
                &["upstream", "server"],
            ),
            store_errors: families.counters(
                "weir_store_errors_total",
                "Calls to the store that failed.",
                &["reason"],
            ),
            store_calls: counter(
                &registry,
                "weir_store_calls_total",
                "Script calls sent to the store.",
            ),
            store_nodes: gauge(
                &registry,
                "weir_store_nodes",
                "Gateways that share the store, as last heard of.",
            ),
            store_degraded: gauge(
                &registry,
                "weir_store_degraded",
                "1 while the store is failing.",
            ),
            leases: families.gauges(
                "weir_leases",
                "Keys of which units were taken in advance: active, with some left to spend, or dry, \
                 near their limit and not asked for again yet.",
                &["state"],
            ),
            lease_tokens: gauge(
                &registry,
                "weir_lease_tokens",
                "Units that were taken in advance and are not spent.",
            ),
            overshoot_bound: families.float_gauges(
                "weir_overshoot_bound",
                "What this gateway may admit beyond a limit's promise because it decides alone: 0 \
                 while the shared store decides.",
                &["limit"],
            ),
            queue_depth: families.gauges(
                "weir_queue_depth",
                "Requests that wait for a limit to let them pass.",
                &["limit"],
            ),
            no_queue: IntGauge::new("none", "none").expect(REGISTERED),
            buckets: gauge(&registry, "weir_buckets", "Buckets in memory, shared ones included."),
            buckets_overflow: gauge(
                &registry,
                "weir_buckets_overflow",
                "Shared buckets in use because the table was full.",
            ),
            turned_away: counter(
                &registry,
                "weir_connections_turned_away_total",
                "Connections for which there was no room.",
            ),
            turned_away_per_ip: counter(
                &registry,
                "weir_connections_turned_away_per_ip_total",
                "Connections of addresses that had as many as they may have.",
            ),
            tls_handshake_errors: families.counters(
                "weir_tls_handshake_errors_total",
                "Connections that did not become one of TLS.",
                &["reason"],
            ),
            http2_floods: families.counters(
                "weir_http2_floods_total",
                "Connections of HTTP/2 that were ended for a flood.",
                &["reason"],
            ),
            certificate_expiry: families.gauges(
                "weir_tls_certificate_expiry_seconds",
                "When the certificate of a listener ends, in seconds since 1970.",
                &["certificate"],
            ),
            proxy_header_errors: counter(
                &registry,
                "weir_proxy_header_errors_total",
                "Connections closed because they did not begin with a good PROXY header.",
            ),
            connections: gauge(&registry, "weir_connections", "Client connections open."),
            reloads: families.counters(
                "weir_config_reloads_total",
                "Attempts to load a changed configuration.",
                &["result"],
            ),
            last_reload: gauge(
                &registry,
                "weir_config_last_reload_successful",
                "0 from a failed reload until one succeeds or the file is again as it was.",
            ),
            build: families.gauges(
                "weir_build_info",
                "1, by the version of Weir and the name that this gateway has in Via.",
                &["version", "node"],
            ),
            families: families.0.into(),
            registry,
        };
        metrics.last_reload.set(1);
        for result in ["ok", "failed"] {
            metrics.reloads.with_label_values(&[result]);
        }
        // A series that starts at its first error cannot be alerted on.
        for reason in STORE_ERRORS {
            metrics.store_errors.with_label_values(&[reason]);
        }
        for reason in HANDSHAKE_ERRORS {
            metrics.tls_handshake_errors.with_label_values(&[reason]);
        }
        for reason in HTTP2_FLOODS {
            metrics.http2_floods.with_label_values(&[reason]);
        }
        metrics
    }

    /// Says what this gateway is called.
    pub fn set_build_info(&self, node: &str) {
        self.build.with_label_values(&[env!("CARGO_PKG_VERSION"), node]).set(1);
    }

    /// Says when certificates end, by their names, and forgets all others.
    pub fn set_certificates<'a>(&self, ends: impl Iterator<Item = (&'a str, i64)>) {
        let ends: Vec<_> = ends.collect();
        self.certificate_expiry.prune(&ends.iter().map(|(name, _)| *name).collect());
        for (name, end) in ends {
            self.certificate_expiry.with_label_values(&[name]).set(end);
        }
    }

    /// All metrics in Prometheus's text format. `take` is called with some 64 KiB after others, while
    /// nothing is locked.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub fn render(&self, mut take: impl FnMut(String)) -> Result<(), prometheus::Error> {
        let mut page = MetricsPage::new(&mut take);
        page.write_encoded(&TextEncoder::new().encode_to_string(&self.registry.gather())?);
        self.families.iter().for_each(|family| family.write(&mut page));
        page.hand_on();
        Ok(())
    }
}

#[cfg(test)]
impl Metrics {
    /// The whole text.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        self.render(|piece| page.push_str(&piece)).expect("all metrics can be encoded");
        page
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_that_waited_for_a_slow_store_are_told_apart() {
        let metrics = Metrics::new();
        let decisions = metrics.decision_seconds.with_label_values(&["redis"]);
        [0.015, 0.035, 0.07, 0.2].into_iter().for_each(|seconds| decisions.observe(seconds));
        let page = metrics.page();
        for (bound, count) in [("0.02", 1), ("0.05", 2), ("0.1", 3), ("+Inf", 4)] {
            let line = format!("_bucket{{store=\"redis\",le=\"{bound}\"}} {count}\n");
            assert!(page.contains(&line), "{line}{page}");
        }
    }
}
