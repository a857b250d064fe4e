//! One JSON line for each event that an operator may have to account for.
//!
//! To standard error unless told otherwise. A clone writes where all others do, also after a
//! reload has named another target.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tracing_appender::non_blocking::WorkerGuard;

use super::line_writer::{self, LineWriter};
use crate::config::settings::LogTarget;
use crate::limit::OnError;

/// What is told of an error: servers may answer with anything.
const MAX_DETAIL: usize = 1024;

/// Where events are recorded.
#[derive(Debug, Clone)]
pub struct AuditLog {
    /// `None`: nowhere.
    lines: Arc<Mutex<Option<LineWriter>>>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditEvent<'a> {
    /// The store fails, and limits do what their `on_error` says.
    StoreDegraded {
        /// One of [`STORE_ERRORS`](super::metrics::STORE_ERRORS).
        reason: &'static str,
        detail: &'a str,
        /// What limits do that say nothing themselves.
        on_error: OnError,
    },
    /// It decides again.
    StoreRecovered {
        /// How long it did not.
        seconds: f64,
    },
    /// A reload has put another configuration in force, or the same one again.
    ConfigUpdated {
        routes: usize,
        limits: usize,
    },
    /// An operator has decided something about a caller.
    OverrideSet {
        limit: &'a str,
        key: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    WhitelistAdded {
        who: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    DenylistAdded {
        who: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    OverrideRemoved {
        what: &'a str,
    },
    /// A guard has warned or blocked a caller.
    BurstDetected {
        blocked: bool,
        identifier: &'a str,
        guard: &'a str,
        /// It only watches.
        shadow: bool,
        /// The request that was one too many; `None` if several gateways have counted it together.
        request: Option<AuditedRequest<'a>>,
        request_count: u64,
        /// How many seconds the warning or block holds.
        retry_after: f64,
    },
    PenaltyLifted {
        guard: &'a str,
        identifier: &'a str,
    },
}

/// The request that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AuditedRequest<'a> {
    /// The route's path.
    pub endpoint: &'a str,
    pub route: &'a str,
    pub ip: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'a str>,
}

/// An event as it is written.
#[derive(Serialize)]
struct AuditLine<'a> {
    time: f64,
    #[serde(flatten)]
    event: AuditRecord<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum AuditRecord<'a> {
    StoreDegraded { reason: &'a str, detail: &'a str, on_error: &'a str },
    StoreRecovered { seconds: f64 },
    RateLimitConfigUpdated { routes: usize, limits: usize },
    OverrideSet { limit: &'a str, key: &'a str, seconds: u64, reason: Option<&'a str> },
    RateLimitWhitelistAdded { who: &'a str, seconds: u64, reason: Option<&'a str> },
    RateLimitDenylistAdded { who: &'a str, seconds: u64, reason: Option<&'a str> },
    OverrideRemoved { what: &'a str },
    BurstDetectedWarning(BurstRecord<'a>),
    BurstDetectedBlocked(BurstRecord<'a>),
    PenaltyLifted { guard: &'a str, identifier: &'a str },
}

#[derive(Serialize)]
struct BurstRecord<'a> {
    severity: &'static str,
    identifier: &'a str,
    limit_type: &'static str,
    guard: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    request: Option<AuditedRequest<'a>>,
    request_count: u64,
    retry_after: f64,
}

impl AuditLog {
    /// The guard writes out what is left when it is dropped.
    ///
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open(target: &LogTarget) -> io::Result<(AuditLog, Option<WorkerGuard>)> {
        let (lines, guard) = LineWriter::open(target)?.unzip();
        Ok((AuditLog { lines: Arc::new(Mutex::new(lines)) }, guard))
    }

    /// Writes one line, without waiting for it.
    pub fn record(&self, event: AuditEvent<'_>) {
        if let Some(lines) = &mut *self.lines.lock() {
            lines.write(&AuditLine { time: line_writer::now(), event: record_of(&event) });
        }
    }

    /// As [`LineWriter::reopen`].
    pub fn reopen(&self) {
        self.lines.lock().iter().for_each(LineWriter::reopen);
    }

    /// Has all clones write elsewhere from now on.
    pub fn redirect(&self, lines: Option<LineWriter>) {
        *self.lines.lock() = lines;
    }
}

fn record_of<'a>(event: &AuditEvent<'a>) -> AuditRecord<'a> {
    match *event {
        AuditEvent::StoreDegraded { reason, detail, on_error } => AuditRecord::StoreDegraded {
            reason,
            detail: &detail[..detail.floor_char_boundary(MAX_DETAIL)],
            on_error: on_error.name(),
        },
        AuditEvent::StoreRecovered { seconds } => {
            AuditRecord::StoreRecovered { seconds: (seconds * 1e3).round() / 1e3 }
        }
        AuditEvent::ConfigUpdated { routes, limits } => {
            AuditRecord::RateLimitConfigUpdated { routes, limits }
        }
        AuditEvent::OverrideSet { limit, key, seconds, reason } => {
            AuditRecord::OverrideSet { limit, key, seconds, reason }
        }
        AuditEvent::WhitelistAdded { who, seconds, reason } => {
            AuditRecord::RateLimitWhitelistAdded { who, seconds, reason }
        }
        AuditEvent::DenylistAdded { who, seconds, reason } => {
            AuditRecord::RateLimitDenylistAdded { who, seconds, reason }
        }
        AuditEvent::OverrideRemoved { what } => AuditRecord::OverrideRemoved { what },
        AuditEvent::BurstDetected {
            blocked,
            identifier,
            guard,
            shadow,
            request,
            request_count,
            retry_after,
        } => {
            let record = BurstRecord {
                severity: if blocked { "error" } else { "warning" },
                identifier,
                limit_type: "guard",
                guard,
                shadow,
                request,
                request_count,
                retry_after: (retry_after * 1e3).round() / 1e3,
            };
            if blocked {
                AuditRecord::BurstDetectedBlocked(record)
            } else {
                AuditRecord::BurstDetectedWarning(record)
            }
        }
        AuditEvent::PenaltyLifted { guard, identifier } => {
            AuditRecord::PenaltyLifted { guard, identifier }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: AuditEvent<'_>) -> String {
        serde_json::to_string(&AuditLine { time: 1.5, event: record_of(&event) }).unwrap()
    }

    #[test]
    fn events_are_objects_with_a_time_and_a_name() {
        let detail = "no \"answer\"\n";
        let on_error = OnError::Local;
        assert_eq!(
            line(AuditEvent::StoreDegraded { reason: "timeout", detail, on_error }),
            r#"{"time":1.5,"event":"store_degraded","reason":"timeout","detail":"no \"answer\"\n","on_error":"local"}"#
        );
        assert_eq!(
            line(AuditEvent::StoreRecovered { seconds: 2.000_4 }),
            r#"{"time":1.5,"event":"store_recovered","seconds":2.0}"#
        );
        assert_eq!(
            line(AuditEvent::ConfigUpdated { routes: 2, limits: 3 }),
            r#"{"time":1.5,"event":"rate_limit_config_updated","routes":2,"limits":3}"#
        );
    }

    #[test]
    fn details_are_not_longer_than_a_person_would_read() {
        let detail = "ü".repeat(MAX_DETAIL);
        let on_error = OnError::Deny;
        let line = line(AuditEvent::StoreDegraded { reason: "other", detail: &detail, on_error });
        assert_eq!(line.matches('ü').count(), MAX_DETAIL / 2);
    }
}
