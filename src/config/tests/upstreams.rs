//! `[upstreams.NAME]`: what its keys mean, and what they are refused for.

use std::time::Duration;

use super::faults::{each_refused, each_warned};
use super::good;
use crate::config::settings::{Balance, Ejection, Upstream};
use crate::limit::Source;

/// A route to one upstream with one server, and more keys of that.
fn upstream(keys: &str) -> String {
    with_servers("[\"http://a\"]", keys)
}

fn with_servers(servers: &str, keys: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[identity]\nuser = \"header:u\"\n\
         [upstreams.u]\nservers = {servers}\n{keys}"
    )
}

fn means(text: &str) -> Upstream {
    let loaded = good(text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings.upstreams[0].clone()
}

#[test]
fn a_server_is_an_address_or_a_table_with_a_weight() {
    let servers =
        "[{ url = \"http://a:1\", weight = 3 }, \"http://b:1\", { url = \"http://c:1\" }]";
    let weights: Vec<u32> =
        means(&with_servers(servers, "")).servers.iter().map(|it| it.weight).collect();
    assert_eq!(weights, [3, 1, 1]);
    let one = |server: &str| with_servers(&format!("[{server}]"), "");
    each_refused(&[
        (one("{ weight = 3 }"), "8:12: an entry of `servers` has no `url`; add a line such as"),
        (
            one("{ url = \"http://a\", weight = 0 }"),
            "write a number from 1 to 1000, or take the server out of `servers` if it is to get no",
        ),
        (one("{ url = \"http://a\", weight = 1001 }"), "write a number from 1 to 1000"),
        (one("{ url = \"a\" }"), "`url` has no scheme; write `\"http://a\"`"),
        (one("{ url = \"http://a\", wight = 2 }"), "unknown key `wight`; did you mean `weight`?"),
        (one("\"http://a\", { url = \"http://A:80\" }"), "repeats an earlier one"),
    ]);
}

#[test]
fn requests_may_be_hashed_by_what_limits_count_by() {
    let balance = |text: &str| means(&upstream(&format!("balance = \"{text}\""))).balance;
    assert_eq!(balance("round_robin"), Balance::RoundRobin);
    assert_eq!(balance("hash:ip"), Balance::Hash(Source::Ip));
    assert_eq!(balance("hash:user"), Balance::Hash(Source::User));
    assert_eq!(balance("hash:cookie:session"), Balance::Hash(Source::Cookie("session".into())));
    let balance = |text: &str| upstream(&format!("balance = \"{text}\""));
    each_refused(&[
        (
            balance("hash"),
            "does not say what requests are hashed by; write one such as `\"hash:ip\"`",
        ),
        (balance("hash:"), "`balance` cannot be"),
        (balance("hash:usr"), "did you mean `hash:user`?"),
        (balance("hash:header"), "does not say which header"),
        (balance("hash:tenant"), "`[identity]` does not say where it is found"),
        (balance("hash:jwt:sub"), "nothing says which tokens to believe"),
        (balance("hash:global"), "all requests would go to one server"),
        (balance("ip_hash"), "`balance` cannot be `ip_hash`; did you mean `hash:ip`?"),
        (balance("least_conn"), "did you mean `least_requests`?"),
        (balance("sticky"), "write `round_robin`, `least_requests`, `random` or `hash:ip`"),
        (balance("least_request"), "did you mean `least_requests`?"),
    ]);
}

#[test]
fn ejection_has_defaults_and_bounds() {
    let ejection = |keys: &str| means(&upstream(&format!("ejection = {{ {keys} }}"))).ejection;
    assert_eq!(ejection(""), Ejection::default());
    let (time, max_time) = (Duration::from_secs(2), Duration::from_secs(60));
    let expected = Ejection { failures: 3, time, max_time, max_percent: 20 };
    let keys = "failures = 3, time = \"2s\", max_time = \"1m\", max_percent = 20";
    assert_eq!(ejection(keys), expected);
    assert_eq!(ejection("time = \"1m\"").max_time, Duration::from_secs(60), "no less than `time`");
    let ejection = |keys: &str| upstream(&format!("ejection = {{ {keys} }}"));
    each_refused(&[
        (ejection("time = \"2s\", max_time = \"1s\""), "`max_time` is less than `time`"),
        (ejection("max_percent = 101"), "write a number from 0 to 100"),
        (ejection("failure = 1"), "did you mean `failures`?"),
        (upstream("ejection = 5"), "must be a table, not an integer"),
    ]);
}

#[test]
fn health_has_defaults_and_takes_statuses_and_ranges() {
    let health = |keys: &str| means(&upstream(&format!("health = {{ {keys} }}"))).health.unwrap();
    assert_eq!(means(&upstream("")).health, None);
    let usual = health("path = \"/healthz\"");
    assert_eq!((usual.healthy, usual.unhealthy), (2, 3));
    assert_eq!((usual.interval, usual.timeout), (Duration::from_secs(5), Duration::from_secs(1)));
    assert_eq!((usual.status, usual.host), (vec![200..=399], None));
    let fast = health("path = \"/\", interval = \"200ms\"");
    assert_eq!(fast.timeout, Duration::from_millis(200), "no longer than the interval");
    let some = health("path = \"/a?b=c\", status = [200, \"300-304\"], host = \"api\"");
    assert_eq!(
        (some.path.to_string().as_str(), some.status),
        ("/a?b=c", vec![200..=200, 300..=304])
    );
    let health = |keys: &str| upstream(&format!("health = {{ {keys} }}"));
    let status = |status: &str| health(&format!("path = \"/\", status = {status}"));
    each_refused(&[
        (health(""), "`health` of `[upstreams.u]` has no `path`; add a line such as"),
        (
            health("path = \"healthz\""),
            "is not a path: `healthz`; write one that begins with a slash",
        ),
        (health("path = \"/a b\""), "is not a path: `/a b`"),
        (health("path = \"/\", interval = \"1s\", timeout = \"2s\""), "is more than `interval`"),
        (health("path = \"/\", healthy = 0"), "write a number from 1 to 1000"),
        (health("path = \"/\", host = \"a b\""), "`host` cannot be `a b`"),
        (health("path = \"/\", unhealhty = 2"), "did you mean `unhealthy`?"),
        (status("[]"), "is empty: no server would ever be healthy"),
        (status("\"399-200\""), "is not a range of statuses: `399-200`; write a status, a range"),
        (status("\"2xx\""), "is not a range of statuses: `2xx`"),
        (status("600"), "write a number from 100 to 599"),
    ]);
}

#[test]
fn connections_and_breakers_have_their_bounds() {
    let usual = means(&upstream(""));
    assert_eq!((usual.max_connections, usual.max_pending, usual.breaker), (0, 1024, None));
    assert_eq!(usual.max_age, Some(Duration::from_secs(3600)));
    assert_eq!(means(&upstream("max_age = \"0s\"")).max_age, None);
    let breaker = means(&upstream("breaker = {}")).breaker.unwrap();
    assert_eq!((breaker.failures, breaker.open), (20, Duration::from_secs(5)));
    each_refused(&[
        (upstream("breaker = { failures = 0 }"), "write a number from 1 to"),
        (upstream("breaker = { open = \"0s\" }"), "is out of range: `0s`"),
        (upstream("breaker = { for = \"1s\" }"), "unknown key `for`"),
        (upstream("resolve_interval = \"0s\""), "is out of range: `0s`"),
        (upstream("max_connections = -1"), "is out of range: `-1`"),
    ]);
    each_warned(&[(upstream("max_pending = 5"), "`max_pending` has no effect: servers may have")]);
    assert_eq!(means(&upstream("http2 = true\nmax_pending = 5")).max_pending, 5);
}
