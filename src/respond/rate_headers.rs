//! `RateLimit`, `RateLimit-Policy`, `X-RateLimit-*` and their older forms.
//!
//! What a policy is never changes between reloads, so its text is made once. What is left is
//! written for all headers into one buffer and shared out: one allocation an answer.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::structured::is_policy_list;
use crate::clock::Micros;
use crate::config::settings;
use crate::limit::{Limit, Report, Retry};
use crate::store::Check;

pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const LEGACY_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// How one limit is written, made when the configuration is compiled.
#[derive(Debug)]
pub struct PolicyText {
    visible: bool,
    /// `"name"`.
    name: String,
    /// `"name";q=100;w=10`.
    policy: String,
    quota: u64,
}

impl PolicyText {
    #[must_use]
    pub fn new(limit: &Limit) -> Self {
        let (quota, window) = (limit.policy.quota(), limit.policy.window_seconds());
        PolicyText {
            visible: limit.response_headers,
            name: format!("\"{}\"", limit.name),
            policy: format!("\"{}\";q={quota};w={window}", limit.name),
            quota,
        }
    }
}

/// A limit that applied to a request, and what came of it.
#[derive(Debug)]
pub struct Applied<'a> {
    pub text: &'a PolicyText,
    pub check: &'a Check<'a>,
}

/// The rate headers of one answer.
#[derive(Debug, Clone, Copy)]
pub struct RateHeaders {
    forms: settings::Respond,
    now: Micros,
    /// Seconds until a refused request may come again.
    retry_after: Option<u64>,
}

impl RateHeaders {
    #[must_use]
    pub fn new(forms: settings::Respond, now: Micros, retry_after: Option<u64>) -> Self {
        RateHeaders { forms, now, retry_after }
    }

    /// Writes the headers for the limits that may be named. Their values share `buffer`.
    pub fn write<'a>(
        &self,
        applied: impl Iterator<Item = Applied<'a>> + Clone,
        headers: &mut HeaderMap,
        buffer: &mut BytesMut,
    ) {
        let visible = applied.filter(|applied| applied.text.visible);
        if self.forms.draft {
            keep_valid(headers, &RATELIMIT, buffer);
        }
        let mut nearest: Option<Closest> = None;
        for applied in visible.clone() {
            let report = applied.check.policy.report(applied.check.state, self.now);
            if self.forms.draft {
                member(buffer, &applied.text.name);
                buffer.put_slice(b";r=");
                put_number(buffer, report.remaining);
                buffer.put_slice(b";t=");
                put_number(buffer, seconds_until(report.grows_at, self.now));
            }
            let candidate = Closest::new(&applied, report);
            if nearest.as_ref().is_none_or(|best| candidate.is_closer_than(best)) {
                nearest = Some(candidate);
            }
        }
        let Some(nearest) = nearest else { return buffer.clear() };
        if self.forms.draft {
            insert(headers, RATELIMIT, buffer.split().freeze());
            keep_valid(headers, &RATELIMIT_POLICY, buffer);
            visible.for_each(|applied| member(buffer, &applied.text.policy));
            insert(headers, RATELIMIT_POLICY, buffer.split().freeze());
        }
        let delta = match (nearest.refused, self.retry_after) {
            (true, Some(seconds)) => seconds,
            _ => seconds_until(nearest.report.full_at, self.now),
        };
        let mut number = |value: u64| {
            put_number(buffer, value);
            buffer.split().freeze()
        };
        let (limit, remaining) = (number(nearest.quota), number(nearest.report.remaining));
        if self.forms.x {
            insert(headers, X_LIMIT, limit.clone());
            insert(headers, X_REMAINING, remaining.clone());
            insert(headers, X_RESET, number(unix_seconds_in(delta)));
        }
        if self.forms.legacy {
            insert(headers, LEGACY_LIMIT, limit);
            insert(headers, LEGACY_REMAINING, remaining);
            insert(headers, LEGACY_RESET, number(delta));
        }
    }
}

/// The limit with the smallest share left; of equals, the one that refused, then the first.
struct Closest {
    report: Report,
    quota: u64,
    refused: bool,
}

impl Closest {
    fn new(applied: &Applied<'_>, report: Report) -> Self {
        Closest { report, quota: applied.text.quota, refused: applied.check.refused.is_some() }
    }

    fn is_closer_than(&self, other: &Closest) -> bool {
        let mine = u128::from(self.report.remaining) * u128::from(other.quota);
        let theirs = u128::from(other.report.remaining) * u128::from(self.quota);
        mine < theirs || (mine == theirs && self.refused && !other.refused)
    }
}

/// The latest instant at which all refusing checks would admit; `None` if one never does.
#[must_use]
pub fn retry_at<'a>(checks: impl Iterator<Item = &'a Check<'a>>) -> Option<Micros> {
    let mut latest = Micros::default();
    for refused in checks.filter_map(|check| check.refused) {
        match refused {
            Retry::At(instant) => latest = latest.max(instant),
            Retry::Never => return None,
        }
    }
    Some(latest)
}

#[must_use]
pub fn seconds_until(instant: Micros, now: Micros) -> u64 {
    instant.0.saturating_sub(now.0).div_ceil(1_000_000)
}

/// The Unix second that lies `delta` seconds ahead, rounded up. From the wall clock itself, which
/// is the one the client compares with.
fn unix_seconds_in(delta: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() + u64::from(now.subsec_nanos() > 0) + delta
}

/// Moves what the upstream said itself to the front of our own list, if it is a list.
fn keep_valid(headers: &HeaderMap, name: &HeaderName, buffer: &mut BytesMut) {
    let said = headers.get_all(name);
    if said.iter().all(|value| is_policy_list(value.as_bytes())) {
        for value in said {
            if !buffer.is_empty() {
                buffer.put_slice(b", ");
            }
            buffer.put_slice(value.as_bytes().trim_ascii());
        }
    }
}

fn member(buffer: &mut BytesMut, text: &str) {
    if !buffer.is_empty() {
        buffer.put_slice(b", ");
    }
    buffer.put_slice(text.as_bytes());
}

pub fn put_number(buffer: &mut BytesMut, value: u64) {
    buffer.put_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: Bytes) {
    // Names, numbers and validated lists: always a legal value.
    if let Ok(value) = HeaderValue::from_maybe_shared(value) {
        headers.insert(name, value);
    }
}
