//! Where logs and traces go, and which ids requests have.

use std::path::PathBuf;

/// `[telemetry]`: logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// A line for each request.
    pub access_log: LogTarget,
    pub access_log_format: AccessLogFormat,
    /// Whose `X-Request-Id` is believed; `None`: requests are given none.
    pub request_id: Option<IdSource>,
    pub traces: Traces,
    /// A line for each event that an operator may have to account for.
    pub audit_log: AuditTargets,
    /// Whether logs name callers by a hash only.
    pub hash_keys: bool,
}

/// How a line of the access log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    Json,
    /// As Apache and nginx do.
    Combined,
}

/// Whose ids are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdSource {
    Any,
    TrustedProxies,
}

/// `[telemetry.traces]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traces {
    pub enabled: bool,
    /// Whose traces are continued; `None`: nobody's.
    pub accept: Option<IdSource>,
    /// How many of the traces that begin here are sampled.
    pub sample_thousandths: u16,
    /// The collector that spans are sent to.
    pub export: Option<OtlpEndpoint>,
    /// What the gateway is called in spans.
    pub service_name: String,
}

impl Traces {
    /// Where spans go and under which name, if anywhere.
    pub fn exported(&self) -> Option<(&OtlpEndpoint, &str)> {
        let endpoint = self.export.as_ref().filter(|_| self.enabled)?;
        Some((endpoint, &self.service_name))
    }
}

/// Where a collector takes OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    pub host: String,
    pub port: u16,
    /// Host and port, as in `Host`.
    pub authority: String,
    pub path: String,
}

/// Where the lines of a log go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogTarget {
    Off,
    Stdout,
    Stderr,
    File(PathBuf),
}

/// Where audit events go: to all of these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditTargets {
    pub lines: Vec<LogTarget>,
    /// The stream in the Redis that gateways share.
    pub redis: bool,
    pub rotation: Rotation,
}

/// When a log file is moved aside, and how many such files stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotation {
    /// In bytes; 0: never.
    pub max_size: u64,
    pub keep: usize,
}
