//! How metrics are made and registered: those without labels, and families of those with.

use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Registry};

use crate::telemetry::family::{Family, WriteFamily};
use crate::telemetry::page::Series;
use crate::telemetry::user_scores::UserScores;

pub(super) const REGISTERED: &str = "metric names are valid and registered once";

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let counter = IntCounter::new(name, help).expect(REGISTERED);
    registry.register(Box::new(counter.clone())).expect(REGISTERED);
    counter
}

pub(super) fn user_scores(registry: &Registry) -> UserScores {
    let scores = UserScores::new();
    registry.register(Box::new(scores.clone())).expect(REGISTERED);
    scores
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauge = IntGauge::new(name, help).expect(REGISTERED);
    registry.register(Box::new(gauge.clone())).expect(REGISTERED);
    gauge
}

/// The metrics with labels. A series' own name and help are never shown: those of its family are.
#[derive(Default)]
pub(super) struct Families(pub(super) Vec<Box<dyn WriteFamily>>);

impl Families {
    pub(super) fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Family<IntCounter> {
        let new_series = move || IntCounter::new(name, name).expect(REGISTERED);
        self.add(Family::new(name, help, labels, new_series))
    }

    pub(super) fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Family<IntGauge> {
        let new_series = move || IntGauge::new(name, name).expect(REGISTERED);
        self.add(Family::new(name, help, labels, new_series))
    }

    pub(super) fn float_gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Family<Gauge> {
        let new_series = move || Gauge::new(name, name).expect(REGISTERED);
        self.add(Family::new(name, help, labels, new_series))
    }

    pub(super) fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
    ) -> Family<Histogram> {
        let new_series = move || {
            let options = HistogramOpts::new(name, name).buckets(bounds.to_vec());
            Histogram::with_opts(options).expect(REGISTERED)
        };
        self.add(Family::new(name, help, labels, new_series))
    }

    pub(super) fn add<S: Series>(&mut self, family: Family<S>) -> Family<S> {
        self.0.push(Box::new(family.clone()));
        family
    }
}
