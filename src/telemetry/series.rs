//! The series that a configuration has, by the names in their labels.
//!
//! A label never expires by itself: what a reload has removed would be scraped for ever.

use std::collections::HashSet;

use super::metrics::Metrics;

/// The names that series may carry.
#[derive(Debug, Clone, Default)]
pub struct SeriesNames<'a> {
    pub routes: HashSet<&'a str>,
    pub limits: HashSet<&'a str>,
    pub guards: HashSet<&'a str>,
    pub upstreams: HashSet<&'a str>,
}

impl Metrics {
    /// Removes the series of routes, limits, guards and upstreams that are not among these.
    pub fn prune(&self, series: &SeriesNames<'_>) {
        self.requests.prune(&series.routes);
        self.request_seconds.prune(&series.routes);
        self.decisions.prune(&series.limits);
        self.queue_depth.prune(&series.limits);
        self.overshoot_bound.prune(&series.limits);
        self.guard_detections.prune(&series.guards);
        self.upstream_seconds.prune(&series.upstreams);
        self.upstream_errors.prune(&series.upstreams);
        self.upstream_ejections.prune(&series.upstreams);
        self.upstream_healthy.prune(&series.upstreams);
        self.upstream_pending.prune(&series.upstreams);
        self.upstream_breaker_open.prune(&series.upstreams);
    }

    /// Removes the series of a server that its upstream does not have any more.
    pub fn remove_server(&self, upstream: &str, server: &str) {
        self.upstream_ejections.remove(&[upstream, server]);
        self.upstream_healthy.remove(&[upstream, server]);
        self.upstream_pending.remove(&[upstream, server]);
    }

    /// Removes the series of a breaker that its upstream does not have any more.
    pub fn remove_breaker(&self, upstream: &str) {
        self.upstream_breaker_open.remove(&[upstream]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_stays() {
        let metrics = Metrics::new();
        for name in ["kept", "gone"] {
            metrics.requests.with_label_values(&[name, "200"]).inc();
            metrics.requests.with_label_values(&[name, "429"]).inc();
            metrics.request_seconds.with_label_values(&[name]).observe(0.1);
            metrics.decisions.with_label_values(&[name, "allowed"]).inc();
            metrics.queue_depth.with_label_values(&[name]).set(1);
            metrics.guard_detections.with_label_values(&[name, "warned"]).inc();
            metrics.upstream_seconds.with_label_values(&[name]).observe(0.1);
            metrics.upstream_errors.with_label_values(&[name, "timeout"]).inc();
        }
        let names = HashSet::from(["kept"]);
        let series = SeriesNames {
            routes: names.clone(),
            limits: names.clone(),
            guards: names.clone(),
            upstreams: names.clone(),
        };
        metrics.prune(&series);
        let page = metrics.page();
        assert!(!page.contains("gone"), "{page}");
        assert!(page.contains("weir_requests_total{route=\"kept\",status=\"429\"} 1"), "{page}");
        assert!(page.contains("weir_queue_depth{limit=\"kept\"} 1"), "{page}");
    }
}
