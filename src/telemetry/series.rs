//! The series that a configuration has, by the names in their labels.
//!
//! A label never expires by itself: what a reload has removed would be scraped for ever.

use std::collections::{HashMap, HashSet};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};

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
        prune(&self.requests, "route", &series.routes);
        prune(&self.request_seconds, "route", &series.routes);
        prune(&self.decisions, "limit", &series.limits);
        prune(&self.queue_depth, "limit", &series.limits);
        prune(&self.overshoot_bound, "limit", &series.limits);
        prune(&self.guard_detections, "guard", &series.guards);
        prune(&self.upstream_seconds, "upstream", &series.upstreams);
        prune(&self.upstream_errors, "upstream", &series.upstreams);
    }
}

fn prune<B: MetricVecBuilder>(vec: &MetricVec<B>, label: &str, names: &HashSet<&str>) {
    for family in vec.collect() {
        for metric in family.get_metric() {
            let labels = metric.get_label();
            if labels.iter().any(|it| it.name() == label && !names.contains(it.value())) {
                let labels: HashMap<&str, &str> =
                    labels.iter().map(|it| (it.name(), it.value())).collect();
                // Only this thread removes series, so it is there.
                let _ = vec.remove(&labels);
            }
        }
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
        let page = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(!page.contains("gone"), "{page}");
        assert!(page.contains("weir_requests_total{route=\"kept\",status=\"429\"} 1"), "{page}");
        assert!(page.contains("weir_queue_depth{limit=\"kept\"} 1"), "{page}");
    }
}
