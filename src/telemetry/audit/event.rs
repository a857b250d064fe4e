//! What can happen to a gateway that an operator may have to account for, and how it is written.

use serde::{Serialize, Serializer};

use crate::limit::OnError;

/// What is told of an error: servers may answer with anything.
const MAX_DETAIL: usize = 1024;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEvent<'a> {
    /// The store fails, and limits do what their `on_error` says.
    StoreDegraded {
        /// One of [`STORE_ERRORS`](crate::telemetry::metrics::STORE_ERRORS).
        reason: &'static str,
        #[serde(serialize_with = "bounded")]
        detail: &'a str,
        /// What limits do that say nothing themselves.
        #[serde(serialize_with = "by_name")]
        on_error: OnError,
    },
    /// It decides again.
    StoreRecovered {
        /// How long it did not.
        #[serde(serialize_with = "to_milliseconds")]
        seconds: f64,
    },
    /// A reload has put another configuration in force, or the same one again.
    #[serde(rename = "rate_limit_config_updated")]
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
    #[serde(rename = "rate_limit_whitelist_added")]
    WhitelistAdded {
        who: &'a str,
        seconds: u64,
        reason: Option<&'a str>,
    },
    #[serde(rename = "rate_limit_denylist_added")]
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
struct AuditLine<'e, 'a> {
    time: f64,
    #[serde(flatten)]
    event: &'e AuditEvent<'a>,
}

/// An event as it is written at that time.
pub(super) fn line<'e, 'a>(time: f64, event: &'e AuditEvent<'a>) -> impl Serialize + use<'e, 'a> {
    AuditLine { time, event }
}

fn bounded<S: Serializer>(detail: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&detail[..detail.floor_char_boundary(MAX_DETAIL)])
}

fn by_name<S: Serializer>(on_error: &OnError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(on_error.name())
}

fn to_milliseconds<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((seconds * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: AuditEvent<'_>) -> String {
        serde_json::to_string(&super::line(1.5, &event)).unwrap()
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
