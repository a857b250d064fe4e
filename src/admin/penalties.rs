//! `/v1/penalties`: who is warned or blocked by a guard, and lifting that.

use std::net::IpAddr;

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json, percent_decoded};
use super::api_error::{ApiError, unavailable};
use crate::caller::Addresses;
use crate::guards::Penalty;
use crate::limit::source::Source;
use crate::limit::{Key, Mode};
use crate::overrides;
use crate::respond::rate_headers::seconds_until;
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
                seconds_left: seconds_until(it.until, now),
                count: it.count,
                shadow: it.mode == Mode::Shadow,
            })
            .collect();
        (StatusCode::OK, json(&views))
    }

    pub(super) async fn lift_penalty(
        &self,
        guard: &str,
        key: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let settings = self.settings();
        let mut wanted = vec![percent_decoded(key)?];
        if let Some(guard) = settings.guards.iter().find(|it| it.name == guard) {
            let addresses = Addresses::new(&settings.identity);
            wanted.extend(readable_keys(&guard.key, key, &addresses));
        }
        let penalties = self.guards.penalties(self.store.clock().now());
        let is_meant = |it: &&Penalty| it.guard == guard && wanted.contains(&it.key);
        // One may hold while the guard enforces, another while it only watches.
        let meant: Vec<&Penalty> = penalties.iter().filter(is_meant).collect();
        let found = *meant.first().ok_or_else(ApiError::not_found)?;
        for penalty in meant {
            self.store.lift_penalty(&self.guards, penalty).await.map_err(unavailable)?;
        }
        let identifier = &self.guards.caller_names().of(&found.key);
        self.audit.record(AuditEvent::PenaltyLifted { guard, identifier });
        let (guard, key) = (&found.guard, &found.key);
        let lifted = serde_json::json!({ "guard": guard, "key": key, "stage": "clean" });
        Ok((StatusCode::OK, lifted.to_string()))
    }
}

/// What the key that an operator has written is called where penalties are listed: as a request has it,
/// or as one that lacks a part of it, in whose place its address is counted.
fn readable_keys(key: &Key, text: &str, addresses: &Addresses) -> Vec<String> {
    // Lists have a space behind each comma.
    let text = text.replace(",%20", ",");
    let parts: Vec<&str> = text.split(',').collect();
    let is_address = |at: usize| parts.get(at).is_some_and(|it| it.parse::<IpAddr>().is_ok());
    let or_address = |(at, source): (usize, &Source)| match source {
        Source::Ip | Source::IpPrefix(_) => source.clone(),
        _ if is_address(at) => Source::Ip,
        _ => source.clone(),
    };
    let by_address = Key(key.0.iter().enumerate().map(or_address).collect());
    let spelled = [key, &by_address].map(|key| overrides::normalized(key, &text, addresses));
    spelled.into_iter().flatten().map(|it| it.readable()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Identity;

    fn keys(sources: &[Source], text: &str) -> Vec<String> {
        let addresses = Addresses::new(&Identity::default());
        let mut keys = readable_keys(&Key(sources.to_vec()), text, &addresses);
        keys.dedup();
        keys
    }

    #[test]
    fn keys_are_found_in_any_spelling_and_by_any_address_of_theirs() {
        let both = [Source::Ip, Source::User];
        for spelling in ["2001:db8::,%20ann", "2001:DB8:0::1,ann", "2001:db8::1,%61nn"] {
            assert_eq!(keys(&both, spelling), ["2001:db8::, ann"], "{spelling}");
        }
        assert_eq!(keys(&[Source::Ip], "::ffff:192.0.2.1"), ["192.0.2.1"]);
        assert_eq!(keys(&[Source::IpPrefix(48)], "2001:db8:0:7::1"), ["2001:db8::"]);
        assert_eq!(keys(&[Source::User], "a%2Cb"), ["a,b"]);
        assert!(keys(&both, "2001:db8::1").is_empty());
    }

    #[test]
    fn caller_that_lacks_the_key_is_found_by_its_address() {
        assert_eq!(keys(&[Source::User], "2001:db8::1"), ["2001:db8::1", "2001:db8::"]);
    }
}
