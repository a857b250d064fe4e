//! Measures one answer from its request's header to the end of its body.

use std::cell::OnceCell;
use std::rc::Rc;

use http::StatusCode;
use prometheus::{Histogram, IntCounter};
use tokio::time::Instant;

use super::access_log::Entry;
use super::metrics::Metrics;

/// Statuses whose counters are resolved once for a route; any other is looked up each time.
const COMMON: [u16; 28] = [
    200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 408, 409, 410,
    413, 422, 429, 431, 500, 501, 502, 503, 504,
];

/// What one worker counts for one route.
#[derive(Debug)]
pub struct RouteMeter {
    name: String,
    metrics: Metrics,
    seconds: Histogram,
    by_status: [OnceCell<IntCounter>; COMMON.len()],
}

impl RouteMeter {
    #[must_use]
    pub fn new(name: &str, metrics: &Metrics) -> Self {
        RouteMeter {
            name: name.to_owned(),
            metrics: metrics.clone(),
            seconds: metrics.request_seconds.with_label_values(&[name]),
            by_status: [const { OnceCell::new() }; COMMON.len()],
        }
    }

    fn count(&self, status: StatusCode) {
        let resolve =
            || self.metrics.requests.with_label_values(&[self.name.as_str(), status.as_str()]);
        match COMMON.binary_search(&status.as_u16()) {
            Ok(index) => self.by_status[index].get_or_init(resolve).inc(),
            Err(_) => resolve().inc(),
        }
    }
}

/// Travels with a response's body and is written down when the body is dropped: at its end, or
/// when the client has left.
#[derive(Debug)]
pub struct Meter {
    route: Rc<RouteMeter>,
    started: Instant,
    sent: u64,
    entry: Option<Box<Entry>>,
}

impl Meter {
    #[must_use]
    pub fn new(
        route: Rc<RouteMeter>,
        started: Instant,
        status: StatusCode,
        entry: Option<Box<Entry>>,
    ) -> Self {
        // The status is known now; a scrape must not have to wait for a slow reader.
        route.count(status);
        Meter { route, started, sent: 0, entry }
    }

    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.route.seconds.observe(seconds);
        if let Some(entry) = self.entry.take() {
            entry.write(&self.route.name, seconds, self.sent);
        }
    }
}
