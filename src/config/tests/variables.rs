//! What stands in the environment: not there, there and empty, or there.

use super::{good, redis, refused, with_route};
use crate::config::settings::{RedisServers, Secret, Settings, StoreKind};
use crate::config::summary;

/// Cargo sets both for every test: `weir`, and nothing.
const SET: &str = "CARGO_PKG_NAME";
const EMPTY: &str = "CARGO_PKG_VERSION_PRE";

fn means(text: &str) -> Settings {
    let loaded = good(text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings
}

fn weir() -> Option<Secret> {
    Some(Secret("weir".to_owned()))
}

#[track_caller]
fn fault(text: &str, expected: &str) {
    let lines = refused(text);
    assert!(lines.len() == 1 && lines[0].contains(expected), "{expected:?}: {lines:#?}\n{text}");
}

#[test]
fn an_empty_admin_token_is_none() {
    let admin = |name| with_route(&format!("[admin]\ntoken_env = \"{name}\""));
    assert_eq!(means(&admin(SET)).admin.token, weir());
    assert_eq!(means(&admin(EMPTY)).admin.token, None);
    fault(
        &admin("WEIR_NO_SUCH"),
        "`token_env` names the environment variable `WEIR_NO_SUCH`, which is not set; set it before \
         Weir starts",
    );
}

#[test]
fn a_summary_says_what_is_not_there_without_a_token() {
    let line = |admin: &str| {
        let text = summary(&good(&with_route(&format!("[admin]\n{admin}"))));
        text.lines().nth(1).unwrap().to_owned()
    };
    let only = " (/metrics, /healthz and /readyz only: there is no token)";
    let all = "listen = \"0.0.0.0:9090\"\n";
    assert_eq!(line(all), format!("listen 0.0.0.0:8080, admin 0.0.0.0:9090{only}"));
    let empty = format!("{all}token_env = \"{EMPTY}\"");
    assert_eq!(line(&empty), format!("listen 0.0.0.0:8080, admin 0.0.0.0:9090{only}"));
    let set = format!("{all}token_env = \"{SET}\"");
    assert_eq!(line(&set), "listen 0.0.0.0:8080, admin 0.0.0.0:9090");
    assert_eq!(line(""), "listen 0.0.0.0:8080, admin 127.0.0.1:9090");
}

#[test]
fn an_empty_password_is_none() {
    let store = |keys: &str| match means(&redis(keys)).store.kind {
        StoreKind::Redis(redis) => *redis,
        other => panic!("{keys}: {other:?}"),
    };
    assert_eq!(store(&format!("password_env = \"{SET}\"")).password, weir());
    assert_eq!(store(&format!("password_env = \"{EMPTY}\"")).password, None);
    let sentinel = format!("master = \"m\", nodes = [\"a\"], password_env = \"{EMPTY}\"");
    let servers = store(&format!("sentinel = {{ {sentinel} }}")).servers;
    assert!(matches!(servers, RedisServers::Sentinel { password: None, .. }), "{servers:?}");
}

#[test]
fn a_user_with_an_empty_password_is_a_fault() {
    let expected = "names a user without a password: the variable `CARGO_PKG_VERSION_PRE` is \
                    empty; set it before Weir starts, or leave the user out";
    let password = format!("password_env = \"{EMPTY}\"");
    fault(&redis(&format!("username = \"me\"\n{password}")), expected);
    fault(&redis(&format!("url = \"redis://me@a\"\n{password}")), expected);
    let sentinel = format!("master = \"m\", nodes = [\"a\"], username = \"s\", {password}");
    fault(&redis(&format!("sentinel = {{ {sentinel} }}")), expected);
}

#[test]
fn an_empty_secret_that_tokens_are_signed_with_is_a_fault() {
    let text = with_route(&format!("[identity.jwt]\nsecret_env = \"{EMPTY}\""));
    fault(&text, "names the environment variable `CARGO_PKG_VERSION_PRE`, which is empty");
}

#[test]
fn proxies_may_be_named_in_a_variable() {
    let identity = |name: &str| format!("[identity]\ntrusted_proxies_env = \"{name}\"");
    assert_eq!(means(&with_route(&identity(EMPTY))).identity.trusted_proxies, []);
    fault(
        &with_route(&identity("WEIR_NO_SUCH")),
        "`WEIR_NO_SUCH`, which is not set; set it before",
    );
    fault(
        &with_route(&identity(SET)),
        "6:23: `trusted_proxies_env` names the environment variable `CARGO_PKG_NAME`, in which \
         `weir` is not a network; write CIDRs such as `10.0.0.0/8` or `fd00::/8`, single \
         addresses or `unix:`, with commas between them",
    );
    let text = with_route("[identity]\ntrusted_proxies_env = [\"10.0.0.0/8\"]");
    fault(&text, "`trusted_proxies_env` must be a string, not an array");
}

#[test]
fn a_summary_names_the_proxies_that_are_believed() {
    let text = with_route(
        "[identity]\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\nuser = \"header:x-user\"",
    );
    let expected = "\ncallers\n  proxies  10.0.0.0/8, ::1/128\n  user     header:x-user\n";
    let shown = summary(&good(&text));
    assert!(shown.contains(expected), "{shown}");
}
