//! `/v1/penalties`: who is warned or blocked by a guard, and lifting that.

use std::net::IpAddr;

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json, percent_decoded};
use super::api_error::{ApiError, unavailable};
use crate::guards::Penalty;
use crate::telemetry::AuditEvent;

/// A penalty as operators see it.
#[derive(Debug, Serialize)]
struct PenaltyView<'a> {
    guard: &'a str,
    key: &'a str,
    stage: &'static str,
    /// The Unix second at which it ends, rounded up.
    until: u64,
    seconds_left: u64,
    /// The requests with which it was noticed.
    count: u64,
    /// The guard only watches: nobody is warned or blocked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
}

impl AdminApi {
    pub(super) fn list_penalties(&self) -> (StatusCode, String) {
        let now = self.store.clock().now();
        let penalties = self.guards.penalties(now);
        let views: Vec<PenaltyView<'_>> = penalties
            .iter()
            .map(|it| PenaltyView {
                guard: &it.guard,
                key: &it.key,
                stage: it.stage.name(),
                until: it.until.0.div_ceil(1_000_000),
                seconds_left: it.until.since(now).as_micros().div_ceil(1_000_000) as u64,
                count: it.count,
                shadow: self.guards.is_shadow(&it.guard),
            })
            .collect();
        (StatusCode::OK, json(&views))
    }

    pub(super) async fn lift_penalty(
        &self,
        guard: &str,
        key: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let wanted = normalized(&percent_decoded(key)?);
        let penalties = self.guards.penalties(self.store.clock().now());
        let is_meant = |it: &&Penalty| it.guard == guard && normalized(&it.key) == wanted;
        let found = penalties.iter().find(is_meant).ok_or_else(ApiError::not_found)?;
        self.store.lift_penalty(found).await.map_err(unavailable)?;
        self.guards.lift(found.id);
        let identifier = &self.guards.caller_names().of(&found.key);
        self.audit.record(AuditEvent::PenaltyLifted { guard, identifier });
        let (guard, key) = (&found.guard, &found.key);
        let lifted = serde_json::json!({ "guard": guard, "key": key, "stage": "clean" });
        Ok((StatusCode::OK, lifted.to_string()))
    }
}

/// One spelling of a key: parts with commas between them, addresses in their shortest form.
fn normalized(key: &str) -> String {
    let part = |part: &str| match part.trim().parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => part.trim().to_owned(),
    };
    key.split(',').map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::normalized;

    #[test]
    fn keys_are_found_in_any_spelling() {
        assert_eq!(normalized("2001:DB8:0::1, ann"), "2001:db8::1,ann");
        assert_eq!(normalized("::ffff:192.0.2.1"), "192.0.2.1");
    }
}
