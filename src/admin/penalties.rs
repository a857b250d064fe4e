//! `/v1/penalties`: who is warned or blocked by a guard, in pages, and lifting that.

use std::net::IpAddr;

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json};
use super::api_error::{ApiError, unavailable};
use super::{page_size, query};
use crate::caller::Addresses;
use crate::clock::Micros;
use crate::guards::{Penalty, PenaltyCursor, PenaltyId, listed_key};
use crate::limit::source::{Source, unpercent};
use crate::limit::{Key, Mode};
use crate::overrides;
use crate::telemetry::{AuditEvent, CallerNames};

/// A page of penalties.
#[derive(Debug, Serialize)]
struct PenaltyAnswer {
    penalties: Vec<PenaltyView>,
    /// What to ask for next as `after`.
    after: Option<String>,
}

/// A penalty as operators see it.
#[derive(Debug, Serialize)]
struct PenaltyView {
    guard: String,
    key: String,
    stage: &'static str,
    /// The Unix second at which it ends, rounded up.
    until: u64,
    seconds_left: u64,
    /// The requests with which it was noticed.
    count: u64,
    /// The guard only watches: nobody is warned or blocked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    /// What names it, whatever its key looks like.
    id: String,
}

/// Which page is asked for.
#[derive(Debug, PartialEq)]
struct PenaltyQuery {
    max: usize,
    after: Option<PenaltyCursor>,
}

impl AdminApi {
    pub(super) fn list_penalties(&self, query: &str) -> Result<(StatusCode, String), ApiError> {
        let PenaltyQuery { max, after } = PenaltyQuery::parse(query)?;
        let now = self.store.clock().now();
        let page = self.guards.penalty_page(now, after, max);
        let penalties = page.penalties.into_iter().map(|it| view(it, now)).collect();
        let after = page.after.map(|it| it.to_string());
        Ok((StatusCode::OK, json(&PenaltyAnswer { penalties, after })))
    }

    /// Lifts all penalties of a guard whose keys are listed as the operator writes it. If there are
    /// none, those of the key that is meant by it.
    pub(super) async fn lift_penalty(
        &self,
        guard: &str,
        key: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let settings = self.settings();
        let names = CallerNames::configured(&settings.telemetry);
        let (now, text) = (self.store.clock().now(), readable(key));
        let find = |wanted: &[String]| {
            self.guards.find_penalties(now, |it, _| *it.guard == *guard && wanted.contains(&it.key))
        };
        let mut found = find(&[listed_key(names, &text), text]);
        if found.is_empty()
            && let Some(guard) = settings.guards.iter().find(|it| it.name == guard)
        {
            let addresses = Addresses::new(&settings.identity);
            let keys = readable_keys(&guard.key, key, &addresses);
            let keys: Vec<String> = keys.iter().map(|key| listed_key(names, key)).collect();
            found = find(&keys);
        }
        self.lift(found).await
    }

    /// Lifts the one that `id=` names.
    pub(super) async fn lift_penalty_by_id(
        &self,
        query: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let id = query.strip_prefix("id=").and_then(|id| id.parse::<PenaltyId>().ok());
        let id = id.ok_or_else(|| {
            ApiError::bad_request("Name a penalty: ?id= and the `id` that the list has.")
        })?;
        let now = self.store.clock().now();
        self.lift(self.guards.find_penalties(now, |_, it| it == id)).await
    }

    async fn lift(&self, found: Vec<Penalty>) -> Result<(StatusCode, String), ApiError> {
        for penalty in &found {
            self.store.lift_penalty(&self.guards, penalty).await.map_err(unavailable)?;
            let (guard, identifier) = (&*penalty.guard, &*penalty.key);
            self.audit.record(AuditEvent::PenaltyLifted { guard, identifier });
        }
        let Penalty { guard, key, .. } = found.first().ok_or_else(ApiError::not_found)?;
        let lifted = serde_json::json!({ "guard": guard, "key": key, "stage": "clean" });
        Ok((StatusCode::OK, lifted.to_string()))
    }
}

impl PenaltyQuery {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let mut query = PenaltyQuery { max: page_size::DEFAULT, after: None };
        for (name, value) in query::parameters(text, &["max", "after"])? {
            if name == "max" {
                query.max = page_size::parse(value)?;
                continue;
            }
            let bad = "after must be the `after` of an earlier answer.";
            let after = value.parse().map_err(|()| ApiError::bad_request(bad))?;
            query.after = Some(after);
        }
        Ok(query)
    }
}

fn view(penalty: Penalty, now: Micros) -> PenaltyView {
    PenaltyView {
        id: penalty.public_id().to_string(),
        stage: penalty.stage.name(),
        until: penalty.until.0.div_ceil(1_000_000),
        seconds_left: penalty.until.since(now).as_micros().div_ceil(1_000_000) as u64,
        count: penalty.count,
        shadow: penalty.mode == Mode::Shadow,
        guard: penalty.guard,
        key: penalty.key,
    }
}

/// A text of the URL as keys are made readable: any bytes are a key.
fn readable(text: &str) -> String {
    String::from_utf8_lossy(&unpercent(text)).into_owned()
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
    fn pages_are_asked_for_as_those_of_violations() {
        let parse = |text: &str| PenaltyQuery::parse(text).ok();
        assert_eq!(parse(""), Some(PenaltyQuery { max: 100, after: None }));
        let cursor = format!("12-{}", "0f".repeat(16));
        let query = parse(&format!("max=7&after={cursor}")).unwrap();
        assert_eq!((query.max, query.after.unwrap().to_string()), (7, cursor));
        for bad in [
            "max=0",
            "max=1001",
            "max=+5",
            "max=05",
            "max=1&max=2",
            "before=1-2",
            "after=12",
            "after=1-zz",
            "guard=x",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn caller_that_lacks_the_key_is_found_by_its_address() {
        assert_eq!(keys(&[Source::User], "2001:db8::1"), ["2001:db8::1", "2001:db8::"]);
    }
}
