//! `/v1/violations`: who was refused or flooded, newest first, by caller, limit and time.

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json, percent_decoded};
use super::api_error::ApiError;
use crate::clock::unix_time;
use crate::config;
use crate::overrides;
use crate::telemetry::CallerNames;
use crate::violations::{AddressFilter, KeptLine, ViolationPage, ViolationQuery};

/// How many a page has that does not say so, and at most.
const DEFAULT_MAX: usize = 100;
const MOST: usize = 1_000;
/// What a hashed name begins with: it is taken as it is.
const HASHED: &str = "sha256:";

/// A page, and where it came from.
#[derive(Debug, Serialize)]
struct ViolationAnswer {
    /// `redis`: of all gateways. `memory`: of this one.
    source: &'static str,
    #[serde(flatten)]
    page: ViolationPage,
}

impl AdminApi {
    pub(super) async fn list_violations(
        &self,
        query: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let names = CallerNames::configured(&self.settings().telemetry);
        let query = parse(query, names)?;
        let shared = self.store.violations(&query).await.map_err(unreadable)?;
        let answer = match shared {
            Some(page) => ViolationAnswer { source: "redis", page },
            None => {
                let lines = self.audit.violations();
                let page = query.page(lines.iter().rev().filter_map(KeptLine::parse));
                ViolationAnswer { source: "memory", page }
            }
        };
        Ok((StatusCode::OK, json(&answer)))
    }
}

fn unreadable(why: String) -> ApiError {
    let why = format!("The store does not tell: {why}.");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why)
}

/// An empty value is as good as none, so that a form can send all of its fields.
fn parse(text: &str, names: CallerNames) -> Result<ViolationQuery, ApiError> {
    let mut query = ViolationQuery { max: DEFAULT_MAX, ..ViolationQuery::default() };
    let named = |value: String| if value.starts_with(HASHED) { value } else { names.of(&value) };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if value.is_empty() {
            continue;
        }
        let value = percent_decoded(value)?;
        match name {
            "user" => query.user = Some(named(value)),
            "client" => query.client = Some(named(value)),
            "ip" => query.ip = Some(address(value, names)?),
            "limit" => query.limit = Some(value),
            "route" => query.route = Some(value),
            "since" => query.since = Some(time("since", &value)?),
            "until" => query.until = Some(time("until", &value)?),
            "max" => query.max = max(&value)?,
            "before" => query.before = Some(value.parse().map_err(|()| bad_cursor())?),
            other => {
                let known = "user, ip, client, limit, route, since, until, max and before";
                let why = format!("There is no parameter {other:?}; there are {known}.");
                return Err(ApiError::bad_request(why));
            }
        }
    }
    Ok(query)
}

fn address(value: String, names: CallerNames) -> Result<AddressFilter, ApiError> {
    if value.starts_with(HASHED) {
        return Ok(AddressFilter::Text(value));
    }
    let network = overrides::network(&value).ok_or_else(|| {
        ApiError::bad_request("The ip is neither an address nor a network, such as 192.0.2.0/24.")
    })?;
    if !names.hashed {
        return Ok(AddressFilter::Network(network));
    }
    if network.prefix_len() < network.max_prefix_len() {
        return Err(ApiError::bad_request("With hash_keys one address can be found, no network."));
    }
    Ok(AddressFilter::Text(names.of(&network.addr().to_string())))
}

/// Unix seconds, or how long ago.
fn time(name: &str, value: &str) -> Result<f64, ApiError> {
    let seconds = value.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    let ago = || config::parse_duration(value).map(|ago| unix_time() - ago.as_secs_f64());
    seconds.or_else(ago).ok_or_else(|| {
        let form = "Unix seconds, or how long ago, such as 1h30m";
        ApiError::bad_request(format!("{name} must be {form}."))
    })
}

fn max(value: &str) -> Result<usize, ApiError> {
    let max = value.parse().ok().filter(|max| (1..=MOST).contains(max));
    max.ok_or_else(|| ApiError::bad_request("max must be a number from 1 to 1000."))
}

fn bad_cursor() -> ApiError {
    ApiError::bad_request("before must be the `before` of an earlier answer.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::ViolationId;

    const SHOWN: CallerNames = CallerNames { hashed: false };

    #[test]
    fn parameters_are_decoded_and_empty_ones_are_none() {
        let query = parse("user=a%40b&route=&max=7&before=12-3&since=1.5&limit=l", SHOWN).unwrap();
        assert_eq!(query.user.as_deref(), Some("a@b"));
        assert_eq!((query.route, query.limit), (None, Some("l".to_owned())));
        assert_eq!((query.max, query.before), (7, Some(ViolationId(12, 3))));
        assert_eq!(query.since, Some(1.5));
        assert_eq!(parse("", SHOWN).unwrap().max, 100);
        let ago = parse("since=1h", SHOWN).unwrap().since.unwrap();
        assert!((unix_time() - 3_600.0 - ago).abs() < 5.0);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in ["usr=a", "max=0", "max=1001", "since=soon", "before=9", "ip=here", "since=-1"] {
            assert!(parse(bad, SHOWN).is_err(), "{bad}");
        }
    }

    #[test]
    fn hashed_names_are_found_by_name_and_by_hash() {
        let hashed = CallerNames { hashed: true };
        let ann = hashed.of("ann");
        for text in ["user=ann".to_owned(), format!("user={ann}")] {
            assert_eq!(parse(&text, hashed).unwrap().user.as_ref(), Some(&ann));
        }
        let there = parse("ip=192.0.2.1", hashed).unwrap().ip;
        assert_eq!(there, Some(AddressFilter::Text(hashed.of("192.0.2.1"))));
        assert!(parse("ip=192.0.2.0/24", hashed).is_err());
    }
}
