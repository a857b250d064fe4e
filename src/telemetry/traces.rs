//! Traces: which trace a request belongs to, and its spans.
//!
//! Off by default; then `traceparent` and `tracestate` pass as any other header does. Switched on, a
//! request that brings a trace is part of it, and any other begins one ([`context`]). The upstream is
//! told the id of the span in which Weir waits for it. If traces are exported and this one is sampled,
//! its spans are kept until the answer has ended and then handed to a thread of their own
//! ([`span_sink`]), which no request waits for.

pub mod context;
#[cfg(any(feature = "otlp", test))]
pub mod otlp;
pub mod request_trace;
pub mod span_sink;

use std::io;

use http::request::Parts;
use prometheus::IntCounter;

pub use request_trace::RequestTrace;
pub use span_sink::{ExportGuard, SpanSink};

use super::random_id::{random_u64, random_u128};
use crate::config::settings::{IdSource, Traces};
use context::{RANDOM, SAMPLED, TraceContext};

/// What is done about the traces of requests.
#[derive(Debug, Clone)]
pub struct Tracing {
    accept: Option<IdSource>,
    /// A trace that begins here is sampled if a random number is below this.
    sample_below: u64,
    sink: Option<SpanSink>,
}

impl Tracing {
    /// `None` if traces are off.
    pub fn new(settings: &Traces, sink: Option<SpanSink>) -> Option<Self> {
        let sample_below = match settings.sample_thousandths {
            1000.. => u64::MAX,
            thousandths => u64::MAX / 1000 * u64::from(thousandths),
        };
        settings.enabled.then_some(Tracing { accept: settings.accept, sample_below, sink })
    }

    /// Puts a request into its trace: the one it brings, if its sender may, or a new one. Returns what
    /// is to be kept of it, if anything is.
    pub fn begin(&self, parts: &mut Parts, from_trusted: bool) -> Option<Box<RequestTrace>> {
        let accepted = match self.accept {
            Some(IdSource::Any) => true,
            Some(IdSource::TrustedProxies) => from_trusted,
            None => false,
        };
        let brought = if accepted { TraceContext::of(&parts.headers) } else { None };
        let (trace, parent) = match brought {
            Some(brought) => {
                context::bound_tracestate(&mut parts.headers);
                (brought, Some(brought.span_id))
            }
            None => {
                context::drop_tracestate(&mut parts.headers);
                (self.new_trace(), None)
            }
        };
        let upstream_span = TraceContext { span_id: random_u64(), ..trace };
        upstream_span.write(&mut parts.headers);
        let sink = self.sink.as_ref().filter(|_| trace.is_sampled())?;
        Some(RequestTrace::begin(sink.clone(), upstream_span, parent, parts))
    }

    fn new_trace(&self) -> TraceContext {
        let sampled =
            if random_u64() <= self.sample_below && self.sample_below > 0 { SAMPLED } else { 0 };
        TraceContext { trace_id: random_u128(), span_id: random_u64(), flags: RANDOM | sampled }
    }
}

/// Starts exporting spans, if the configuration says where to.
///
/// # Errors
/// If there is no thread to be had for it.
#[cfg(feature = "otlp")]
pub fn start_export(
    settings: &Traces,
    node: &str,
    dropped: &IntCounter,
) -> io::Result<Option<(SpanSink, ExportGuard)>> {
    let Some((endpoint, service_name)) = settings.exported() else { return Ok(None) };
    let resource = otlp::Resource { service_name: service_name.to_owned(), node: node.to_owned() };
    otlp::start(endpoint, resource, dropped).map(Some)
}

/// This build has nothing to export spans with, and no configuration asks it to.
///
/// # Errors
/// None.
#[cfg(not(feature = "otlp"))]
pub fn start_export(
    _settings: &Traces,
    _node: &str,
    _dropped: &IntCounter,
) -> io::Result<Option<(SpanSink, ExportGuard)>> {
    Ok(None)
}
