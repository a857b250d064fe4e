//! What can happen to a gateway that an operator may have to account for, and how it is written.

use serde::Serialize;

use crate::limit::OnError;

/// What is told of an error: servers may answer with anything.
const MAX_DETAIL: usize = 1024;

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditEvent<'a> {
    /// The store fails, and limits do what their `on_error` says.
    StoreDegraded {
        /// One of [`STORE_ERRORS`](crate::telemetry::metrics::STORE_ERRORS).
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
        /// Of the configuration and its files.
        tenants: usize,
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
    PenaltyLifted {
        guard: &'a str,
        identifier: &'a str,
    },
    /// An operator has made or changed a tenant.
    TenantSet {
        tenant: &'a str,
        parent: Option<&'a str>,
        rate: Option<&'a str>,
        burst: Option<u64>,
    },
    TenantRemoved {
        tenant: &'a str,
    },
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
    StoreDegraded {
        reason: &'a str,
        detail: &'a str,
        on_error: &'a str,
    },
    StoreRecovered {
        seconds: f64,
    },
    RateLimitConfigUpdated {
        routes: usize,
        limits: usize,
        tenants: usize,
    },
    OverrideSet {
        limit: &'a str,
        key: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    RateLimitWhitelistAdded {
        who: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    RateLimitDenylistAdded {
        who: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    OverrideRemoved {
        what: &'a str,
    },
    PenaltyLifted {
        guard: &'a str,
        identifier: &'a str,
    },
    TenantSet {
        tenant: &'a str,
        parent: Option<&'a str>,
        rate: Option<&'a str>,
        burst: Option<u64>,
    },
    TenantRemoved {
        tenant: &'a str,
    },
}

/// An event as it is written at that time.
pub(super) fn line<'a>(time: f64, event: &AuditEvent<'a>) -> impl Serialize + use<'a> {
    AuditLine { time, event: record_of(event) }
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
        AuditEvent::ConfigUpdated { routes, limits, tenants } => {
            AuditRecord::RateLimitConfigUpdated { routes, limits, tenants }
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
        AuditEvent::PenaltyLifted { guard, identifier } => {
            AuditRecord::PenaltyLifted { guard, identifier }
        }
        AuditEvent::TenantSet { tenant, parent, rate, burst } => {
            AuditRecord::TenantSet { tenant, parent, rate, burst }
        }
        AuditEvent::TenantRemoved { tenant } => AuditRecord::TenantRemoved { tenant },
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
            line(AuditEvent::ConfigUpdated { routes: 2, limits: 3, tenants: 4 }),
            r#"{"time":1.5,"event":"rate_limit_config_updated","routes":2,"limits":3,"tenants":4}"#
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
