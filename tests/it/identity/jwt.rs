//! Bearer tokens: a request counts as the subject of a token that verifies, otherwise as no user.

use serde_json::json;

use crate::support::gateway::program;
use crate::support::issuer::{bearer, claims, now, unsigned};
use crate::support::{
    Config, Issuer, KeyServer, Scratch, Upstream, Weir, get, get_with, wait_until,
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Three routes by user: `/known` takes every user and nobody else, `/once` each user once a day
/// and others by address, `/skip` the same but others as often as they like.
pub(crate) fn with(jwt: &str) -> Config {
    let config = Config::echo()
        .open()
        .add_limit("known", "key = \"user\"\nrate = \"1000000/second\"\nmissing = \"deny\"")
        .bucket("once", "user", 1)
        .add_limit("skip", "key = \"user\"\nrate = \"1/day\"\nburst = 1\nmissing = \"skip\"")
        .route("known", "/known", &["known"])
        .route("once", "/once", &["once"])
        .route("skip", "/skip", &["skip"]);
    let identity = format!("[identity]\nuser = \"jwt:sub\"\n[identity.jwt]\n{jwt}\n");
    config.also(&identity)
}

/// The same from the keys behind a URL, which are looked at every second.
pub(crate) fn from(server: &KeyServer, more: &str) -> Weir {
    let url = server.url();
    Weir::start(&with(&format!("jwks_url = \"{url}\"\nrefresh = \"1s\"\n{more}")))
}

/// With a file beside the configuration, which `jwt` names.
pub(crate) fn beside(name: &str, text: &str, jwt: &str) -> Weir {
    let scratch = Scratch::new();
    let path = scratch.file(name, text);
    let jwt = jwt.replace(name, path.to_str().unwrap());
    let file = scratch.file("weir.toml", &with(&jwt).text());
    Weir::start_from(scratch, file)
}

/// Whether a request with these header lines counts as a user.
#[track_caller]
fn known_by(weir: &Weir, lines: &str) -> bool {
    let response = weir.ask(get_with("/known", lines));
    if response.status == 200 {
        return true;
    }
    assert_eq!((response.status, response.error()), (403, "missing_key".into()), "{lines}");
    false
}

#[track_caller]
pub(crate) fn known(weir: &Weir, token: &str) -> bool {
    known_by(weir, &bearer(token))
}

#[track_caller]
pub(crate) fn wait_known(weir: &Weir, token: &str) {
    wait_until("the token is believed", || known(weir, token));
}

#[track_caller]
pub(crate) fn once(weir: &Weir, token: &str) -> u16 {
    weir.ask(get_with("/once", &bearer(token))).status
}

/// Two tokens of one user count together, and apart from another user's.
#[track_caller]
pub(crate) fn counts_users(weir: &Weir, issuer: &Issuer, of: &str) {
    let again = json!({ "sub": format!("{of}-anna"), "exp": now() + 60, "jti": "2" });
    let anna = claims(&format!("{of}-anna"));
    let bert = claims(&format!("{of}-bert"));
    assert_eq!(once(weir, &issuer.token(&anna)), 200, "{of}");
    assert_eq!(once(weir, &issuer.token(&again)), 429, "{of}");
    assert_eq!(once(weir, &issuer.token(&bert)), 200, "{of}");
}

#[test]
fn tokens_of_an_openid_provider_count_by_their_subject() {
    let issuers = [Issuer::rsa("r"), Issuer::p256("e"), Issuer::ed25519("d")];
    let server = KeyServer::start(&issuers.each_ref());
    let weir = from(&server, "");
    wait_known(&weir, &issuers[0].token(&claims("first")));
    for issuer in &issuers {
        counts_users(&weir, issuer, issuer.algorithm());
        let nameless = issuer.sign(&json!({ "alg": issuer.algorithm() }), &claims("x"));
        assert!(known(&weir, &nameless), "{} without kid", issuer.algorithm());
    }
    let statuses = issuers.each_ref().map(|issuer| once(&weir, &issuer.token(&claims("one"))));
    assert_eq!(statuses, [200, 429, 429], "one user, whoever vouches");
}

#[test]
fn a_secret_from_the_environment_or_a_file_verifies_tokens() {
    let issuer = Issuer::secret("s", SECRET.as_bytes());
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &with("secret_env = \"TEST_JWT_SECRET\"").text());
    let mut command = program();
    command.env("TEST_JWT_SECRET", SECRET);
    let by_variable = Weir::start_with(command, scratch, file);
    let by_file = beside("jwt-secret", &format!("{SECRET}\n"), "secret_file = \"jwt-secret\"");
    for weir in [by_variable, by_file] {
        counts_users(&weir, &issuer, "HS256");
        let other = Issuer::secret("s", SECRET.to_uppercase().as_bytes());
        assert!(!known(&weir, &other.token(&claims("anna"))));
        assert!(!weir.output().contains(SECRET));
    }
}

#[test]
fn public_keys_in_pem_verify_tokens() {
    let issuers = [Issuer::rsa("r"), Issuer::p256("e"), Issuer::ed25519("d")];
    let pem: String = issuers.iter().map(Issuer::pem).collect();
    let weir = beside("jwt.pem", &pem, "pem_file = \"jwt.pem\"");
    for issuer in &issuers {
        counts_users(&weir, issuer, issuer.algorithm());
        assert!(!known(&weir, &Issuer::p256("e").token(&claims("anna"))), "a stranger's");
    }
}

#[test]
fn limits_count_by_any_claim() {
    let issuer = Issuer::secret("s", SECRET.as_bytes());
    let rows = [
        ("\"jwt:tenant\"", json!({ "tenant": "a" }), json!({ "tenant": "b" })),
        ("\"jwt:org.id\"", json!({ "org": { "id": 1 } }), json!({ "org": { "id": 2 } })),
        (
            "[\"jwt:a\", \"jwt:b\"]",
            json!({ "a": "x:y", "b": "z" }),
            json!({ "a": "x", "b": "y:z" }),
        ),
        ("\"jwt:https://a.b/c\"", json!({ "https://a.b/c": "1" }), json!({ "https://a.b/c": "2" })),
    ];
    for (key, one, two) in rows {
        let scratch = Scratch::new();
        scratch.file("jwt-secret", SECRET);
        let secret = scratch.path().join("jwt-secret");
        let jwt = format!("[identity.jwt]\nsecret_file = \"{}\"", secret.display());
        let limit = format!("key = {key}\nrate = \"1/day\"\nburst = 1\nmissing = \"deny\"");
        let file = scratch.file("weir.toml", &Config::echo().limit(&limit).also(&jwt).text());
        let weir = Weir::start_from(scratch, file);
        let ask = |claims: &serde_json::Value, subject: &str| {
            let mut claims = claims.clone();
            claims["exp"] = (now() + 60).into();
            claims["sub"] = subject.into();
            weir.ask(get_with("/", &bearer(&issuer.token(&claims)))).status
        };
        let statuses = [ask(&one, "anna"), ask(&one, "bert"), ask(&two, "anna"), ask(&two, "x")];
        assert_eq!(statuses, [200, 429, 200, 429], "{key}");
        assert_eq!(ask(&json!({}), "anna"), 403, "{key}: a token without it");
    }
}

/// Tokens that claim to be anna's and must not be accepted.
fn forgeries(issuer: &Issuer) -> Vec<(&'static str, String)> {
    let good = json!({ "sub": "anna", "aud": "api", "iss": "https://a", "exp": now() + 3600 });
    let but = |name: &str, value: serde_json::Value| {
        let mut claims = good.clone();
        claims[name] = value;
        issuer.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        issuer.token(&claims)
    };
    let token = issuer.token(&good);
    let parts: Vec<&str> = token.split('.').collect();
    let root = unsigned(&json!({}), &json!({ "sub": "root", "exp": now() + 60 }));
    let hmac = |secret: &[u8]| Issuer::secret("k", secret).token(&good);
    let alg = |alg: &str| json!({ "alg": alg, "kid": "k" });
    vec![
        ("alg none", format!("{}.", unsigned(&alg("none"), &good))),
        ("alg None", format!("{}.", unsigned(&alg("None"), &good))),
        ("alg none, two parts", unsigned(&alg("none"), &good)),
        ("alg none, signed", issuer.sign(&alg("none"), &good)),
        ("no alg", issuer.sign(&json!({ "kid": "k" }), &good)),
        ("an HMAC with the PEM", hmac(issuer.pem().as_bytes())),
        ("an HMAC with the PEM, trimmed", hmac(issuer.pem().trim().as_bytes())),
        ("an HMAC with the DER", hmac(&issuer.der())),
        ("an HMAC with the JWK", hmac(issuer.jwk().to_string().as_bytes())),
        ("expired", but("exp", (now() - 3600).into())),
        ("expired long ago", but("exp", 0.into())),
        ("a negative exp", but("exp", (-1).into())),
        ("a string for exp", but("exp", (now() + 3600).to_string().into())),
        ("null for exp", but("exp", json!(null))),
        ("no exp", without("exp")),
        ("not valid yet", but("nbf", (now() + 3600).into())),
        ("a string for nbf", but("nbf", "0".into())),
        ("the wrong audience", but("aud", "web".into())),
        ("wrong audiences", but("aud", json!(["web", "apis"]))),
        ("no audience", without("aud")),
        ("the wrong issuer", but("iss", "https://a/".into())),
        ("no issuer", without("iss")),
        ("another's key", Issuer::rsa("k").token(&good)),
        ("a critical extension", {
            let header = json!({ "alg": issuer.algorithm(), "kid": "k", "crit": ["x"], "x": 1 });
            issuer.sign(&header, &good)
        }),
        ("other claims", [parts[0], root.split_once('.').unwrap().1, parts[2]].join(".")),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("a cut signature", format!("{}.{}.{}", parts[0], parts[1], &parts[2][..40])),
        ("garbage", "garbage".to_owned()),
        ("dots", "..".to_owned()),
    ]
}

const STRICT: &str = "audience = \"api\"\nissuer = \"https://a\"";

#[test]
fn a_token_that_does_not_verify_is_no_identity() {
    for issuer in [Issuer::rsa("k"), Issuer::p256("k"), Issuer::ed25519("k")] {
        let server = KeyServer::start(&[&issuer]);
        let weir = from(&server, STRICT);
        let good = json!({ "sub": "anna", "aud": "api", "iss": "https://a", "exp": now() + 3600 });
        let good = issuer.token(&good);
        wait_known(&weir, &good);
        assert_eq!(weir.get("/once").status, 200, "the address has one");
        for (name, token) in forgeries(&issuer) {
            let name = format!("{name} for {}", issuer.algorithm());
            for _ in 0..2 {
                assert!(!known(&weir, &token), "{name}");
            }
            assert_eq!(once(&weir, &token), 429, "{name} counts by address");
            let skipped = weir.ask(get_with("/skip", &bearer(&token))).status;
            assert_eq!(skipped, 200, "{name} is skipped");
        }
        assert_eq!([once(&weir, &good), once(&weir, &good)], [200, 429], "anna's own is whole");
    }
}

#[test]
fn a_required_token_has_to_verify() {
    let (upstream, issuer) = (Upstream::ok(), Issuer::rsa("k"));
    let server = KeyServer::start(&[&issuer]);
    let jwt = format!("[identity.jwt]\njwks_url = \"{}\"\nrequired = true\n{STRICT}", server.url());
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1000";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(&jwt));
    let good =
        json!({ "sub": "anna", "aud": ["web", "api"], "iss": "https://a", "exp": now() + 60 });
    let good = get_with("/", &bearer(&issuer.token(&good)));
    wait_until("the keys are there", || weir.ask(&good).status == 200);
    let before = upstream.heads();
    let mut requests = vec![("nothing at all", get("/"))];
    requests.push(("a password", get_with("/", "Authorization: Basic YTpi\r\n")));
    let forged = forgeries(&issuer).into_iter();
    requests.extend(forged.map(|(name, token)| (name, get_with("/", &bearer(&token)))));
    for (name, request) in requests {
        let response = weir.ask(request);
        assert_eq!((response.status, response.error()), (401, "unauthorized".into()), "{name}");
        let challenge = response.one("www-authenticate").to_owned();
        assert!(challenge.starts_with("Bearer"), "{name}: {challenge}");
    }
    assert_eq!(upstream.heads(), before, "none reached the upstream");
    assert_eq!(weir.ask(&good).status, 200);
}

#[test]
fn clocks_may_differ_by_the_leeway_and_no_more() {
    let issuer = Issuer::secret("s", SECRET.as_bytes());
    let dated = |name: &str, at: u64| {
        let mut claims = json!({ "sub": "anna", "exp": now() + 3600 });
        claims[name] = at.into();
        issuer.token(&claims)
    };
    let start = |leeway: &str| {
        beside(
            "jwt-secret",
            SECRET,
            &format!("secret_file = \"jwt-secret\"\nleeway = \"{leeway}\""),
        )
    };
    let weir = start("5m");
    assert!(known(&weir, &dated("exp", now() - 200)));
    assert!(!known(&weir, &dated("exp", now() - 301)));
    assert!(known(&weir, &dated("nbf", now() + 200)));
    assert!(!known(&weir, &dated("nbf", now() + 400)));
    let weir = start("0s");
    assert!(!known(&weir, &dated("exp", now())));
    // One that is known already, and is remembered, ends on time as well.
    let soon = dated("exp", now() + 5);
    assert!(known(&weir, &soon));
    wait_until("it expires", || !known(&weir, &soon));
    let later = dated("nbf", now() + 4);
    assert!(!known(&weir, &later));
    wait_until("it begins", || known(&weir, &later));
}

#[test]
fn only_the_algorithms_that_are_listed_are_accepted() {
    let issuers = [Issuer::rsa("r"), Issuer::p256("e"), Issuer::ed25519("d")];
    let server = KeyServer::start(&issuers.each_ref());
    let weir = from(&server, "algorithms = [\"ES256\"]");
    wait_known(&weir, &issuers[1].token(&claims("anna")));
    assert!(!known(&weir, &issuers[0].token(&claims("anna"))));
    assert!(!known(&weir, &issuers[2].token(&claims("anna"))));
}

#[test]
fn a_token_comes_in_one_authorization_header_of_its_scheme() {
    let issuer = Issuer::secret("s", SECRET.as_bytes());
    let weir = beside("jwt-secret", SECRET, "secret_file = \"jwt-secret\"");
    let [anna, bert] = ["anna", "bert"].map(|user| issuer.token(&claims(user)));
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert!(known_by(&weir, &format!("Authorization: {scheme} {anna}\r\n")), "{scheme}");
    }
    let malformed = [
        bearer(&anna) + &bearer(&bert),
        bearer(&anna) + &bearer(&anna),
        bearer(&anna) + "Authorization: Basic YTpi\r\n",
        "Authorization: Basic YTpi\r\n".to_owned() + &bearer(&anna),
        bearer(&anna) + "authorization:\r\n",
        bearer(&format!("{anna} {anna}")),
        bearer(&format!("{anna}, Bearer {anna}")),
        bearer(""),
        format!("Authorization: {anna}\r\n"),
        format!("Authorization: Token {anna}\r\n"),
        format!("Authorization: Bearer{anna}\r\n"),
    ];
    for row in malformed {
        let response = weir.ask(get_with("/known", &row));
        assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{row}");
    }
    let elsewhere =
        [format!("X-Authorization: Bearer {anna}\r\n"), format!("Cookie: Bearer={anna}\r\n")];
    for row in elsewhere {
        assert!(!known_by(&weir, &row), "{row}");
    }
    let stripping = format!("{}Connection: authorization\r\n", bearer(&anna));
    assert!(known_by(&weir, &stripping), "a client strips no identity");
}
