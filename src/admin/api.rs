//! `/v1`: what operators ask for and decide while the gateway runs.
//!
//! Changes always take the token. Reading takes it unless the listener is on loopback; a listener
//! that is not, and has no token, has no `/v1` at all.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use super::api_error::{ApiError, error_response, full, not_allowed, not_begun, unavailable};
use super::hosts::{HostCheck, is_reading};
use super::override_request::OverrideRequest;
use super::path_parts::{canonical_network, parse_action, parse_caller_kind, percent_decoded};
use super::stored_keys::StoredKeys;
use super::tenants::TenantsApi;
use super::{AdminResponse, answer};
use crate::config::settings::{Admin, Secret};
use crate::config::{self, Settings};
use crate::gateway::CompiledTenants;
use crate::guards::GuardTable;
use crate::overrides::{
    self, AccessAction, CallerKind, NumbersSpec, Override, OverrideTable, Subject,
};
use crate::respond::fault::sentence;
use crate::served_changes::ServedChanges;
use crate::store::StoreControl;
use crate::telemetry::{AuditEvent, AuditLog, CallerNames};
use crate::tenants::{MergedTenants, TenantTable};
use crate::upstream::SharedUpstreams;

/// For how long an override holds that does not say so.
const DEFAULT_SECONDS: u64 = 3_600;
const MAX_SECONDS: u64 = 366 * 86_400;
/// How long a change is waited for at most, until workers serve it.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// As much of a reason as anybody reads.
const MAX_REASON_CHARS: usize = 500;
/// The methods of what is only read, and of what is changed.
const READ_METHODS: &str = "GET, HEAD";
const READ_METHODS_AND_DELETE: &str = "GET, HEAD, DELETE";
const ALL_METHODS: &str = "GET, HEAD, PUT, DELETE";

#[derive(Debug)]
pub(crate) struct AdminApi {
    overrides: Arc<OverrideTable>,
    pub(super) tenants: TenantsApi,
    pub(super) guards: Arc<GuardTable>,
    pub(super) upstreams: Arc<SharedUpstreams>,
    pub(super) store: Arc<dyn StoreControl>,
    pub(super) audit: AuditLog,
    /// As it was at the start.
    admin: Admin,
    /// The configuration in force.
    settings: Mutex<Arc<Settings>>,
}

/// What is asked for below `/v1/`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiTarget<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    /// A change that has not begun by then is not made.
    pub(super) begin_by: Instant,
}

impl AdminApi {
    pub(crate) fn new(
        overrides: Arc<OverrideTable>,
        tenants: Arc<TenantTable>,
        guards: Arc<GuardTable>,
        upstreams: Arc<SharedUpstreams>,
        store: Arc<dyn StoreControl>,
        audit: AuditLog,
        settings: Arc<Settings>,
    ) -> Self {
        let admin = settings.admin.clone();
        let (tenants, settings) = (TenantsApi::new(tenants), Mutex::new(settings));
        AdminApi { overrides, tenants, guards, upstreams, store, audit, admin, settings }
    }

    /// Another tree of tenants is served: this one, of which some may be of run time.
    pub(crate) fn serve_tenants(
        &self,
        compiled: Arc<CompiledTenants>,
        merged: Option<Arc<MergedTenants>>,
    ) {
        self.tenants.serve(compiled, merged);
    }

    /// Another configuration is in force.
    pub(crate) fn configure(&self, settings: Arc<Settings>) {
        *self.settings.lock() = settings;
    }

    /// The configuration in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.lock().clone()
    }

    /// Answers what is asked below `/v1/`.
    pub(super) async fn answer(
        &self,
        method: &Method,
        target: ApiTarget<'_>,
        body: Bytes,
    ) -> AdminResponse {
        let begins = is_reading(method) || Instant::now() < target.begin_by;
        let answered = match begins {
            true => self.route(method, target, &body).await,
            false => Err(not_begun()),
        };
        match answered {
            Ok((status, text)) => {
                // Without what the text could still grow by: the answer may wait for its reader.
                let body = text.into_boxed_str().into_boxed_bytes();
                answer(status, "application/json", body.into())
            }
            Err(error) => error_response(&error),
        }
    }

    /// Which names the listener answers to.
    pub(super) fn hosts(&self) -> HostCheck<'_> {
        HostCheck { admin: &self.admin }
    }

    /// Whether a request may be made at all; if not, the response to it.
    pub(super) fn authorize(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), Box<AdminResponse>> {
        self.check_token(method, headers).map_err(|error| Box::new(error_response(&error)))
    }

    fn check_token(&self, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.admin.has_api() {
            return Err(ApiError::not_found());
        }
        if is_reading(method) && self.admin.listen.ip().is_loopback() {
            return Ok(());
        }
        let Some(Secret(token)) = &self.admin.token else {
            let say = "Changes take a token: name its variable in admin.token_env.";
            return Err(ApiError::unauthorized(say));
        };
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (sent, second) = (sent.next().map(|value| value.as_bytes()), sent.next());
        if second.is_some() {
            return Err(ApiError::bad_request("Send one Authorization."));
        }
        let sent = sent.and_then(|value| value.split_at_checked(7));
        let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let right = |sent: &[u8]| verify_slices_are_equal(sent, token.as_bytes()).is_ok();
        match sent {
            Some((_, sent)) if right(sent) => Ok(()),
            Some(_) => Err(ApiError::unauthorized("That is not the token.")),
            None => Err(ApiError::unauthorized("Send the token: Authorization: Bearer TOKEN.")),
        }
    }

    async fn route(
        &self,
        method: &Method,
        target: ApiTarget<'_>,
        body: &[u8],
    ) -> Result<(StatusCode, String), ApiError> {
        let parts: Vec<&str> = target.path.split('/').collect();
        match (method.as_str(), &parts[..]) {
            ("GET" | "HEAD", ["overrides"]) => Ok(self.list(true)),
            ("GET" | "HEAD", ["access"]) => Ok(self.list(false)),
            ("GET" | "HEAD", ["upstreams"]) => Ok(self.list_upstreams()),
            ("GET" | "HEAD", ["penalties"]) => self.list_penalties(target.query),
            ("GET" | "HEAD", ["violations"]) => self.list_violations(target.query).await,
            ("DELETE", ["penalties", guard, key]) => self.lift_penalty(guard, key).await,
            ("DELETE", ["penalties"]) => self.lift_penalty_by_id(target.query).await,
            (_, ["penalties", _, _]) => Err(not_allowed("DELETE")),
            (_, ["penalties"]) => Err(not_allowed(READ_METHODS_AND_DELETE)),
            ("GET" | "HEAD", ["tenants"]) => self.list_tenants(target.query).await,
            (_, ["tenants", name]) => {
                let name = percent_decoded(name)?;
                match method.as_str() {
                    "GET" | "HEAD" => self.show_tenant(&name).await,
                    "PUT" => self.put_tenant(&name, body, target.begin_by).await,
                    "DELETE" => self.remove_tenant(&name, target.begin_by).await,
                    _ => Err(not_allowed(ALL_METHODS)),
                }
            }
            (_, ["overrides", limit, key]) => {
                let settings = self.settings();
                let stored_keys = StoredKeys::new(&settings);
                let found = stored_keys.of_bucket(self.overrides.all(), limit, key);
                match method.as_str() {
                    "GET" | "HEAD" => show(found),
                    "PUT" => {
                        let change = OverrideRequest::read(body).map_err(ApiError::bad_request)?;
                        let entry = number_override(&stored_keys, limit, key, change)?;
                        let (id, put) = (entry.id(), self.put(entry).await?);
                        // What is stored in other spellings would come back with the end of this one.
                        for (other, _) in found.iter().filter(|(other, _)| *other != id) {
                            self.forget(other).await?;
                        }
                        Ok(put)
                    }
                    "DELETE" => self.remove(found).await,
                    _ => Err(not_allowed(ALL_METHODS)),
                }
            }
            (_, ["access", action, who, value @ ..]) if !value.is_empty() => {
                let value = percent_decoded(&value.join("/"))?;
                let (action, who) = (parse_action(action)?, parse_caller_kind(who)?);
                let value = if who == CallerKind::Ip { canonical_network(&value)? } else { value };
                let subject = Subject::Access { action, who, value };
                if method == Method::PUT {
                    return self
                        .put(access_override(
                            subject,
                            OverrideRequest::read(body).map_err(ApiError::bad_request)?,
                        )?)
                        .await;
                }
                let id = Override::about(subject).id();
                // One who is denied is not allowed, though both have one name.
                let found = self.overrides.get(&id).filter(|entry| is_access(entry, action));
                let found = found.map(|entry| (id, entry)).into_iter().collect();
                match method.as_str() {
                    "GET" | "HEAD" => show(found),
                    "DELETE" => self.remove(found).await,
                    _ => Err(not_allowed(ALL_METHODS)),
                }
            }
            (_, ["overrides" | "access" | "violations" | "tenants" | "upstreams"]) => {
                Err(not_allowed(READ_METHODS))
            }
            _ => Err(ApiError::not_found()),
        }
    }

    fn list(&self, overrides: bool) -> (StatusCode, String) {
        let mut all = self.overrides.all();
        if overrides {
            let settings = self.settings();
            return (StatusCode::OK, json(&StoredKeys::new(&settings).overrides(all)));
        }
        all.retain(|it| matches!(it.subject, Subject::Access { .. }));
        (StatusCode::OK, json(&all))
    }

    async fn put(&self, entry: Override) -> Result<(StatusCode, String), ApiError> {
        self.overrides.has_room(&entry.id()).map_err(full)?;
        self.store.put_override(&entry).await.map_err(unavailable)?;
        self.overrides.put(entry.clone()).map_err(full)?;
        self.wait_until_served().await;
        let seconds = entry.until.saturating_sub(overrides::now());
        let reason = entry.reason.as_deref();
        let names = CallerNames::configured(&self.settings.lock().telemetry);
        match &entry.subject {
            Subject::Override { limit, key, .. } => {
                let key = &names.of(key);
                self.audit.record(AuditEvent::OverrideSet { limit, key, seconds, reason });
            }
            Subject::Access { action, value, .. } => {
                let who = &names.of(value);
                self.audit.record(match action {
                    AccessAction::Allow => AuditEvent::WhitelistAdded { who, seconds, reason },
                    AccessAction::Deny => AuditEvent::DenylistAdded { who, seconds, reason },
                });
            }
        }
        Ok((StatusCode::OK, json(&entry)))
    }

    /// Takes back all that is stored about the same, and tells of the first, which is what held.
    async fn remove(
        &self,
        found: Vec<(String, Override)>,
    ) -> Result<(StatusCode, String), ApiError> {
        for (id, _) in &found {
            self.forget(id).await?;
        }
        self.wait_until_served().await;
        let held = found.into_iter().next().map(|(_, entry)| entry);
        let held = held.ok_or_else(ApiError::not_found)?;
        let names = CallerNames::configured(&self.settings.lock().telemetry);
        let what = &held.id_with(|name| names.of(name));
        self.audit.record(AuditEvent::OverrideRemoved { what });
        Ok((StatusCode::OK, json(&held)))
    }

    /// Waits until callers are held to what was decided: what comes after the answer goes by it.
    async fn wait_until_served(&self) {
        self.wait_for(self.overrides.changes()).await;
    }

    pub(super) async fn wait_for(&self, changes: &ServedChanges) {
        if tokio::time::timeout(APPLY_TIMEOUT, changes.is_served()).await.is_err() {
            tracing::warn!("what operators have decided takes long to be served");
        }
    }

    async fn forget(&self, id: &str) -> Result<(), ApiError> {
        self.store.remove_override(id).await.map_err(unavailable)?;
        self.overrides.remove(id);
        Ok(())
    }
}

fn show(found: Vec<(String, Override)>) -> Result<(StatusCode, String), ApiError> {
    let (_, entry) = found.into_iter().next().ok_or_else(ApiError::not_found)?;
    Ok((StatusCode::OK, json(&entry)))
}

fn is_access(entry: &Override, wanted: AccessAction) -> bool {
    matches!(entry.subject, Subject::Access { action, .. } if action == wanted)
}

fn number_override(
    stored_keys: &StoredKeys<'_>,
    limit: &str,
    key: &str,
    change: OverrideRequest,
) -> Result<Override, ApiError> {
    let found = stored_keys.limit(limit).ok_or_else(|| {
        let why = format!("There is no limit {limit:?}.");
        ApiError::new(StatusCode::NOT_FOUND, "no_route", why)
    })?;
    let (rate, burst, boost) = (change.rate.clone(), change.burst, change.boost);
    let numbers = NumbersSpec { rate, burst, boost };
    numbers.suits(found).map_err(|error| ApiError::bad_request(sentence(&error.to_string())))?;
    let key = stored_keys.key(limit, key).ok_or_else(|| {
        let key = &found.key;
        ApiError::bad_request(format!("That is no key of this limit, which counts by {key}."))
    })?;
    with_expiry(Subject::Override { limit: limit.to_owned(), key, numbers }, &change)
}

fn access_override(subject: Subject, change: OverrideRequest) -> Result<Override, ApiError> {
    if change.rate.is_some() || change.burst.is_some() || change.boost.is_some() {
        return Err(ApiError::bad_request("Numbers go with /v1/overrides."));
    }
    with_expiry(subject, &change)
}

/// An override with its end.
fn with_expiry(subject: Subject, change: &OverrideRequest) -> Result<Override, ApiError> {
    let seconds = match &change.ttl {
        None => DEFAULT_SECONDS,
        Some(text) => config::parse_duration(text)
            .map(|ttl| ttl.as_secs())
            .filter(|seconds| (1..=MAX_SECONDS).contains(seconds))
            .ok_or_else(|| {
                ApiError::bad_request(
                    "The ttl must be a duration from 1s to 366d, such as \"1h30m\".",
                )
            })?,
    };
    let reason = change.reason.clone();
    if reason.as_ref().is_some_and(|it| it.chars().count() > MAX_REASON_CHARS) {
        return Err(ApiError::bad_request("The reason has more than 500 characters."));
    }
    Ok(Override { subject, until: overrides::now() + seconds, reason })
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
