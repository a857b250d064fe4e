//! `/v1/violations`: who was refused or flooded, newest first, by caller, limit and time.

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json};
use super::api_error::ApiError;
use super::path_parts::percent_decoded;
use super::written_time::{self, WrittenTime};
use super::{page_size, query};
use crate::clock::unix_time;
use crate::config::Settings;
use crate::limit::tenants::TENANTS;
use crate::overrides;
use crate::telemetry::CallerNames;
use crate::violations::{AddressFilter, KeptLine, ViolationPage, ViolationQuery, bounded_name};

const PARAMETERS: [&str; 10] =
    ["user", "ip", "client", "key", "limit", "route", "since", "until", "max", "before"];
/// What a hashed name begins with: it is taken as it is.
const HASHED: &str = "sha256:";

/// A page, and where it came from.
#[derive(Debug, Serialize)]
struct ViolationAnswer {
    /// `redis`: of all gateways. `memory`: of this one.
    source: &'static str,
    #[serde(flatten)]
    page: ViolationPage,
    /// Why there may be none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl AdminApi {
    pub(super) async fn list_violations(
        &self,
        query: &str,
    ) -> Result<(StatusCode, String), ApiError> {
        let settings = self.settings();
        let names = CallerNames::configured(&settings.telemetry);
        let query = parse(query, names)?;
        let shared = self.store.violations(&query).await.map_err(unreadable)?;
        let (source, page) = match shared {
            Some(page) => ("redis", page),
            None => {
                let lines = self.audit.violations();
                ("memory", query.page(lines.iter().rev().filter_map(KeptLine::parse)))
            }
        };
        let unknown = || unknown_name(&query, &settings, |name| self.is_tenant(name));
        let hint = page.violations.is_empty().then(unknown).flatten();
        Ok((StatusCode::OK, json(&ViolationAnswer { source, page, hint })))
    }
}

/// Says which name of a question the configuration does not have. Violations of what it has no more
/// can still be asked for, so that is no fault.
fn unknown_name(
    query: &ViolationQuery,
    settings: &Settings,
    is_tenant: impl Fn(&str) -> bool,
) -> Option<String> {
    let of_tenants = |name: &str| match name.strip_prefix(TENANTS).map(|it| it.strip_prefix('/')) {
        Some(Some(tenant)) => is_tenant(tenant),
        Some(None) => name == TENANTS && settings.routes.iter().any(|it| it.tenants),
        None => false,
    };
    let is_limit = |name: &str| {
        settings.limits.iter().any(|it| it.name == name)
            || settings.guards.iter().any(|it| it.name == name)
            || of_tenants(name)
    };
    let is_route = |name: &str| settings.routes.iter().any(|it| it.name == name);
    let unknown = |kind: &str, name: &str| format!("no {kind} `{name}` in the configuration");
    let limit = query.limit.as_deref().filter(|name| !is_limit(name));
    let route = query.route.as_deref().filter(|name| !is_route(name));
    let limit = limit.map(|name| unknown("limit or guard", name));
    limit.or_else(|| route.map(|name| unknown("route", name)))
}

fn unreadable(why: String) -> ApiError {
    let why = format!("The store does not tell: {why}.");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why)
}

fn parse(text: &str, names: CallerNames) -> Result<ViolationQuery, ApiError> {
    let mut query = ViolationQuery { max: page_size::DEFAULT, ..ViolationQuery::default() };
    let named = |value: String| {
        bounded_name(if value.starts_with(HASHED) { value } else { names.of(&value) })
    };
    for (name, value) in query::parameters(text, &PARAMETERS)? {
        let value = percent_decoded(value)?;
        match name {
            "user" => query.user = Some(named(value)),
            "key" => query.key = Some(named(value)),
            "client" => query.client = Some(named(value)),
            "ip" => query.ip = Some(address(value, names)?),
            "limit" => query.limit = Some(value),
            "route" => query.route = Some(value),
            "since" => query.since = Some(time(name, &value)?.start),
            "until" => query.until = Some(time(name, &value)?.end),
            "max" => query.max = page_size::parse(&value)?,
            _ => query.before = Some(value.parse().map_err(|()| bad_cursor())?),
        }
    }
    in_order(&query)?;
    Ok(query)
}

/// Nothing is both later than the one and earlier than the other.
fn in_order(query: &ViolationQuery) -> Result<(), ApiError> {
    let times = query.since.zip(query.until).filter(|(since, until)| since > until);
    times.map_or(Ok(()), |(since, until)| {
        let (since, until) = (written_time::shown(since), written_time::shown(until));
        let way_out = "swap them, or leave one out";
        let why = format!("since ({since}) is later than until ({until}): {way_out}.");
        Err(ApiError::bad_request(why))
    })
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

fn time(name: &str, value: &str) -> Result<WrittenTime, ApiError> {
    WrittenTime::parse(value, unix_time()).ok_or_else(|| {
        let forms = written_time::FORMS;
        ApiError::bad_request(format!("{name} must be {forms}."))
    })
}

fn bad_cursor() -> ApiError {
    ApiError::bad_request("before must be the `before` of an earlier answer.")
}

#[cfg(test)]
mod tests;
