//! What one worker counts, by itself until it is asked.
//!
//! A meter belongs to one thread and costs no atomic operation. It adds up into the shared
//! [`Metrics`] when the worker is told to, which every scrape does, and when it is dropped.

mod guard;
mod upstream;

use std::cell::OnceCell;
use std::rc::Rc;

use http::StatusCode;
use prometheus::IntCounter;
use prometheus::local::{LocalHistogram, LocalIntCounter};
use tokio::time::Instant;

pub use guard::{GuardAction, GuardCounters, GuardMeter};
pub use upstream::{Failure, FailureMeter};

use super::metrics::Metrics;
use super::request_record::RequestRecord;
use crate::clock;
use crate::limit::{Limit, Mode, Strategy};

/// Statuses whose counters are resolved once for a route; any other is looked up each time.
const COMMON: [u16; 29] = [
    200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 408, 409, 410,
    413, 415, 422, 429, 431, 500, 501, 502, 503, 504,
];

/// The requests of one route.
#[derive(Debug)]
pub struct RouteMeter {
    name: String,
    metrics: Rc<Metrics>,
    /// Resolved with the first request: a configuration may have thousands of routes, and a
    /// reload must not keep the worker from serving.
    series: OnceCell<Box<RouteSeries>>,
}

#[derive(Debug)]
struct RouteSeries {
    seconds: LocalHistogram,
    by_status: [OnceCell<LocalIntCounter>; COMMON.len()],
}

impl RouteMeter {
    #[must_use]
    pub fn new(name: &str, metrics: &Rc<Metrics>) -> Self {
        RouteMeter { name: name.to_owned(), metrics: metrics.clone(), series: OnceCell::new() }
    }

    pub fn flush(&self) {
        if let Some(series) = self.series.get() {
            series.seconds.flush();
            series.by_status.iter().filter_map(OnceCell::get).for_each(LocalIntCounter::flush);
        }
    }

    fn series(&self) -> &RouteSeries {
        self.series.get_or_init(|| {
            let seconds = self.metrics.request_seconds.with_label_values(&[self.name.as_str()]);
            let by_status = [const { OnceCell::new() }; COMMON.len()];
            Box::new(RouteSeries { seconds: seconds.local(), by_status })
        })
    }

    fn observe(&self, seconds: f64) {
        self.series().seconds.observe(seconds);
    }

    fn count(&self, status: StatusCode) {
        let counter =
            || self.metrics.requests.with_label_values(&[self.name.as_str(), status.as_str()]);
        match COMMON.binary_search(&status.as_u16()) {
            Ok(index) => self.series().by_status[index].get_or_init(|| counter().local()).inc(),
            Err(_) => counter().inc(),
        }
    }
}

impl Drop for RouteMeter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What one limit said of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Refused,
    /// Had to wait; what came of that is counted as well.
    Queued,
    /// Was not admitted, and forwarded all the same.
    Degraded,
    /// Would have been allowed by a limit that only watches.
    ShadowAllowed,
    ShadowRefused,
    /// The store could not be asked.
    Unchecked,
}

impl Outcome {
    const ALL: [(Outcome, &str); 7] = [
        (Outcome::Allowed, "allowed"),
        (Outcome::Refused, "refused"),
        (Outcome::Queued, "queued"),
        (Outcome::Degraded, "degraded"),
        (Outcome::ShadowAllowed, "shadow_allowed"),
        (Outcome::ShadowRefused, "shadow_refused"),
        (Outcome::Unchecked, "unchecked"),
    ];

    /// Whether a limit can have it.
    fn is_of(self, limit: &Limit) -> bool {
        let shadow = limit.mode == Mode::Shadow;
        match self {
            Outcome::Allowed | Outcome::Refused => !shadow,
            Outcome::Queued => !shadow && matches!(limit.strategy, Strategy::Queue { .. }),
            Outcome::Degraded => !shadow && limit.strategy == Strategy::Degrade,
            Outcome::ShadowAllowed | Outcome::ShadowRefused => shadow,
            Outcome::Unchecked => true,
        }
    }
}

/// The counters of one limit's outcomes, looked up when the configuration is compiled.
#[derive(Debug, Clone)]
pub struct LimitCounters {
    /// Only those there can be: each is a series.
    counters: [Option<IntCounter>; Outcome::ALL.len()],
}

impl LimitCounters {
    #[must_use]
    pub fn new(limit: &Limit, metrics: &Metrics) -> Self {
        let counter = |(outcome, name): (Outcome, &str)| {
            let counter = || metrics.decisions.with_label_values(&[limit.name.as_str(), name]);
            outcome.is_of(limit).then(counter)
        };
        LimitCounters { counters: Outcome::ALL.map(counter) }
    }
}

/// The outcomes of one limit.
#[derive(Debug)]
pub struct LimitMeter {
    counters: [Option<LocalIntCounter>; Outcome::ALL.len()],
}

impl LimitMeter {
    #[must_use]
    pub fn new(shared: &LimitCounters) -> Self {
        LimitMeter { counters: shared.counters.each_ref().map(|it| Some(it.as_ref()?.local())) }
    }

    pub fn count(&self, outcome: Outcome) {
        if let Some(counter) = &self.counters[outcome as usize] {
            counter.inc();
        }
    }

    pub fn flush(&self) {
        self.counters.iter().flatten().for_each(LocalIntCounter::flush);
    }
}

impl Drop for LimitMeter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What an access list said of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessOutcome {
    Allowed,
    Denied,
}

/// Callers that an access list allowed or denied. A clone begins at zero.
#[derive(Debug, Clone)]
pub struct AccessMeter {
    allowed: LocalIntCounter,
    denied: LocalIntCounter,
}

impl AccessMeter {
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let counter = |name| metrics.access.with_label_values(&[name]).local();
        AccessMeter { allowed: counter("allowed"), denied: counter("denied") }
    }

    pub fn count(&self, outcome: AccessOutcome) {
        match outcome {
            AccessOutcome::Allowed => self.allowed.inc(),
            AccessOutcome::Denied => self.denied.inc(),
        }
    }

    pub fn flush(&self) {
        self.allowed.flush();
        self.denied.flush();
    }
}

impl Drop for AccessMeter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Measures one request, and writes it down when it is dropped: with the end of the answer's body,
/// or wherever the request was given up.
#[derive(Debug)]
pub struct RequestMeter {
    route: Rc<RouteMeter>,
    started: Instant,
    status: Option<StatusCode>,
    sent: u64,
    record: Option<Box<RequestRecord>>,
}

/// nginx's status of a request whose client did not wait for the answer.
pub const CLIENT_GONE: u16 = 499;

impl RequestMeter {
    #[must_use]
    pub fn start(
        route: Rc<RouteMeter>,
        started: Instant,
        record: Option<Box<RequestRecord>>,
    ) -> Self {
        RequestMeter { route, started, status: None, sent: 0, record }
    }

    pub fn take_route(&mut self, route: &Rc<RouteMeter>) {
        self.route = route.clone();
    }

    /// What is kept of the request, if anything is.
    pub fn record(&mut self) -> Option<&mut RequestRecord> {
        self.record.as_deref_mut()
    }

    /// Notes why the gateway has answered itself.
    pub fn failed(&mut self, error: &'static str) {
        if let Some(record) = &mut self.record {
            record.failed(error);
        }
    }

    /// Notes what was answered. Counted at once: a scrape does not wait for slow readers.
    pub fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.route.count(status);
    }

    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        let status = self.status.unwrap_or_else(|| {
            let gone = StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST);
            let failed = std::thread::panicking();
            let status = if failed { StatusCode::INTERNAL_SERVER_ERROR } else { gone };
            self.route.count(status);
            status
        });
        let seconds = (clock::now() - self.started).as_secs_f64();
        self.route.observe(seconds);
        if let Some(record) = self.record.take() {
            record.finish(&self.route.name, status, seconds, self.sent);
        }
    }
}
