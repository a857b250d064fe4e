//! What is kept of a request beyond what is counted: its id, its line in the access log, its spans.
//!
//! All of it is off by default, and then a request costs one branch.

use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use http::request::Parts;
use tokio::time::Instant;

use super::access_log::{AccessLog, AccessLogEntry};
use super::line_writer::LineWriter;
use super::request_id;
use super::traces::{RequestTrace, SpanSink, Tracing};
use crate::clock;
use crate::config::settings::{IdSource, Telemetry};

/// What a configuration wants to be kept of each request.
#[derive(Debug, Clone)]
pub struct RequestRecorder {
    ids: Option<IdSource>,
    log: Option<AccessLog>,
    tracing: Option<Tracing>,
}

impl RequestRecorder {
    /// `None` if nothing is to be kept.
    pub fn new(
        settings: &Telemetry,
        log: Option<LineWriter>,
        spans: Option<SpanSink>,
    ) -> Option<Self> {
        let log = log.map(|lines| AccessLog { lines, format: settings.access_log_format });
        let tracing = Tracing::new(&settings.traces, spans);
        let ids = settings.request_id;
        let wanted = ids.is_some() || log.is_some() || tracing.is_some();
        wanted.then_some(RequestRecorder { ids, log, tracing })
    }

    /// Begins the record of a request. `client` is its peer, as logs name it; `from_trusted` says
    /// whether that is a trusted proxy.
    pub fn begin(
        &self,
        parts: &mut Parts,
        client: impl FnOnce() -> String,
        from_trusted: bool,
    ) -> Option<Box<RequestRecord>> {
        let id =
            self.ids.map(|source| request_id::assign(&mut parts.headers, source, from_trusted));
        let trace = self.tracing.as_ref().and_then(|it| it.begin(parts, from_trusted));
        if id.is_none() && trace.is_none() && self.log.is_none() {
            return None;
        }
        let entry =
            self.log.as_ref().map(|log| AccessLogEntry::begin(log, client(), id.as_ref(), parts));
        Some(Box::new(RequestRecord { id, entry, trace }))
    }

    /// The record of a request that could not be read.
    pub fn begin_unparsed(&self, client: impl FnOnce() -> String) -> Option<Box<RequestRecord>> {
        let entry = AccessLogEntry::unparsed(self.log.as_ref()?, client());
        Some(Box::new(RequestRecord { id: None, entry: Some(entry), trace: None }))
    }
}

/// One request's.
#[derive(Debug)]
pub struct RequestRecord {
    id: Option<HeaderValue>,
    entry: Option<AccessLogEntry>,
    trace: Option<Box<RequestTrace>>,
}

impl RequestRecord {
    /// The caller's address, once it is known.
    pub fn set_client(&mut self, name: impl FnOnce() -> String) {
        if self.entry.is_none() && self.trace.is_none() {
            return;
        }
        let name = name();
        if let Some(trace) = &mut self.trace {
            trace.set_client(name.clone());
        }
        if let Some(entry) = &mut self.entry {
            entry.client = name;
        }
    }

    /// Notes why the gateway has answered itself.
    pub fn failed(&mut self, error: &'static str) {
        if let Some(entry) = &mut self.entry {
            entry.error = Some(error);
        }
        if let Some(trace) = &mut self.trace {
            trace.failed(error);
        }
    }

    /// Notes the limit that has refused.
    pub fn refused(&mut self, limit: Option<String>, error: &'static str) {
        self.failed(error);
        if let Some(trace) = &mut self.trace {
            trace.refused_by(limit.clone());
        }
        if let Some(entry) = &mut self.entry {
            entry.limit = limit;
        }
    }

    /// The time, if a span may begin now.
    pub fn span_start(&self) -> Option<Instant> {
        self.trace.as_ref().map(|_| clock::now())
    }

    /// The limits were decided since then.
    pub fn decided(&mut self, since: Instant) {
        if let Some(trace) = &mut self.trace {
            trace.decided(since);
        }
    }

    /// The upstream has answered, or failed, since then.
    pub fn forwarded(&mut self, upstream: &str, since: Instant) {
        if let Some(trace) = &mut self.trace {
            trace.forwarded(upstream, since);
        }
    }

    /// Tells the client the request's id.
    pub fn mark_answer(&self, headers: &mut HeaderMap) {
        if let Some(id) = &self.id {
            request_id::tell(headers, id.clone());
        }
    }

    /// The answer has ended.
    pub(super) fn finish(self, route: &str, status: StatusCode, seconds: f64, bytes: u64) {
        if let Some(entry) = self.entry {
            entry.write(route, status, seconds, bytes);
        }
        if let Some(trace) = self.trace {
            trace.finish(route, status);
        }
    }
}
