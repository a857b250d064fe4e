//! Users, clients, tenants and plans; tokens, API keys and lists.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::faults::{each_refused, each_warned};
use super::secrets::Files;
use super::{good, limit, refused, with_route};
use crate::config::settings::{Jwt, JwtAlgorithm, JwtKeys};
use crate::config::{Settings, summary};
use crate::limit::{Key, Source};

const URL: &str = "[identity.jwt]\njwks_url = \"https://id.example.com/jwks.json\"\n";
const HASH: &str = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";

pub(super) fn means(text: &str) -> Settings {
    let loaded = good(text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings
}

fn identity(keys: &str) -> String {
    with_route(&format!("[identity]\n{keys}\n"))
}

fn jwt(keys: &str) -> String {
    with_route(&format!("[identity.jwt]\n{keys}\n"))
}

/// A limit by user with more keys, below an `[identity]` that finds everything.
pub(super) fn by_user(keys: &str) -> String {
    limit(&format!(
        "key = \"user\"\nrate = \"10/second\"\n{keys}\n[identity]\nuser = \"jwt:sub\"\n\
         client = \"header:x-api-key\"\nplan = \"jwt:plan\"\n{URL}"
    ))
}

#[test]
fn identities_are_sources_or_several_in_order() {
    let header = Source::Header(HeaderName::from_static("x-api-key"));
    let settings = means(&identity(&format!(
        "user = [\"header:x-user\", \"cookie:sid\"]\ntenant = \"query:tenant\"\nplan = \"jwt:a.b\"\n\
         client = [\"header:X-Api-Key\", \"basic:user\", \"form:client_id\"]\n{URL}"
    )));
    let found = settings.identity;
    let user = Source::Header(HeaderName::from_static("x-user"));
    assert_eq!(found.user, [user, Source::Cookie("sid".into())]);
    assert_eq!(found.client, [header, Source::BasicUser, Source::Form("client_id".into())]);
    assert_eq!(found.tenant, [Source::Query("tenant".into())]);
    assert_eq!(found.plan, [Source::Jwt("a.b".into())]);
    assert_eq!(means(&with_route("")).identity.user, []);
}

#[test]
fn faults_of_identities_say_what_to_write() {
    each_refused(&[
        (identity("user = \"jwt:sub\""), "6:8: `user` cannot be `jwt:sub`: nothing says which"),
        (identity("user = \"ip\""), "`user` cannot be `ip`; write `jwt:CLAIM`, `header:NAME`"),
        (identity("user = \"hader:x\""), "did you mean `header:NAME`?"),
        (identity("user = \"x-user-id\""), "did you mean `header:x-user-id`?"),
        (identity("client = \"header\""), "does not say which header; write `\"header:NAME\"`"),
        (identity("client = \"basic:password\""), "`basic:password`; write `\"basic:user\"`"),
        (identity("client = [\"form:a\", \"form:a\"]"), "repeats an earlier one: `form:a`"),
        (identity("client = \"header:x-forwarded-for\""), "any caller may write it; count by"),
        (identity("client = \"header:te\""), "it belongs to a connection, not to a caller"),
        (identity("tenant = []"), "`tenant` is empty; write a source such as"),
        (identity("plan = 5"), "`plan` must be a string, not an integer"),
        (identity("users = \"form:a\""), "unknown key `users`; did you mean `user`?"),
    ]);
    each_warned(&[(identity("user = \"header:cookie\""), "is all cookies together")]);
}

#[test]
fn limits_count_by_identities_that_are_found() {
    let key = |key: &str, more: &str| limit(&format!("key = {key}\nrate = \"1/second\"\n{more}"));
    let all = "[identity]\nuser = \"form:u\"\nclient = \"form:c\"\ntenant = \"form:t\"\n\
               plan = \"form:p\"\n";
    let found = means(&key("[\"user\", \"client\", \"tenant\", \"plan\", \"basic:user\"]", all));
    let expected = [Source::User, Source::Client, Source::Tenant, Source::Plan, Source::BasicUser];
    assert_eq!(found.limits[0].key, Key(expected.to_vec()));
    assert_eq!(means(&key("\"jwt:sub\"", URL)).limits[0].key.0, [Source::Jwt("sub".into())]);
    let client = |more: &str| {
        format!(
            "[identity]\nclient = \"header:k\"\n[[clients]]\nid = \"a\"\nkey_hash = \"{HASH}\"\n\
             {more}"
        )
    };
    means(&key("[\"tenant\", \"plan\"]", &client("plan = \"p\"\ntenant = \"t\"")));
    each_refused(&[
        (key("\"client\"", ""), "cannot be `client`: `[identity]` does not say where it is found"),
        (key("\"plan\"", &client("tenant = \"t\"")), "cannot be `plan`"),
        (key("\"tenant\"", &client("plan = \"p\"")), "cannot be `tenant`"),
        (key("\"usr\"", all), "did you mean `user`?"),
    ]);
    // Said where it is written, and nowhere else.
    each_refused(&[(key("\"user\"", "[identity]\nuser = 5"), "`user` must be a string")]);
}

#[test]
fn tokens_have_keys_and_terms() {
    let files = Files::new();
    let at = |keys: &str| jwt(&keys.replace("/etc/weir", files.folder()));
    let told = |keys: &str| -> Jwt { means(&at(keys)).identity.jwt.expect("tokens") };
    let secret = told("secret_file = \"/etc/weir/jwt-secret\"");
    assert_eq!(secret.algorithms, [JwtAlgorithm::Hs256]);
    assert_eq!((secret.leeway, secret.required), (Duration::from_secs(60), false));
    assert_eq!((secret.issuer, secret.audience), (None, None));
    assert!(matches!(secret.keys, JwtKeys::Secret(it) if it.0.len() == 32));
    let pem = told(
        "pem_file = \"/etc/weir/jwt.pem\"\nalgorithms = \"ES256\"\nissuer = \"a\"\n\
         audience = [\"b\", \"c\"]\nleeway = \"0s\"\nrequired = true",
    );
    assert_eq!(pem.algorithms, [JwtAlgorithm::Es256]);
    assert_eq!(pem.issuer, Some(vec!["a".to_owned()]));
    assert_eq!(pem.audience, Some(vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!((pem.leeway, pem.required), (Duration::ZERO, true));
    let set = told("jwks_file = \"/etc/weir/jwks.json\"");
    assert!(matches!(&set.keys, JwtKeys::JwksFile(path) if path.ends_with("jwks.json")));
    assert_eq!(set.algorithms.len(), 9);
    assert!(!set.algorithms.contains(&JwtAlgorithm::Hs256), "secrets are not published");
}

#[test]
fn urls_of_keys_are_taken_apart() {
    let url = |written: &str| {
        let text = jwt(&format!("jwks_url = \"{written}\"\nrefresh = \"30s\""));
        match means(&text).identity.jwt.expect("tokens").keys {
            JwtKeys::JwksUrl(url) => *url,
            other => panic!("{other:?}"),
        }
    };
    let https = url("HTTPS://Id.example.com/a/B?c=D");
    assert_eq!(https.to_string(), "https://id.example.com/a/B");
    assert_eq!((https.tls, https.origin.port, https.path.query()), (true, 443, Some("c=D")));
    assert_eq!(https.refresh, Duration::from_secs(30));
    let http = url("http://[::1]:81");
    assert_eq!((http.tls, http.to_string()), (false, "http://[::1]:81/".to_owned()));
    assert_eq!(url("http://localhost?x").path.as_str(), "/?x");
}

#[test]
fn faults_of_tokens_say_what_to_write() {
    let files = Files::new();
    files.write("empty", b"\n");
    let at = |keys: &str| jwt(&keys.replace("/etc/weir", files.folder()));
    let url = |url: &str| jwt(&format!("jwks_url = \"{url}\""));
    let more = |keys: &str| jwt(&format!("jwks_url = \"https://a/b\"\n{keys}"));
    each_refused(&[
        (
            jwt("required = true"),
            "`jwt` of `[identity]` has no keys to verify tokens with; add one",
        ),
        (with_route("[identity]\njwt = true"), "`jwt` must be a table, not a boolean"),
        (more("pem_file = \"x\""), "there are keys in `pem_file` already; keep one of the two"),
        (jwt("secret_env = \"WEIR_NO_SUCH\""), "`WEIR_NO_SUCH`, which is not set; set it before"),
        (at("secret_file = \"/etc/weir/empty\""), "names a file without a secret"),
        (at("pem_file = \"/etc/weir/none\""), "6:12: `pem_file` names a file that cannot be read"),
        (at("pem_file = \"/etc/weir/jwks.json\""), "is no PEM public key or certificate"),
        (at("jwks_file = \"/etc/weir/none\""), "`jwks_file` names a file that cannot be read"),
        (at("jwks_file = \"/etc/weir/jwt.pem\""), "names a file that is no JWK set"),
        (
            at("jwks_file = \"/etc/weir/jwks.json\"\nalgorithms = [\"RS256\"]"),
            "6:13: `jwks_file` has no key that can be used with the algorithms that are accepted",
        ),
        (
            at("pem_file = \"/etc/weir/jwt.pem\"\nalgorithms = [\"ES256\", \"HS256\"]"),
            "an entry of `algorithms` does not go with the keys in `pem_file`; write one such as",
        ),
        (
            at("secret_file = \"/etc/weir/jwt-secret\"\nalgorithms = \"RS256\""),
            "`algorithms` does not go with the keys in `secret_file`; write `HS256`, `HS384` or",
        ),
        (more("algorithms = [\"RS265\"]"), "did you mean `RS256`?"),
        (more("algorithms = [\"none\"]"), "cannot be `none`; write `HS256`,"),
        (more("algorithms = []"), "`algorithms` is empty: no token would be believed"),
        (more("issuer = []"), "`issuer` is empty: no token would be believed"),
        (more("audience = \"\""), "`audience` is empty; write one such as `\"my-api\"`"),
        (more("leeway = \"11m\""), "write a duration from `\"0s\"` to `\"10m\"`"),
        (more("refresh = \"999ms\""), "`refresh` is out of range"),
        (more("ca = \"Cargo.toml\""), "names a file that is no PEM certificate"),
        (more("jwks = 1"), "unknown key `jwks`"),
        (url("id.example.com"), "`jwks_url` has no scheme; write a URL such as `\"https://id."),
        (url("ftp://a"), "has an unknown scheme: `ftp`"),
        (url("https://"), "does not name a server: ``"),
        (url("https://a:0/"), "does not name a server: `a:0`"),
        (url("https://a/b c"), "has a bad path: `/b c`"),
        (url("https://a/#b"), "has a fragment"),
    ]);
    let lines = refused(&url("https://me:hunter2@a/"));
    assert!(lines[0].contains("carries a user or a password") && !lines[0].contains("hunter2"));
}

#[test]
fn doubtful_tokens_are_warned_of() {
    let files = Files::new();
    files.write("short", b"hunter2\n");
    let at = |keys: &str| jwt(&keys.replace("/etc/weir", files.folder()));
    each_warned(&[
        (
            at("secret_file = \"/etc/weir/short\""),
            "names a secret of 7 bytes: anyone who has a token",
        ),
        (jwt("jwks_url = \"http://id.internal/jwks\""), "is fetched in the clear: anyone in"),
        (
            at("pem_file = \"/etc/weir/jwt.pem\"\nrefresh = \"1m\""),
            "`refresh` has no effect: only keys behind a `jwks_url` are fetched",
        ),
        (
            at("jwks_url = \"http://127.0.0.1/\"\nca = \"/etc/weir/jwks-ca.pem\""),
            "`ca` has no effect: the keys are fetched in the clear",
        ),
    ]);
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let error = crate::config::parse("c", &jwt("secret = \"hunter2hunter2\"")).expect_err("bad");
    let shown = format!("{}{}", error.render(false), error.lines().join("\n"));
    assert!(shown.contains("unknown key `secret`") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn lists_name_networks_users_clients_and_files() {
    let files = Files::new();
    let text = identity(
        "user = \"form:u\"\nclient = \"form:c\"\n[access]\ndeny = { user = [\"mallory\"] }\n\
         allow = { ip = [\"10.0.0.0/8\", \"::1\", \"::ffff:1.2.3.4\"], client = [\"a\"], \
         files = [\"/etc/weir/allow.txt\"] }",
    );
    let access = means(&text.replace("/etc/weir", files.folder())).access;
    let shown: Vec<String> = access.allow.ip.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "::1/128", "1.2.3.4/32"]);
    assert_eq!((access.allow.client, access.deny.user), (vec!["a".into()], vec!["mallory".into()]));
    assert_eq!(access.allow.files, [PathBuf::from(files.folder()).join("allow.txt")]);
    assert_eq!(means(&with_route("[access]")).access, crate::config::settings::Access::default());
}

#[test]
fn faults_of_lists_say_what_to_write() {
    let files = Files::new();
    files.write("bad.txt", b"10.0.0.0/8\n\n10.0.0.0/33\n");
    files.write("clients.txt", b"client:a\n");
    let access = |keys: &str| {
        with_route(&format!("[access]\n{}", keys.replace("/etc/weir", files.folder())))
    };
    each_refused(&[
        (access("allow = { ip = [\"10.0.0.0/33\"] }"), "is not a network: `10.0.0.0/33`; write a"),
        (access("allow = { ip = \"10.0.0.0/8\" }"), "`ip` must be an array, not a string"),
        (access("deny = { ip = [\"::1\", \"::1/128\"] }"), "repeats an earlier one: `::1/128`"),
        (access("allow = { ips = [] }"), "unknown key `ips`; did you mean `ip`?"),
        (access("alow = {}"), "unknown key `alow`; did you mean `allow`?"),
        (access("allow = { files = [\"/no/such\"] }"), "names a file that cannot be read: `/no/su"),
        (
            access("allow = { files = [\"/etc/weir/bad.txt\"] }"),
            "/bad.txt:3: `10.0.0.0/33` is no entry; write a CIDR",
        ),
        (
            identity("user = \"form:u\"\n[access]\ndeny = { user = [\"\"] }"),
            "an entry of `user` cannot be ``; write 1 to 128 characters",
        ),
    ]);
    each_warned(&[
        (access("allow = { user = [\"a\"] }"), "`user` has no effect: `[identity]` does not say"),
        (access("deny = { client = [\"a\"] }"), "`client` has no effect: `[identity]` does not"),
        (access("allow = { ip = [\"0.0.0.0/0\"] }"), "is allowed: no limit applies to anybody"),
        (access("deny = { ip = [\"::/0\"] }"), "is denied: nobody gets in"),
        (
            access("allow = { files = [\"/etc/weir/clients.txt\"] }"),
            "names clients to no effect: `[identity]` does not say where a `client` is found",
        ),
    ]);
}

#[test]
fn clients_are_written_here_or_in_files() {
    let files = Files::new();
    let text = |keys: &str| {
        let text = identity(&format!("client = \"header:x-api-key\"\n{keys}"));
        text.replace("/etc/weir", files.folder())
    };
    let here = format!("[[clients]]\nid = \"billing\"\nkey_hash = \"{HASH}\"\nplan = \"pro\"\n");
    let ids = |keys: &str| -> Option<Vec<String>> {
        means(&text(keys)).identity.clients.map(|it| it.into_iter().map(|it| it.id).collect())
    };
    let file = "clients_file = \"/etc/weir/clients.toml\"\n";
    assert_eq!(ids(""), None);
    assert_eq!(ids(&here), Some(vec!["billing".to_owned()]));
    assert_eq!(ids(file), Some(vec!["reports".to_owned()]));
    assert_eq!(ids(&format!("{file}{here}")), Some(vec!["billing".into(), "reports".into()]));
    let settings = means(&text(file));
    assert_eq!(
        settings.identity.clients_files,
        [PathBuf::from(files.folder()).join("clients.toml")]
    );
    let taken = here.replace("billing", "reports");
    files.write("same.toml", here.replace("billing", "other").as_bytes());
    files.write("bad.toml", b"[[clients]]\nid = \"x\"\nkey_hash = \"hunter2\"\ntrust = 2\n");
    each_refused(&[
        (text("clients_file = \"/no/such\""), "`clients_file` names a file that cannot be read"),
        (text("clients_file = []"), "`clients_file` is empty"),
        (text(&format!("{file}{taken}")), "whose client `reports` has the id of one in the conf"),
        (
            text(&format!("clients_file = [\"/etc/weir/same.toml\"]\n{here}")),
            "whose client `other` has the key of one in the configuration; give every client",
        ),
    ]);
    let lines = refused(&text("clients_file = \"/etc/weir/bad.toml\""));
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("/bad.toml:3:12: `key_hash` does not start with"), "{lines:#?}");
    assert!(lines[1].contains("/bad.toml:4:9: `trust` is out of range"), "{lines:#?}");
    assert!(!lines.concat().contains("hunter2"));
    each_warned(&[(
        with_route(&here),
        "`[identity]` does not say where a `client` is found, so no client is known by its key",
    )]);
}

#[test]
fn the_summary_says_who_is_told_apart_and_how() {
    let shown = summary(&good(&by_user(
        "when = { method = [\"POST\", \"PUT\"], plan = \"a\" }\nplans.pro.rate = \"60/minute\"\n\
         [access]\nallow = { ip = [\"10.0.0.0/8\"] }",
    )));
    for line in [
        "  user    jwt:sub\n",
        "  allow   1 network\n",
        "    when method is POST or PUT, plan is a\n",
        "    plan pro: 60/minute burst 60\n",
        "  tokens  by the keys at https://id.example.com/jwks.json, every 10m, RS256 RS384 ",
        "ES256 ES384 EdDSA, leeway 1m\n",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert!(!summary(&good(&with_route(""))).contains("callers"));
}
