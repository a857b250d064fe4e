//! One request in its trace: what its spans will say, noted on its way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{StatusCode, header};
use tokio::time::Instant;

use super::context::TraceContext;
use super::span_sink::SpanSink;
use crate::clock;
use crate::telemetry::random_id::random_u64;

/// What is told of a path and a host.
const MAX_TEXT: usize = 512;

/// From and to, of the process's clock.
pub type SpanTimes = (Instant, Instant);

/// A request under way whose trace is sampled.
#[derive(Debug)]
pub struct RequestTrace {
    sink: SpanSink,
    trace: FinishedTrace,
}

/// A request that has ended: the request itself, the decision on its limits, and its upstream.
#[derive(Debug)]
pub struct FinishedTrace {
    pub trace_id: u128,
    /// The caller's span, if the trace did not begin here.
    pub parent: Option<u64>,
    pub request_span: u64,
    /// What the upstream was told.
    pub upstream_span: u64,
    /// When the request's header was there.
    pub began: SystemTime,
    began_at: Instant,
    pub ended_at: Instant,
    pub method: String,
    pub host: String,
    pub path: String,
    pub route: String,
    pub status: u16,
    pub client: String,
    /// Why the gateway has answered itself, if it has.
    pub error: Option<&'static str>,
    pub decision: Option<SpanTimes>,
    /// The limit that refused, if one did.
    pub limit: Option<String>,
    pub upstream: Option<(String, SpanTimes)>,
}

impl FinishedTrace {
    /// How many spans it makes.
    pub fn spans(&self) -> u64 {
        1 + u64::from(self.decision.is_some()) + u64::from(self.upstream.is_some())
    }

    pub fn began_at(&self) -> Instant {
        self.began_at
    }

    /// Nanoseconds since 1970.
    pub fn unix_nanos(&self, at: Instant) -> u128 {
        let since = at.saturating_duration_since(self.began_at);
        let began = self.began.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        (began + since).as_nanos()
    }
}

impl RequestTrace {
    pub(super) fn begin(
        sink: SpanSink,
        upstream: TraceContext,
        parent: Option<u64>,
        parts: &Parts,
    ) -> Box<Self> {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let now = clock::now();
        let trace = FinishedTrace {
            trace_id: upstream.trace_id,
            parent,
            request_span: random_u64(),
            upstream_span: upstream.span_id,
            began: SystemTime::now(),
            began_at: now,
            ended_at: now,
            method: parts.method.to_string(),
            host: cut(host.unwrap_or_default()),
            path: cut(parts.uri.path()),
            route: String::new(),
            status: 0,
            client: String::new(),
            error: None,
            decision: None,
            limit: None,
            upstream: None,
        };
        Box::new(RequestTrace { sink, trace })
    }

    /// The caller's address, as logs may name it.
    pub fn set_client(&mut self, client: String) {
        self.trace.client = client;
    }

    /// Notes why the gateway has answered itself.
    pub fn failed(&mut self, error: &'static str) {
        self.trace.error = Some(error);
    }

    /// The limits were decided from then until now.
    pub fn decided(&mut self, since: Instant) {
        self.trace.decision = Some((since, clock::now()));
    }

    pub fn refused_by(&mut self, limit: Option<String>) {
        self.trace.limit = limit;
    }

    /// The upstream has answered, or failed: it was asked at that time.
    pub fn forwarded(&mut self, upstream: &str, since: Instant) {
        self.trace.upstream = Some((upstream.to_owned(), (since, clock::now())));
    }

    /// The answer has ended.
    pub fn finish(mut self, route: &str, status: StatusCode) {
        self.trace.route = route.to_owned();
        self.trace.status = status.as_u16();
        self.trace.ended_at = clock::now();
        self.sink.send(self.trace);
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}
