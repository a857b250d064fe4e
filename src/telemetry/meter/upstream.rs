//! What one worker counts of one upstream: requests that ended in its failure.

use prometheus::local::LocalIntCounter;

use crate::telemetry::metrics::Metrics;

/// How an upstream failed a request, once nothing more is tried for it. The first three come
/// before the header of an answer; the others are of requests that `upstream_seconds` counts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection: refused, no way there, or a name without an address.
    Unreachable,
    /// No connection or no header in time.
    Timeout,
    /// Closed before the header, or not HTTP.
    Broken,
    /// The header came and not the whole body.
    CutOff,
    /// A response whose status is 500 or more.
    Status5xx,
    /// Too many connections and waiting requests.
    Saturated,
    /// Not sent, because those before it failed.
    BreakerOpen,
}

impl Failure {
    const NAMES: [(Failure, &str); 7] = [
        (Failure::Unreachable, "unreachable"),
        (Failure::Timeout, "timeout"),
        (Failure::Broken, "broken"),
        (Failure::CutOff, "cut_off"),
        (Failure::Status5xx, "status_5xx"),
        (Failure::Saturated, "saturated"),
        (Failure::BreakerOpen, "breaker_open"),
    ];
}

/// The failures of one upstream.
#[derive(Debug)]
pub struct FailureMeter([LocalIntCounter; Failure::NAMES.len()]);

impl FailureMeter {
    #[must_use]
    pub fn new(upstream: &str, metrics: &Metrics) -> Self {
        let counter = |(_, name)| metrics.upstream_errors.with_label_values(&[upstream, name]);
        FailureMeter(Failure::NAMES.map(|failure| counter(failure).local()))
    }

    pub fn count(&self, failure: Failure) {
        self.0[failure as usize].inc();
    }

    pub fn flush(&self) {
        self.0.iter().for_each(LocalIntCounter::flush);
    }
}

impl Drop for FailureMeter {
    fn drop(&mut self) {
        self.flush();
    }
}
