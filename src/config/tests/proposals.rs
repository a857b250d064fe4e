//! Help that writes out the line that was meant.

use super::faults::each_refused;
use super::{limit, redis, refused, with_route};
use crate::config::file::{BOOLEANS, LISTS, NUMBERS};

fn upstream(keys: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
         servers = [\"http://a\"]\n{keys}"
    )
}

fn server(keys: &str) -> String {
    with_route(&format!("[server]\n{keys}"))
}

fn by_ip(keys: &str) -> String {
    limit(&format!("key = \"ip\"\n{keys}"))
}

fn tenant(keys: &str) -> String {
    format!(
        "[identity]\ntenant = \"header:t\"\n[[routes]]\nname = \"r\"\npath = \"/*\"\n\
         upstream = \"echo\"\nlimits = [\"tenants\"]\n[tenants.acme]\nrate = \"5/minute\"\n{keys}"
    )
}

#[test]
fn what_must_be_a_table_is_shown_as_one() {
    each_refused(&[
        (
            upstream("health = \"/healthz\""),
            "`health` must be a table, not a string; write `health = { path = \"/healthz\" }`",
        ),
        (
            upstream("breaker = true"),
            "`breaker` must be a table, not a boolean; write `breaker = { failures = 20 }`",
        ),
        (upstream("ejection = 3"), "not an integer; write `ejection = { failures = 5 }`"),
        (upstream("tls = true"), "not a boolean; write `tls = { ca = \"upstream-ca.pem\" }`"),
        (tenant("budget = \"shared\""), "not a string; write `budget = { mode = \"shared\" }`"),
        (
            format!("server = 5\n{}", with_route("")),
            "`server` must be a table, not an integer; write its keys below `[server]`",
        ),
        (
            "[[upstreams]]\nname = \"api\"\nservers = [\"http://a\"]\n".to_owned()
                + &with_route(""),
            "`upstreams` must be a table, not an array; write `[upstreams.api]`",
        ),
        (
            "[[limits]]\nkey = \"ip\"\n".to_owned() + &with_route(""),
            "`limits` must be a table, not an array; give each a name: `[limits.NAME]`",
        ),
        ("limits = 5\n".to_owned() + &with_route(""), "give each a name: `[limits.NAME]`"),
    ]);
}

#[test]
fn a_source_of_a_cost_is_told_its_table() {
    let rate = |keys: &str| by_ip(&format!("rate = \"10/second\"\n{keys}"));
    each_refused(&[
        (
            rate("cost = \"header:x-cost\""),
            "`cost` must be an integer or a table, not a string; write \
             `cost = { from = \"header:x-cost\" }`",
        ),
        (rate("cost = \"5\""), "not a string; write a number from 1 to 1000000000, or a table"),
        (rate("cost = \"cookie:a\""), "such as `{ from = \"header:x-weight\" }`"),
    ]);
}

#[test]
fn durations_and_sizes_in_other_spellings_are_told_ours() {
    each_refused(&[
        (server("max_body = \"10M\""), "is not a size: `10M`; write `\"10MiB\"`"),
        (server("max_body = \"10 mb\""), "is not a size: `10 mb`; write `\"10MiB\"`"),
        (server("max_body = \"64k\""), "is not a size: `64k`; write `\"64KiB\"`"),
        (server("max_body = \"65536\""), "is not a size: `65536`; write `\"65536B\"`"),
        (server("max_body = \"10 parsecs\""), "write a number of bytes, or a string such as"),
        // Too much is no proposal.
        (server("max_header_bytes = \"10M\""), "write a number of bytes, or a string such as"),
        (server("idle_timeout = \"60\""), "is not a duration: `60`; write `\"60s\"`"),
        (server("idle_timeout = \"1 minute\""), "is not a duration: `1 minute`; write `\"1m\"`"),
        (server("idle_timeout = \"90 Sec\""), "write `\"90s\"`"),
        (server("idle_timeout = \"1.5s\""), "write a number and its unit"),
        (redis("timeout = \"50\""), "is not a duration: `50`; write `\"50ms\"`"),
    ]);
}

#[test]
fn several_urls_of_redis_are_told_all_ways_out() {
    each_refused(&[
        (
            redis("url = [\"redis://a\", \"redis://b\"]"),
            "has several URLs; write one URL, or add `cluster = true` or `sentinel = { … }`",
        ),
        (
            redis("url = \"redis://u:p/w@a\""),
            "or write `username` and `password_env` in place of it",
        ),
    ]);
}

#[test]
fn keys_of_other_programs_are_told_ours() {
    let rate = |keys: &str| by_ip(&format!("rate = \"10/second\"\n{keys}"));
    each_refused(&[
        (
            upstream("read_timeout = \"5s\""),
            "unknown key `read_timeout`; Weir calls it `response_timeout`",
        ),
        (upstream("proxy_read_timeout = \"5s\""), "Weir calls it `response_timeout`"),
        (upstream("max_conns = 5"), "Weir calls it `max_connections`"),
        (upstream("max_fails = 3"), "unknown key `max_fails`; write `ejection = { failures = 3 }`"),
        (upstream("fail_timeout = \"10s\""), "write `ejection = { time = \"10s\" }`"),
        (upstream("outlier_detection = true"), "write `ejection = { failures = 5 }`"),
        (rate("nodelay = true"), "leave it out: what fits into `burst` passes at once"),
        (by_ip("minute = 20"), "unknown key `minute`; write `rate = \"20/minute\"`"),
        (by_ip("minute = \"many\""), "unknown key `minute`; write `rate = \"20/minute\"`"),
        (
            rate("policy = \"redis\""),
            "it goes for all limits: write `kind = \"redis\"` in `[store]`",
        ),
        (rate("limit_by = \"ip\""), "Weir calls it `key`"),
        (server("client_max_body_size = \"1m\""), "Weir calls it `max_body`"),
        // Where the key is not known, neither is what Weir calls it.
        (with_route("[respond]\nread_timeout = \"5s\""), "unknown key `read_timeout`; known here:"),
    ]);
}

#[test]
fn a_table_or_key_that_is_there_twice_is_one_fault_that_shows_the_first() {
    let route = with_route("");
    let text = format!(
        "[guards.per-ip]\nkey = \"ip\"\nwindow = \"10s\"\nthreshold = 5\npenalty = \"5m\"\n\
         [limits.per-ip]\nkey = \"ip\"\nrate = \"1/second\"\n\n# again\n[limits.per-ip]\nkey = \"ip\"\n\
         rate = \"2/second\"\n\n{route}[server]\nworkers = 1\nworkers = 2\n"
    );
    let lines = refused(&text);
    let faults: Vec<&String> = lines.iter().filter(|it| !it.contains("warning")).collect();
    assert_eq!(
        faults,
        [
            "config.toml:11:9: duplicate table `[limits.per-ip]`; put its keys below the first one, or \
             give it another name",
            "config.toml:21:1: duplicate key `workers`; remove one of the two, or give it another name",
        ]
    );
    let shown = crate::config::parse("config.toml", &text).unwrap_err().to_string();
    let labelled = |line: &str| {
        let after = shown.split_once(line).map(|(_, after)| after).unwrap_or_default();
        after.lines().nth(1).is_some_and(|it| it.ends_with("first here"))
    };
    assert!(labelled(" 6 | [limits.per-ip]") || labelled("6 | [limits.per-ip]"), "{shown}");
    assert!(labelled("20 | workers = 1"), "{shown}");
}

#[test]
fn second_tables_are_told_apart_from_entries_of_an_array() {
    let text = format!("{}[routes]\nname = \"b\"\npath = \"/b\"\n", with_route(""));
    assert_eq!(
        refused(&text),
        ["config.toml:5:2: duplicate table `[routes]`; write `[[routes]]` above each"]
    );
    let text = format!(
        "{}name = \"b\"\n[server]\nlisten = [\n  [\"a\"],\n]\n[server]\nworkers = 1\n",
        with_route("")
    );
    let lines = refused(&text);
    assert!(lines[0].contains("5:1: duplicate key `name`; remove one"), "{lines:#?}");
    let second = "10:2: duplicate table `[server]`; put its keys below the first one";
    assert!(lines.iter().any(|it| it.ends_with(second)), "{lines:#?}");
}

#[test]
fn a_colon_in_place_of_an_equals_sign_is_told_the_line() {
    let text = |line: &str| format!("[limits.a]\n{line}\n");
    let fault = |line: &str| refused(&text(line)).join("\n");
    for (line, meant) in [
        ("key: ip", "write `key = \"ip\"`"),
        ("  key : \"ip\" # mine", "write `key = \"ip\"`"),
        ("burst: 5", "write `burst = 5`"),
        ("limits: [\"a\"]", "write `limits = [\"a\"]`"),
        ("limits: per-ip", "write `limits = [\"per-ip\"]`"),
        ("trusted_proxies: 10.0.0.0/8", "write `trusted_proxies = [\"10.0.0.0/8\"]`"),
        ("methods: [GET, POST]", "write `methods = [\"GET\", \"POST\"]`"),
        ("methods: [GET, [POST]]", "write `methods = …`"),
        ("http2: on", "write `http2 = true`"),
        ("enabled: yes", "write `enabled = true`"),
        ("enabled: 'off' # mine", "write `enabled = false`"),
        ("enabled: maybe", "write `enabled = …`"),
        ("burst: many", "write `burst = …`"),
        ("listen: 8080", "write `listen = …`"),
        ("rate: 100", "write `rate = …`"),
        ("rate: 100/second", "write `rate = \"100/second\"`"),
        ("count: [401, 403]", "write `count = …`"),
        ("key:", "write `key = …`"),
        ("password: hunter2", "write `password = …`"),
        ("secret: 'hunter2'", "write `secret = …`"),
        ("key_hash : hunter2", "write `key_hash = …`"),
        ("token: \"hunter2\" # mine", "write `token = …`"),
        ("url: redis://u:hunter2@a", "write `url = …`"),
    ] {
        let found = fault(line);
        assert!(found.contains("config.toml:2:"), "{line}: {found}");
        assert!(found.contains("a key and its value are parted by `=`"), "{line}: {found}");
        assert!(found.ends_with(meant), "{line}: {found}");
        let shown = crate::config::parse("config.toml", &text(line)).unwrap_err().to_string();
        assert!(!found.contains("hunter2") && !shown.contains("hunter2"), "{shown}");
    }
    assert!(fault("key").contains("expected `=`"));
}

/// What the reference has for each key that a line is proposed for.
#[test]
fn proposed_lines_are_of_the_kind_that_the_reference_shows() {
    let reference = include_str!("../../../config/reference.toml");
    let begins = |key: &str, kinds: &[&str]| {
        let values = reference
            .lines()
            .filter_map(|line| line.trim_start_matches('#').strip_prefix(key)?.strip_prefix(" = "));
        let mut values = values.peekable();
        assert!(values.peek().is_some(), "{key}");
        assert!(values.any(|it| kinds.iter().any(|kind| it.starts_with(kind))), "{key}");
    };
    LISTS.iter().for_each(|key| begins(key, &["["]));
    // `http2` may be a table as well.
    BOOLEANS.iter().for_each(|key| begins(key, &["true", "false", "{"]));
    let digits = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    NUMBERS.iter().for_each(|key| begins(key, &digits));
}

#[test]
fn what_may_be_a_secret_is_not_repeated_where_an_equals_sign_is_missing() {
    let fault = |line: &str| refused(&format!("[limits.a]\n{line}\n")).join("\n");
    let api_key = format!("weir_{}", "k".repeat(43));
    let found = fault(&format!("{api_key}: pro"));
    assert!(found.ends_with("write `KEY = …`") && !found.contains(&api_key), "{found}");
    for key in [
        "PASSWORD",
        "passwd",
        "Pass",
        "api_key",
        "apiKey",
        "X-API-Key",
        "private_key",
        "Authorization",
        "credentials",
        "client.Secret",
    ] {
        let found = fault(&format!("{key}: hunter2"));
        assert!(found.ends_with(&format!("write `{key} = …`")), "{found}");
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn the_name_of_a_table_is_not_repeated_if_it_may_be_an_api_key() {
    let api_key = format!("weir_{}", "k".repeat(43));
    let text = format!("[[limits]]\nname = \"{api_key}\"\nkey = \"ip\"\n{}", with_route(""));
    let found = refused(&text).join("\n");
    assert!(found.contains("give each a name: `[limits.NAME]`"), "{found}");
    assert!(!found.contains(&api_key), "{found}");
}
