//! Keys of other programs: what is proposed in their place can be pasted.

use super::{good, limit, refused, with_route};

fn upstream(keys: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
         servers = [\"http://a\"]\n{keys}"
    )
}

fn by_ip(keys: &str) -> String {
    limit(&format!("key = \"ip\"\n{keys}"))
}

/// What each fault says behind the key.
fn helps(text: &str) -> Vec<String> {
    let help = |line: &String| line.split_once("; ").map(|(_, help)| help.to_owned());
    refused(text).iter().filter_map(help).collect()
}

/// The line that the first fault says to write.
fn proposal(text: &str) -> String {
    let help = helps(text).swap_remove(0);
    help.trim_start_matches("write `").trim_end_matches('`').to_owned()
}

#[test]
fn numbers_and_times_that_weir_refuses_are_not_proposed() {
    for (theirs, ours) in [
        ("max_fails = 1000", "ejection = { failures = 1000 }"),
        ("max_fails = 0", "ejection = { failures = 0 }"),
        ("max_fails = 0x10", "ejection = { failures = 16 }"),
        ("max_fails = 1_0", "ejection = { failures = 10 }"),
        ("max_fails = 1001", "ejection = { failures = 5 }"),
        ("max_fails = -1", "ejection = { failures = 5 }"),
        ("fail_timeout = \"0s\"", "ejection = { time = \"10s\" }"),
        ("fail_timeout = \"400d\"", "ejection = { time = \"10s\" }"),
        ("fail_timeout = true", "ejection = { time = \"10s\" }"),
        ("fail_timeout = 30", "ejection = { time = \"30s\" }"),
        ("fail_timeout = \"1 minute\"", "ejection = { time = \"1m\" }"),
        ("fail_timeout = \"1m30s\"", "ejection = { time = \"1m30s\" }"),
        ("outlier_detection = true", "ejection = { failures = 5 }"),
        ("circuit_breakers = true", "breaker = { failures = 20 }"),
        ("circuit_breakers = { max_retries = 3 }", "breaker = { failures = 20 }"),
    ] {
        assert_eq!(proposal(&upstream(theirs)), ours, "{theirs}");
        good(&upstream(ours));
    }
    for (theirs, ours) in [
        ("minute = 0", "rate = \"20/minute\""),
        ("hour = 1_000", "rate = \"1000/hour\""),
        ("second = 18446744073709551615", "rate = \"20/second\""),
    ] {
        assert_eq!(proposal(&by_ip(theirs)), ours, "{theirs}");
        good(&by_ip(ours));
    }
}

#[test]
fn several_keys_that_are_one_of_weirs_are_told_one_line() {
    let all = "write `ejection = { failures = 3, time = \"30s\" }`";
    let (fails, timeout) = ("max_fails = 3\n", "fail_timeout = \"30s\"\n");
    assert_eq!(
        helps(&upstream(&[fails, timeout].concat())),
        [all, "remove it: the line for `max_fails` says it"]
    );
    let text = upstream(&[timeout, fails].concat());
    assert_eq!(helps(&text), [all, "remove it: the line for `fail_timeout` says it"]);
    good(&upstream(&proposal(&text)));
    assert_eq!(
        helps(&upstream("circuit_breakers = true\ncircuit_breaker = true")),
        [
            "write `breaker = { failures = 20 }`",
            "remove it: the line for `circuit_breakers` says it"
        ]
    );
}

#[test]
fn a_table_that_is_there_already_is_told_the_key_it_lacks() {
    let table = "ejection = { max_percent = 50 }\n";
    let help = |keys: &str| helps(&upstream(keys)).join("\n");
    assert_eq!(help(&format!("{table}max_fails = 3")), "write `failures = 3` in `ejection`");
    assert_eq!(
        help(&format!("{table}fail_timeout = \"20s\"\nmax_fails = 3")),
        "write `time = \"20s\"` in `ejection`\nwrite `failures = 3` in `ejection`"
    );
    assert_eq!(
        help("ejection.failures = 9\nmax_fails = 3"),
        "remove it: `ejection` has `failures`"
    );
    assert_eq!(
        help("breaker = { open = \"1s\" }\ncircuit_breaker = true"),
        "write `failures = 20` in `breaker`"
    );
}

#[test]
fn a_second_rate_is_told_to_be_that_of_another_limit() {
    let second = "there can be one `rate` only: remove it, or give another limit \
                  `rate = \"100/hour\"`";
    assert_eq!(helps(&by_ip("second = 5\nhour = 100")), ["write `rate = \"5/second\"`", second]);
    assert_eq!(helps(&by_ip("hour = 100\nrate = \"5/second\"")), [second]);
}

#[test]
fn a_timeout_is_told_the_one_that_it_means_and_not_one_of_a_like_name() {
    let server = |keys: &str| with_route(&format!("[server]\n{keys}"));
    for theirs in ["send_timeout", "read_timeout", "write_timeout", "client_body_timeout"] {
        assert_eq!(
            helps(&server(&format!("{theirs} = \"5s\""))),
            ["Weir calls it `request_timeout`"],
            "{theirs}"
        );
    }
    for theirs in ["send_timeout", "write_timeout", "proxy_send_timeout"] {
        let found = helps(&upstream(&format!("{theirs} = \"5s\""))).join("\n");
        assert!(found.starts_with("known here:"), "{theirs}: {found}");
    }
}

#[test]
fn bounds_of_connections_are_told_the_keys_that_have_them() {
    let both = "write `max_connections = 100` and `max_pending = 50` in its place";
    let bounds = "{ max_connections = 100, max_pending_requests = 50 }";
    for (keys, help) in [
        (format!("circuit_breakers = {bounds}"), both),
        (format!("circuit_breakers.thresholds = [{bounds}]"), both),
        (
            "circuit_breakers = { max_connections = 7 }".to_owned(),
            "write `max_connections = 7` in its place",
        ),
        (
            format!("max_connections = 5\ncircuit_breakers = {bounds}"),
            "write `max_pending = 50` in its place",
        ),
        (
            format!("max_connections = 5\nmax_pending = 5\ncircuit_breakers = {bounds}"),
            "remove it: `max_connections` is there",
        ),
        (
            "circuit_breakers = { max_connections = 9999999 }".to_owned(),
            "write `max_connections` in its place",
        ),
    ] {
        assert_eq!(helps(&upstream(&keys)), [help], "{keys}");
    }
    good(&upstream("max_connections = 100\nmax_pending = 50"));
}

#[test]
fn a_key_whose_own_is_there_already_is_told_to_go() {
    let there = |key: &str| format!("remove it: Weir calls it `{key}`, which is there");
    for (text, ours) in [
        (upstream("max_connections = 5\nmax_conns = 5"), "max_connections"),
        (upstream("retries = 1\nnum_retries = 1"), "retries"),
        (by_ip("rate = \"5/second\"\nlimit_by = \"ip\""), "key"),
        (
            with_route("[server]\nheader_timeout = \"5s\"\nclient_header_timeout = \"5s\""),
            "header_timeout",
        ),
    ] {
        assert_eq!(helps(&text), [there(ours)], "{text}");
    }
    let policy = |policy: &str, store: &str| {
        helps(&format!("{store}{}", by_ip(&format!("rate = \"5/second\"\npolicy = \"{policy}\""))))
    };
    let redis = "[store]\nkind = \"redis\"\nurl = \"redis://a\"\n";
    for (theirs, store, kind) in [
        ("redis", redis, "redis"),
        ("redis", &redis.replace("\"redis\"", "\"hybrid\""), "hybrid"),
        ("local", "", "memory"),
        ("local", "[store]\nkind = \"memory\"\n", "memory"),
    ] {
        let help = format!("remove it: the store of all limits is `{kind}` already");
        assert_eq!(policy(theirs, store), [help]);
    }
    let other = "it goes for all limits: write `kind = \"memory\"` in `[store]`";
    assert_eq!(policy("local", redis), [other]);
}

#[test]
fn a_policy_is_told_the_store_that_it_means() {
    for (policy, kind) in [("\"redis\"", "redis"), ("\"cluster\"", "redis"), ("5", "redis")] {
        let text = by_ip(&format!("rate = \"5/second\"\npolicy = {policy}"));
        let expected = format!("it goes for all limits: write `kind = \"{kind}\"` in `[store]`");
        assert_eq!(helps(&text), [expected]);
    }
    good(&with_route("[store]\nkind = \"memory\""));
    good(&with_route("[store]\nkind = \"redis\"\nurl = \"redis://a\""));
}
