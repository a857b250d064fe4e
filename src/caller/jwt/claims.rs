//! What a token says, and on which terms it is believed.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::Rejection;
use crate::config::settings::Jwt;

/// Whole numbers up to this one are exact as floats; beyond, two callers may share one.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What a verified token says.
#[derive(Debug, PartialEq)]
pub struct Claims {
    /// The seconds at which it can be believed, leeway included.
    valid: Range<u64>,
    claims: Map<String, Value>,
}

impl Claims {
    /// A claim that is text, a number or a boolean. Dots lead into claims that are objects:
    /// `realm.tenant`; a claim whose own name has dots in it, such as a URL, is found as well.
    /// `None` if there is no such claim, if it is empty, or if it is anything else.
    pub fn get(&self, claim: &str) -> Option<Cow<'_, str>> {
        match find(&self.claims, claim)? {
            Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
            Value::Bool(yes) => Some(Cow::Borrowed(if *yes { "true" } else { "false" })),
            Value::Number(number) => shown(number).map(Cow::Owned),
            _ => None,
        }
    }

    /// A claim that is there, whatever it is: a number of any size, and an empty text for what is
    /// neither text nor number.
    pub fn get_any(&self, claim: &str) -> Option<Cow<'_, str>> {
        Some(match find(&self.claims, claim)? {
            Value::String(text) => Cow::Borrowed(text),
            Value::Number(number) => Cow::Owned(number.to_string()),
            _ => Cow::Borrowed(""),
        })
    }

    /// Whether it can still be believed, and already.
    pub fn holds_at(&self, now: u64) -> bool {
        self.valid.contains(&now)
    }
}

fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    claims.get(path).or_else(|| {
        path.match_indices('.').find_map(|(at, _)| match claims.get(&path[..at])? {
            Value::Object(below) => find(below, &path[at + 1..]),
            _ => None,
        })
    })
}

fn shown(number: &Number) -> Option<String> {
    let exact = !number.is_f64() || number.as_f64().is_some_and(|it| it.abs() < EXACT);
    exact.then(|| number.to_string())
}

/// What the configuration asks of a token besides its signature.
#[derive(Debug)]
pub(super) struct ClaimRules {
    issuer: Option<Vec<String>>,
    audience: Option<Vec<String>>,
    leeway: u64,
}

impl ClaimRules {
    pub(super) fn new(settings: &Jwt) -> Self {
        ClaimRules {
            issuer: settings.issuer.clone(),
            audience: settings.audience.clone(),
            leeway: settings.leeway.as_secs(),
        }
    }

    /// Takes a token at its word, if it meets the terms.
    pub(super) fn read(
        &self,
        mut claims: Map<String, Value>,
        now: u64,
    ) -> Result<Claims, Rejection> {
        let valid = self.validity(&claims)?;
        if now >= valid.end {
            return Err(Rejection::Expired);
        }
        if now < valid.start {
            return Err(Rejection::Early { from: valid.start });
        }
        if let Some(known) = &self.issuer {
            let issuer = claims.get("iss").and_then(Value::as_str);
            if !issuer.is_some_and(|issuer| known.iter().any(|it| it == issuer)) {
                return Err(Rejection::Issuer);
            }
        }
        if let Some(ours) = &self.audience
            && !claims.get("aud").is_some_and(|audience| meant_for(audience, ours))
        {
            return Err(Rejection::Audience);
        }
        // Nobody can ask what is in them, and they may be long.
        claims.values_mut().filter(|value| value.is_array()).for_each(|it| *it = Value::Null);
        Ok(Claims { valid, claims })
    }

    /// RFC 7519 sections 4.1.4 and 4.1.5: from `nbf` on, and until before `exp`.
    fn validity(&self, claims: &Map<String, Value>) -> Result<Range<u64>, Rejection> {
        let expiry = claims.get("exp").and_then(Value::as_number).ok_or(Rejection::NoExpiry)?;
        let start = match claims.get("nbf") {
            None => 0,
            Some(Value::Number(start)) => seconds(start, f64::ceil),
            Some(_) => return Err(Rejection::Malformed),
        };
        let end = seconds(expiry, f64::floor).saturating_add(self.leeway);
        Ok(start.saturating_sub(self.leeway)..end)
    }
}

/// RFC 7519 section 4.1.3: one text, or a list of them.
fn meant_for(audience: &Value, ours: &[String]) -> bool {
    let is_ours = |it: &Value| it.as_str().is_some_and(|it| ours.iter().any(|our| our == it));
    match audience {
        Value::Array(several) => several.iter().any(is_ours),
        one => is_ours(one),
    }
}

/// A number of seconds, which may have a fraction. What is below zero is zero.
fn seconds(number: &Number, whole: impl Fn(f64) -> f64) -> u64 {
    let float = || whole(number.as_f64().unwrap_or_default()) as u64;
    number.as_u64().unwrap_or_else(float)
}

#[cfg(test)]
mod tests;
