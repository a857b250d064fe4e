//! `RateLimit`, `RateLimit-Policy`, `X-RateLimit-*` and their older forms.
//!
//! What a policy is never changes between reloads, so its text is made once and copied.

use http::header::{HeaderMap, HeaderName};

use super::fields::Fields;
use super::structured::is_policy_list;
use crate::clock::Micros;
use crate::config::settings;
use crate::limit::{Limit, Mode, Report, Retry};
use crate::store::Check;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

/// How one limit is written, made when the configuration is compiled.
#[derive(Debug, Clone)]
pub struct PolicyText {
    visible: bool,
    /// `"name"`.
    name: String,
    /// `"name";q=100;w=10`.
    policy: String,
    quota: u64,
    /// `X-RateLimit-Limit` whole, and `X-RateLimit-Remaining` up to its value.
    x: String,
}

impl PolicyText {
    #[must_use]
    pub fn new(limit: &Limit) -> Self {
        let quota = limit.policy.quota();
        let window = limit.policy.window_seconds();
        let window = window.map_or_else(String::new, |seconds| format!(";w={seconds}"));
        PolicyText {
            visible: limit.response_headers && limit.mode == Mode::Enforce,
            name: format!("\"{}\"", limit.name),
            policy: format!("\"{}\";q={quota}{window}", limit.name),
            quota,
            x: format!("X-RateLimit-Limit: {quota}\r\nX-RateLimit-Remaining: "),
        }
    }
}

/// A limit that applied to a request, and what came of it.
#[derive(Debug)]
pub struct Applied<'a> {
    pub text: &'a PolicyText,
    pub check: &'a Check<'a>,
}

impl Applied<'_> {
    /// What the bucket holds, its instants told by the clock that shows `now`. A cluster keeps
    /// buckets by several clocks.
    fn report(&self, now: Micros) -> Report {
        let here = self.check.now;
        let report = self.check.policy.report(self.check.state, here);
        // A node that stands in for the store may refuse what the whole limit still holds.
        let most =
            if self.check.refused.is_some() { self.check.cost.saturating_sub(1) } else { u64::MAX };
        Report {
            remaining: report.remaining.min(most),
            grows_at: translate(report.grows_at, here, now),
            full_at: translate(report.full_at, here, now),
        }
    }
}

/// What one clock shows in an instant that another calls `instant`.
fn translate(instant: Micros, from: Micros, to: Micros) -> Micros {
    Micros((instant.0 + to.0).saturating_sub(from.0))
}

/// The rate headers of one answer.
#[derive(Debug, Clone, Copy)]
pub struct RateHeaders {
    forms: settings::Respond,
    now: Micros,
    /// How far the wall clock was moved against the store's, in microseconds: instants are told
    /// in the time that the client's clock shows.
    wall_step: i64,
    refused: bool,
    /// When a refused request would pass, if it ever does.
    retry_at: Option<Micros>,
}

impl RateHeaders {
    #[must_use]
    pub fn new(forms: settings::Respond, now: Micros, wall_step: i64) -> Self {
        RateHeaders { forms, now, wall_step, refused: false, retry_at: None }
    }

    /// The headers of a refusal.
    #[must_use]
    pub fn refusing(self, retry_at: Option<Micros>) -> Self {
        RateHeaders { refused: true, retry_at, ..self }
    }

    /// Writes the fields for the limits that may be named, in place of those that `headers` has
    /// from the upstream.
    pub fn write<'a>(
        &self,
        applied: impl Iterator<Item = Applied<'a>> + Clone,
        headers: &mut HeaderMap,
        fields: &mut Fields,
    ) {
        let visible = applied.filter(|applied| applied.text.visible);
        if visible.clone().next().is_none() {
            return;
        }
        // One look at the names instead of one for each name that might be there.
        let said = headers.keys().any(|name| name.as_str().contains("ratelimit"));
        let headers = if said { headers } else { &mut HeaderMap::new() };
        let mut nearest: Option<Closest<'a>> = None;
        if self.forms.draft {
            let mut first = open_list(fields, headers, "RateLimit", &RATELIMIT);
            for applied in visible.clone() {
                let report = applied.report(self.now);
                separate(fields, &mut first).text(applied.text.name.as_bytes()).text(b";r=");
                fields.number(report.remaining).text(b";t=");
                fields.number(seconds_until(report.grows_at, self.now));
                Closest::consider(&mut nearest, &applied, report);
            }
            fields.close();
            let mut first = open_list(fields, headers, "RateLimit-Policy", &RATELIMIT_POLICY);
            for applied in visible {
                separate(fields, &mut first).text(applied.text.policy.as_bytes());
            }
            fields.close();
        } else {
            for applied in visible {
                let report = applied.report(self.now);
                Closest::consider(&mut nearest, &applied, report);
            }
        }
        let Some(nearest) = nearest else { return };
        // Only hidden limits have refused: what is left elsewhere would mislead.
        if self.refused && !nearest.refused {
            return;
        }
        let reset = self.retry_at.unwrap_or(nearest.report.full_at);
        if self.forms.x {
            remove(headers, &X);
            fields.text(nearest.text.x.as_bytes()).number(nearest.report.remaining);
            fields.text(b"\r\nX-RateLimit-Reset: ").number(self.unix_second(reset)).close();
        }
        if self.forms.legacy {
            remove(headers, &LEGACY);
            fields.add_number("RateLimit-Limit", nearest.text.quota);
            fields.add_number("RateLimit-Remaining", nearest.report.remaining);
            fields.add_number("RateLimit-Reset", seconds_until(reset, self.now));
        }
    }
}

impl RateHeaders {
    /// The Unix second of an instant of the store's clock, rounded up.
    fn unix_second(&self, instant: Micros) -> u64 {
        instant.0.saturating_add_signed(self.wall_step).div_ceil(1_000_000)
    }
}

/// The limit closest to refusing: one that refused, or else the one with the smallest share left;
/// of equals the first.
struct Closest<'a> {
    report: Report,
    text: &'a PolicyText,
    refused: bool,
}

impl<'a> Closest<'a> {
    fn consider(nearest: &mut Option<Closest<'a>>, applied: &Applied<'a>, report: Report) {
        let refused = applied.check.enforced && applied.check.refused.is_some();
        let candidate = Closest { report, text: applied.text, refused };
        if nearest.as_ref().is_none_or(|best| candidate.is_closer_than(best)) {
            *nearest = Some(candidate);
        }
    }

    fn is_closer_than(&self, other: &Closest<'_>) -> bool {
        if self.refused != other.refused {
            return self.refused;
        }
        let mine = u128::from(self.report.remaining) * u128::from(other.text.quota);
        let theirs = u128::from(other.report.remaining) * u128::from(self.text.quota);
        mine < theirs
    }
}

/// The latest instant at which all refusing checks would admit, by the clock that shows `now`;
/// `None` if one never does.
#[must_use]
pub fn retry_at<'a>(checks: impl Iterator<Item = &'a Check<'a>>, now: Micros) -> Option<Micros> {
    let mut latest = Micros::default();
    for check in checks {
        match check.refused {
            None => {}
            Some(Retry::At(at)) => latest = latest.max(translate(at, check.now, now)),
            Some(Retry::Never) => return None,
        }
    }
    Some(latest)
}

#[must_use]
pub fn seconds_until(instant: Micros, now: Micros) -> u64 {
    instant.0.saturating_sub(now.0).div_ceil(1_000_000)
}

/// Starts a list with what the upstream said itself, if that is a list. Says whether the next
/// member is the first.
fn open_list(
    fields: &mut Fields,
    headers: &mut HeaderMap,
    name: &'static str,
    key: &HeaderName,
) -> bool {
    fields.open(name);
    let mut first = true;
    if !headers.is_empty() {
        let said = headers.get_all(key);
        if said.iter().all(|value| is_policy_list(value.as_bytes())) {
            for value in said {
                separate(fields, &mut first).text(value.as_bytes().trim_ascii());
            }
        }
        headers.remove(key);
    }
    first
}

fn separate<'a>(fields: &'a mut Fields, first: &mut bool) -> &'a mut Fields {
    if std::mem::take(first) { fields } else { fields.text(b", ") }
}

fn remove(headers: &mut HeaderMap, names: &[HeaderName]) {
    if !headers.is_empty() {
        for name in names {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
#[path = "rate_headers/tests.rs"]
mod tests;
