//! `RateLimit`, `RateLimit-Policy`, `X-RateLimit-*` and their older forms.
//!
//! What a policy is never changes between reloads, so its text is made once and copied.

use http::HeaderMap;

use super::FieldName;
use super::fields::{FieldValue, Fields};
use super::structured::is_policy_list;
use crate::clock::Micros;
use crate::config::settings;
use crate::limit::{Limit, Mode, Policy, Report, Retry};
use crate::store::{Check, CheckOutcome};

const X: [FieldName; 3] =
    [FieldName::XRateLimitLimit, FieldName::XRateLimitRemaining, FieldName::XRateLimitReset];
const LEGACY: [FieldName; 3] =
    [FieldName::RateLimitLimit, FieldName::RateLimitRemaining, FieldName::RateLimitReset];

/// How the numbers of one limit are written, made when the configuration is compiled. There may be a
/// hundred thousand of them, so it is one text and where its parts are.
#[derive(Debug, Clone)]
pub struct PolicyText {
    /// `"name";q=100;w=10`.
    policy: Box<str>,
    /// How much of it is `"name"`, and how many digits the quota has.
    name_length: u32,
    quota_digits: u8,
    visible: bool,
    quota: u64,
}

const QUOTA: &str = ";q=";

impl PolicyText {
    pub fn new(limit: &Limit) -> Self {
        let visible = limit.response_headers && limit.mode == Mode::Enforce;
        PolicyText::of(visible, &limit.name, &limit.policy)
    }

    /// The same limit with other numbers.
    #[must_use]
    pub fn with_policy(&self, policy: &Policy) -> Self {
        PolicyText::of(self.visible, self.name(), policy)
    }

    /// A name has no character that would need escaping.
    pub fn of(visible: bool, name: &str, policy: &Policy) -> Self {
        let quota = policy.quota();
        let name_length = name.len() as u32 + 2;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(quota);
        let quota_digits = digits.len() as u8;
        let text = match policy.window_seconds() {
            Some(window) => format!("\"{name}\"{QUOTA}{digits};w={window}"),
            None => format!("\"{name}\"{QUOTA}{digits}"),
        };
        PolicyText { policy: text.into(), name_length, quota_digits, visible, quota }
    }

    /// The name of what these numbers are of.
    pub fn name(&self) -> &str {
        &self.policy[1..self.name_length as usize - 1]
    }

    /// Whether answers may name it.
    pub(super) fn is_visible(&self) -> bool {
        self.visible
    }

    /// The name, unless answers must not say it.
    pub(super) fn visible_name(&self) -> Option<&str> {
        self.visible.then(|| self.name())
    }

    fn quoted_name(&self) -> &[u8] {
        &self.policy.as_bytes()[..self.name_length as usize]
    }

    fn quota_text(&self) -> &[u8] {
        let start = self.name_length as usize + QUOTA.len();
        &self.policy.as_bytes()[start..start + usize::from(self.quota_digits)]
    }
}

/// A limit that applied to a request, and what came of it.
#[derive(Debug)]
pub(crate) struct Applied<'a> {
    pub text: &'a PolicyText,
    pub check: &'a Check<'a>,
    pub outcome: &'a CheckOutcome,
}

impl Applied<'_> {
    /// What the bucket holds, with instants translated to the clock that shows `now`: the nodes of a
    /// cluster have clocks of their own.
    fn report(&self, now: Micros) -> Report {
        let here = self.outcome.now;
        let report = self.check.policy.report(self.outcome.state, here);
        // A gateway that decides alone, by its share, may refuse what the whole limit still holds.
        let most = if self.outcome.refused.is_some() {
            self.check.cost.saturating_sub(1)
        } else {
            u64::MAX
        };
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
pub(crate) struct RateHeaders {
    forms: settings::Respond,
    now: Micros,
    /// How far the wall clock was moved against the store's, in microseconds: clients compare
    /// instants with a wall clock.
    wall_step: i64,
    refused: bool,
    /// When a refused request would pass, if it ever does.
    retry_at: Option<Micros>,
}

impl RateHeaders {
    pub(crate) fn new(forms: settings::Respond, now: Micros, wall_step: i64) -> Self {
        RateHeaders { forms, now, wall_step, refused: false, retry_at: None }
    }

    /// The headers of a refusal.
    pub(crate) fn refusing(self, retry_at: Option<Micros>) -> Self {
        RateHeaders { refused: true, retry_at, ..self }
    }

    /// Writes the fields for the limits that may be named, in place of those that `headers` has
    /// from the upstream.
    pub(crate) fn write<'a>(
        &self,
        applied: impl Iterator<Item = Applied<'a>> + Clone,
        headers: &mut HeaderMap,
        fields: &mut Fields,
    ) {
        let visible = applied.filter(|applied| applied.text.visible);
        if visible.clone().next().is_none() {
            return;
        }
        // One pass over the names instead of a look-up for each that might be there.
        let any = headers.keys().any(|name| {
            let name = name.as_str();
            name.strip_prefix("x-").unwrap_or(name).starts_with("ratelimit")
        });
        let mut upstream = any.then_some(headers);
        let mut tightest: Option<TightestLimit<'a>> = None;
        if self.forms.draft {
            fields.add_with(FieldName::RateLimit, |value| {
                let mut list = List { value, is_empty: true };
                list.keep_upstream(upstream.as_deref_mut(), FieldName::RateLimit);
                for applied in visible.clone() {
                    let report = applied.report(self.now);
                    let value = list.next().text(applied.text.quoted_name()).text(b";r=");
                    value.number(report.remaining).text(b";t=");
                    value.number(seconds_until(report.grows_at, self.now));
                    TightestLimit::consider(&mut tightest, &applied, report);
                }
            });
            fields.add_with(FieldName::RateLimitPolicy, |value| {
                let mut list = List { value, is_empty: true };
                list.keep_upstream(upstream.as_deref_mut(), FieldName::RateLimitPolicy);
                for applied in visible {
                    list.next().text(applied.text.policy.as_bytes());
                }
            });
        } else {
            for applied in visible {
                let report = applied.report(self.now);
                TightestLimit::consider(&mut tightest, &applied, report);
            }
        }
        let Some(tightest) = tightest else { return };
        // Only hidden limits have refused: what other limits have left would mislead.
        if self.refused && !tightest.refused {
            return;
        }
        let reset = self.retry_at.unwrap_or(tightest.report.full_at);
        if self.forms.x {
            remove(upstream.as_deref_mut(), &X);
            fields.add(FieldName::XRateLimitLimit, tightest.text.quota_text());
            fields.add_number(FieldName::XRateLimitRemaining, tightest.report.remaining);
            fields.add_number(FieldName::XRateLimitReset, self.unix_second(reset));
        }
        if self.forms.legacy {
            remove(upstream, &LEGACY);
            fields.add(FieldName::RateLimitLimit, tightest.text.quota_text());
            fields.add_number(FieldName::RateLimitRemaining, tightest.report.remaining);
            fields.add_number(FieldName::RateLimitReset, seconds_until(reset, self.now));
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
struct TightestLimit<'a> {
    report: Report,
    text: &'a PolicyText,
    refused: bool,
}

impl<'a> TightestLimit<'a> {
    fn consider(tightest: &mut Option<TightestLimit<'a>>, applied: &Applied<'a>, report: Report) {
        let refused = applied.check.enforced && applied.outcome.refused.is_some();
        let candidate = TightestLimit { report, text: applied.text, refused };
        if tightest.as_ref().is_none_or(|best| candidate.is_tighter_than(best)) {
            *tightest = Some(candidate);
        }
    }

    fn is_tighter_than(&self, other: &TightestLimit<'_>) -> bool {
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
pub(crate) fn retry_at<'a>(
    outcomes: impl Iterator<Item = &'a CheckOutcome>,
    now: Micros,
) -> Option<Micros> {
    let mut latest = Micros::default();
    for outcome in outcomes {
        match outcome.refused {
            None => {}
            Some(Retry::At(at)) => latest = latest.max(translate(at, outcome.now, now)),
            Some(Retry::Never) => return None,
        }
    }
    Some(latest)
}

pub(crate) fn seconds_until(instant: Micros, now: Micros) -> u64 {
    instant.0.saturating_sub(now.0).div_ceil(1_000_000)
}

/// A list of policies that is being written.
struct List<'a, 'b> {
    value: &'a mut FieldValue<'b>,
    is_empty: bool,
}

impl<'b> List<'_, 'b> {
    /// Where the next member is to be written.
    fn next(&mut self) -> &mut FieldValue<'b> {
        if !std::mem::take(&mut self.is_empty) {
            self.value.text(b", ");
        }
        self.value
    }

    /// Takes over the members of the upstream's own field, or drops it if it is no list.
    fn keep_upstream(&mut self, headers: Option<&mut HeaderMap>, name: FieldName) {
        let Some(headers) = headers else { return };
        let name = name.header();
        let values = headers.get_all(&name);
        if values.iter().all(|value| is_policy_list(value.as_bytes())) {
            for value in values {
                self.next().text(value.as_bytes().trim_ascii());
            }
        }
        headers.remove(name);
    }
}

fn remove(headers: Option<&mut HeaderMap>, names: &[FieldName]) {
    if let Some(headers) = headers {
        for name in names {
            headers.remove(name.header());
        }
    }
}

#[cfg(test)]
#[path = "rate_headers/tests.rs"]
mod tests;
