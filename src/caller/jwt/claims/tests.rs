use std::time::Duration;

use serde_json::json;

use super::*;
use crate::config::settings::{JwtKeys, Secret};

fn rules(leeway: u64) -> ClaimRules {
    let keys = JwtKeys::Secret(Secret("secret".to_owned()));
    let leeway = Duration::from_secs(leeway);
    let (issuer, audience) = (None, None);
    ClaimRules::new(&Jwt { keys, algorithms: vec![], issuer, audience, leeway, required: false })
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
