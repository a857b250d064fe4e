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
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::config::settings::{JwtKeys, Secret};

    fn rules(leeway: u64) -> ClaimRules {
        let keys = JwtKeys::Secret(Secret("secret".to_owned()));
        let leeway = Duration::from_secs(leeway);
        let (issuer, audience) = (None, None);
        ClaimRules::new(&Jwt {
            keys,
            algorithms: vec![],
            issuer,
            audience,
            leeway,
            required: false,
        })
    }

    fn read(rules: &ClaimRules, claims: Value, now: u64) -> Result<Claims, Rejection> {
        let Value::Object(claims) = claims else { panic!("no object: {claims}") };
        rules.read(claims, now)
    }

    #[test]
    fn a_token_is_believed_from_nbf_on_and_until_before_exp() {
        let claims = json!({ "nbf": 100, "exp": 200 });
        let at = |leeway, now| read(&rules(leeway), claims.clone(), now).map(|_| ());
        assert_eq!(at(0, 99), Err(Rejection::Early { from: 100 }));
        assert_eq!(at(0, 100), Ok(()));
        assert_eq!(at(0, 199), Ok(()));
        assert_eq!(at(0, 200), Err(Rejection::Expired));
        assert_eq!(at(5, 94), Err(Rejection::Early { from: 95 }));
        assert_eq!(at(5, 95), Ok(()));
        assert_eq!(at(5, 204), Ok(()));
        assert_eq!(at(5, 205), Err(Rejection::Expired));
    }

    #[test]
    fn times_are_numbers_and_an_expiry_must_be_there() {
        let at = |claims| read(&rules(0), claims, 100).map(|_| ());
        for exp in [json!("200"), json!(null), json!([200]), json!(true), json!({})] {
            assert_eq!(at(json!({ "exp": exp })), Err(Rejection::NoExpiry), "{exp}");
            assert_eq!(at(json!({ "exp": 200, "nbf": exp })), Err(Rejection::Malformed), "{exp}");
        }
        assert_eq!(at(json!({})), Err(Rejection::NoExpiry));
        for exp in [json!(-1), json!(0), json!(100.9), json!(-1e300)] {
            assert_eq!(at(json!({ "exp": exp })), Err(Rejection::Expired), "{exp}");
        }
        for exp in [json!(101), json!(101.5), json!(u64::MAX), json!(1e300)] {
            assert_eq!(at(json!({ "exp": exp })), Ok(()), "{exp}");
        }
        let early = at(json!({ "exp": 200, "nbf": 100.1 }));
        assert_eq!(early, Err(Rejection::Early { from: 101 }));
    }

    #[test]
    fn issuer_and_audience_are_asked_for_only_if_configured() {
        let mut rules = rules(0);
        let open = json!({ "exp": 200, "iss": "x", "aud": ["y"] });
        assert!(read(&rules, open, 100).is_ok());
        rules.issuer = Some(vec!["a".to_owned(), "b".to_owned()]);
        rules.audience = Some(vec!["api".to_owned(), "web".to_owned()]);
        let at = |iss: Value, aud: Value| {
            read(&rules, json!({ "exp": 200, "iss": iss, "aud": aud }), 100).map(|_| ())
        };
        assert_eq!(at(json!("b"), json!("api")), Ok(()));
        assert_eq!(at(json!("b"), json!(["x", "web"])), Ok(()));
        for iss in [json!("c"), json!(null), json!(["a"]), json!("")] {
            assert_eq!(at(iss.clone(), json!("api")), Err(Rejection::Issuer), "{iss}");
        }
        for aud in [json!("x"), json!(null), json!([]), json!(["ap"]), json!({ "api": 1 })] {
            assert_eq!(at(json!("a"), aud.clone()), Err(Rejection::Audience), "{aud}");
        }
        let without = read(&rules, json!({ "exp": 200 }), 100);
        assert_eq!(without.map(|_| ()), Err(Rejection::Issuer));
    }

    #[test]
    fn claims_are_text_numbers_and_booleans_at_any_depth() {
        let claims = json!({
            "exp": 200, "sub": "anna", "id": 18_446_744_073_709_551_615_u64, "score": 0.5, "ok": true,
            "empty": "", "none": null, "list": ["a"], "huge": 1e20,
            "realm": { "tenant": "acme", "deep": { "er": -3 }, "list": [1] },
            "https://example.com/plan": "pro",
            "https://example.com/app": { "plan": "free" },
        });
        let claims = read(&rules(0), claims, 100).expect("valid");
        let get = |claim: &str| claims.get(claim).map(Cow::into_owned);
        for (claim, value) in [
            ("sub", "anna"),
            ("id", "18446744073709551615"),
            ("score", "0.5"),
            ("ok", "true"),
            ("exp", "200"),
            ("realm.tenant", "acme"),
            ("realm.deep.er", "-3"),
            ("https://example.com/plan", "pro"),
            ("https://example.com/app.plan", "free"),
        ] {
            assert_eq!(get(claim).as_deref(), Some(value), "{claim}");
        }
        for claim in [
            "",
            ".",
            "..",
            "realm",
            "realm.",
            ".realm",
            "realm.list",
            "list",
            "list.0",
            "none",
            "empty",
            "sub.x",
            "missing",
            "huge",
            "realm.deep.er.x",
        ] {
            assert_eq!(get(claim), None, "{claim}");
        }
        let any = |claim: &str| claims.get_any(claim).map(Cow::into_owned);
        for (claim, value) in [
            ("huge", Some("1e+20")),
            ("score", Some("0.5")),
            ("sub", Some("anna")),
            ("none", Some("")),
            ("list", Some("")),
            ("realm", Some("")),
            ("empty", Some("")),
            ("missing", None),
        ] {
            assert_eq!(any(claim).as_deref(), value, "{claim}");
        }
    }
}
