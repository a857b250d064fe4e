//! Spans as the JSON of OTLP: ids in hexadecimal, 64-bit numbers as text, enums as numbers.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::request_trace::{FinishedTrace, SpanTimes};
use crate::telemetry::random_id::random_u64;

/// `SpanKind` of the protocol.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `StatusCode` of the protocol.
const ERROR: u8 = 2;

/// What exports the spans.
#[derive(Debug, Clone)]
pub struct Resource {
    pub service_name: String,
    /// The gateway's name in `Via`.
    pub node: String,
}

/// The body of an `ExportTraceServiceRequest`.
pub(super) fn request(resource: &Resource, traces: &[FinishedTrace]) -> Vec<u8> {
    let spans: Vec<Value> = traces.iter().flat_map(spans).collect();
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        text("service.name", &resource.service_name),
        text("service.version", version),
        text("service.instance.id", &resource.node),
    ];
    let request = json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes },
            "scopeSpans": [{ "scope": { "name": "weir", "version": version }, "spans": spans }],
        }],
    });
    serde_json::to_vec(&request).unwrap_or_default()
}

fn spans(trace: &FinishedTrace) -> impl Iterator<Item = Value> {
    let decision = trace.decision.map(|times| decision_span(trace, times));
    let upstream = trace.upstream.as_ref().map(|(name, times)| upstream_span(trace, name, *times));
    [Some(request_span(trace)), decision, upstream].into_iter().flatten()
}

fn request_span(trace: &FinishedTrace) -> Value {
    let mut attributes = vec![
        text("http.request.method", &trace.method),
        text("url.path", &trace.path),
        text("weir.route", &trace.route),
        number("http.response.status_code", trace.status.into()),
    ];
    let named = [("server.address", &trace.host), ("client.address", &trace.client)];
    attributes.extend(named.iter().filter(|(_, it)| !it.is_empty()).map(|(key, it)| text(key, it)));
    attributes.extend(trace.error.map(|error| text("error.type", error)));
    let name = format!("{} {}", trace.method, trace.route);
    let (id, began) = (trace.request_span, trace.began_at());
    let mut span = span(trace, &name, SERVER, id, (began, trace.ended_at));
    if let Some(parent) = trace.parent {
        span["parentSpanId"] = hex64(parent);
    }
    span["attributes"] = attributes.into();
    // Of a server, what the client did wrong is no error.
    if trace.status >= 500 {
        span["status"] = json!({ "code": ERROR });
    }
    span
}

fn decision_span(trace: &FinishedTrace, times: SpanTimes) -> Value {
    let mut span = span(trace, "decide", INTERNAL, random_u64(), times);
    span["parentSpanId"] = hex64(trace.request_span);
    let refused = trace.limit.as_ref().map(|limit| text("weir.limit", limit));
    let admitted = json!({ "key": "weir.admitted", "value": { "boolValue": refused.is_none() } });
    span["attributes"] = [admitted].into_iter().chain(refused).collect();
    span
}

fn upstream_span(trace: &FinishedTrace, upstream: &str, times: SpanTimes) -> Value {
    let mut span = span(trace, &trace.method, CLIENT, trace.upstream_span, times);
    span["parentSpanId"] = hex64(trace.request_span);
    let mut attributes =
        vec![text("weir.upstream", upstream), text("http.request.method", &trace.method)];
    match trace.error {
        Some(error) => attributes.push(text("error.type", error)),
        None => attributes.push(number("http.response.status_code", trace.status.into())),
    }
    span["attributes"] = attributes.into();
    // Of a client, anything from 400 on is one.
    if trace.status >= 400 {
        span["status"] = json!({ "code": ERROR });
    }
    span
}

fn span(trace: &FinishedTrace, name: &str, kind: u8, id: u64, (from, to): SpanTimes) -> Value {
    let nanos = |at: Instant| trace.unix_nanos(at).to_string();
    json!({
        "traceId": format!("{:032x}", trace.trace_id),
        "spanId": hex64(id),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(from),
        "endTimeUnixNano": nanos(to),
    })
}

fn hex64(id: u64) -> Value {
    format!("{id:016x}").into()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}
