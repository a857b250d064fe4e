//! `[trust]` and limits that go by it.

use super::{good, refused};
use crate::limit::trust::TrustWeights;

const IDENTITY: &str =
    "[identity]\nuser = \"jwt:sub\"\n[identity.jwt]\nsecret_env = \"CARGO_PKG_DESCRIPTION\"\n";

fn file(identity: &str, limit: &str, trust: &str) -> String {
    format!(
        "{identity}[limits.a]\nkey = \"ip\"\n{limit}\n[[routes]]\nname = \"r\"\npath = \"/*\"\n\
         upstream = \"echo\"\nlimits = [\"a\"]\n[trust]\n{trust}\n"
    )
}

const ADAPTIVE: &str = "rate = \"10/second\"\nadaptive = true";

#[test]
fn trust_is_what_is_written_and_the_rest_by_default() {
    let settings = good(&file(IDENTITY, ADAPTIVE, "")).settings;
    assert!(settings.limits[0].adaptive);
    assert_eq!(settings.trust.weights, TrustWeights::default());
    assert_eq!(settings.trust.score, None);
    let trust = "account_created = \"jwt:app.created\"\nscore = \"jwt:t\"\n\
                 email_verified = \"jwt:email_verified\"\nweights = { age = 0.5, violations = 1 }";
    let loaded = good(&file(IDENTITY, ADAPTIVE, trust));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let trust = loaded.settings.trust;
    assert_eq!(trust.account_created.as_deref(), Some("app.created"));
    assert_eq!(trust.email_verified.as_deref(), Some("email_verified"));
    assert_eq!(trust.score.as_deref(), Some("t"));
    let weights = TrustWeights { age: 500, violations: 1000, ..TrustWeights::default() };
    assert_eq!(trust.weights, weights);
}

#[test]
fn faults_of_trust_say_what_to_write() {
    let trust = |lines: &str| file(IDENTITY, ADAPTIVE, lines);
    for (text, fault) in [
        (
            trust("score = \"header:x-trust\""),
            "cannot be `header:x-trust`: any caller may write it; write a claim of a token, such as `\"jwt:trust\"`",
        ),
        (
            trust("account_created = \"created\""),
            "`account_created` cannot be `created`; write a claim of a token, such as `\"jwt:created_at\"`",
        ),
        (
            trust("score = \"trust\""),
            "`score` cannot be `trust`; write a claim of a token, such as `\"jwt:trust\"`",
        ),
        (trust("score = \"jwt\""), "`score` does not say which claim"),
        (trust("email_verified = true"), "`email_verified` must be a string, not a boolean"),
        (
            trust("weights = { age = 1.5 }"),
            "`age` is out of range: `1.5`; write a number from 0.0 to 1.0",
        ),
        (trust("weights = { mail = 0.1 }"), "unknown key `mail`"),
        (trust("claim = \"x\""), "unknown key `claim`"),
        (file("", ADAPTIVE, "score = \"jwt:trust\""), "nothing says which tokens to believe"),
        (
            file(IDENTITY, "rate = \"10/second\"\nadaptive = 1", ""),
            "`adaptive` must be a boolean, not an integer",
        ),
        (
            file(
                IDENTITY,
                "algorithm = \"sliding_log\"\nrate = \"60000/day\"\nadaptive = true",
                "",
            ),
            "`adaptive` does not go with these numbers: whoever is trusted most has twice",
        ),
        (
            file(
                IDENTITY,
                "rate = \"9/second\"\nadaptive = true\nplans.a = { rate = \"900000000/second\" }\nburst = 5",
                "",
            ),
            "`adaptive` does not go with these numbers",
        ),
    ] {
        let faults = refused(&text);
        assert!(faults.iter().any(|it| it.contains(fault)), "{fault}: {faults:#?}");
    }
}

#[test]
fn trust_without_effect_is_warned_of() {
    let warned = |text: &str, warning: &str| {
        let loaded = good(text);
        assert!(loaded.warnings.to_string().contains(warning), "{}", loaded.warnings);
    };
    warned(
        &file(IDENTITY, "rate = \"10/second\"", "score = \"jwt:t\""),
        "`score` has no effect: no limit is `adaptive`",
    );
    warned(&file("", ADAPTIVE, ""), "`adaptive` has no effect: nothing says who is to be trusted");
    let shared = file(IDENTITY, ADAPTIVE, "").replace("key = \"ip\"", "key = \"global\"");
    warned(&shared, "`adaptive` is of a limit that all callers share");
    let weights = "weights = { violation = 0.3 }";
    warned(&file(IDENTITY, ADAPTIVE, weights), "`violation` is more than `violations`");
    for weights in ["weights = { violation = 0.2 }", "weights = { violations = 0 }"] {
        let loaded = good(&file(IDENTITY, ADAPTIVE, weights));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}
