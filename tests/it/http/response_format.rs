//! The exact form of the headers Weir adds to responses, and of its own responses.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::fields::{self, Bare, Item};
use crate::support::{Config, Response, Upstream, Weir, get, get_with, post};

const SLOW: &str = "key = \"ip\"\nrate = \"5/10s\"\nburst = 5";

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn named<'a>(list: &'a [Item], name: &str) -> &'a Item {
    list.iter().find(|it| it.name() == name).unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

fn number(response: &Response, name: &str) -> u64 {
    let value = response.one(name);
    assert!(value.bytes().all(|b| b.is_ascii_digit()), "{name}: {value}");
    value.parse().unwrap()
}

#[test]
fn admitted_response_states_what_is_left() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).limit(SLOW));
    let mut client = weir.connect();
    for left in (0..5).rev() {
        let before = unix_now();
        let response = client.ask(get("/"));
        let after = unix_now();
        assert_eq!(response.status, 200);
        assert_eq!(response.all("ratelimit-policy"), ["\"per-ip\";q=5;w=10"]);
        let limits = fields::list(&response.all("ratelimit"));
        assert_eq!(limits.len(), 1);
        let limit = named(&limits, "per-ip");
        assert_eq!(limit.integer("r"), left);
        assert_eq!(limit.integer("t"), 2, "one token every two seconds");
        assert_eq!(response.one("x-ratelimit-limit"), "5");
        assert_eq!(number(&response, "x-ratelimit-remaining"), left as u64);
        // Full again once what was spent is refilled.
        let full = 2 * (5 - left as u64);
        let reset = number(&response, "x-ratelimit-reset");
        assert!((before + full - 1..=after + full + 1).contains(&reset), "{reset}, full in {full}");
        for absent in ["retry-after", "ratelimit-limit", "proxy-status", "cache-control"] {
            assert!(!response.has(absent), "{absent} on a 200");
        }
    }
}

#[test]
fn refusal_has_the_documented_form() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).limit(SLOW));
    let mut client = weir.connect();
    for _ in 0..5 {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    let before = unix_now();
    let response = client.ask(get("/"));
    let after = unix_now();
    assert_eq!(response.status, 429);
    let retry = number(&response, "retry-after");
    assert!((1..=2).contains(&retry), "{retry}");
    assert_eq!(response.all("ratelimit-policy"), ["\"per-ip\";q=5;w=10"]);
    let limits = fields::list(&response.all("ratelimit"));
    let limit = named(&limits, "per-ip");
    assert_eq!(limit.integer("r"), 0);
    assert!((1..=retry as i64).contains(&limit.integer("t")));
    assert_eq!(response.one("x-ratelimit-limit"), "5");
    assert_eq!(response.one("x-ratelimit-remaining"), "0");
    let reset = number(&response, "x-ratelimit-reset");
    assert!((before + retry..=after + retry + 1).contains(&reset), "{reset}");
    assert_eq!(response.one("cache-control"), "no-store");
    assert_eq!(
        response.one("proxy-status"),
        "weir; error=http_request_error; status-code=429; details=\"per-ip token_bucket exceeded\""
    );
    let status = fields::list(&response.all("proxy-status"));
    assert_eq!(status[0].bare, Bare::Token("weir".into()));
    assert_eq!(status[0].integer("status-code"), 429);
    assert_eq!(response.one("content-type"), "application/problem+json");
    let problem = response.json();
    let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(problem["type"], kind);
    assert_eq!(problem["title"], "Too Many Requests");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["error"], "rate_limit_exceeded");
    let description = problem["error_description"].as_str().unwrap();
    let expected = format!("Too many requests. Please retry after {retry} second");
    assert!(description.starts_with(&expected), "{description}");
    assert_eq!(problem["retry_after"], retry);
    let millis = problem["retry_after_ms"].as_u64().unwrap();
    assert_eq!(millis.div_ceil(1000), retry);
    assert_eq!(problem["limit"], "per-ip");
    assert_eq!(problem["violated-policies"], serde_json::json!(["per-ip"]));
    assert!(response.has("date"), "an origin with a clock sends a Date");
    assert!(!client.ask(get("/")).truncated, "the connection goes on");
}

#[test]
fn a_refused_head_has_the_headers_and_no_body() {
    let upstream = Upstream::ok();
    let weir =
        Weir::start(&Config::to(&upstream).limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1"));
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    client.send(get("/").replace("GET", "HEAD"));
    let response = client.head_response();
    assert_eq!((response.status, response.one("x-ratelimit-remaining")), (429, "0"));
    assert_eq!(number(&response, "retry-after"), 3600);
    assert_eq!(client.ask(get("/")).status, 429, "no body was in the way");
}

#[test]
fn every_enforced_limit_is_a_member() {
    let upstream = Upstream::ok();
    let hourly =
        |key: &str, burst: u32| format!("key = \"{key}\"\nrate = \"1/hour\"\nburst = {burst}\n");
    let window = "key = \"global\"\nalgorithm = \"sliding_window\"\nrate = \"600/minute\"";
    let config = Config::to(&upstream)
        .open()
        .add_limit("user", &hourly("header:x-user", 2))
        .add_limit("window", window)
        .add_limit("hidden", &(hourly("global", 4) + "response_headers = false"))
        .route("all", "/*", &["user", "window", "hidden"]);
    let weir = Weir::start(&config);
    let ask = |user: &str| weir.ask(get_with("/", &format!("X-User: {user}\r\n")));
    let response = ask("a");
    let policies = fields::list(&response.all("ratelimit-policy"));
    let limits = fields::list(&response.all("ratelimit"));
    let names: Vec<_> = policies.iter().map(Item::name).collect();
    assert_eq!(names, ["user", "window"], "in the order of the route, without the hidden one");
    assert_eq!(limits.iter().map(Item::name).collect::<Vec<_>>(), names);
    assert_eq!(
        (named(&policies, "user").integer("q"), named(&policies, "user").integer("w")),
        (2, 7200)
    );
    assert_eq!(
        (named(&policies, "window").integer("q"), named(&policies, "window").integer("w")),
        (600, 60)
    );
    assert_eq!(named(&limits, "user").integer("r"), 1);
    assert_eq!(named(&limits, "window").integer("r"), 599);
    // X- describes the one closest to refusing: half of the user's is left.
    assert_eq!(response.one("x-ratelimit-limit"), "2");
    assert_eq!(response.one("x-ratelimit-remaining"), "1");
    ask("a");
    let refused = ask("a");
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("user")));
    assert_eq!(fields::list(&refused.all("ratelimit-policy")).len(), 2);
    // The hidden limit is hidden, not absent.
    ask("b");
    ask("b");
    let refused = ask("c");
    assert_eq!(refused.status, 429);
    let shown = format!("{:?}{:?}", refused.all("ratelimit"), refused.all("ratelimit-policy"));
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn a_hidden_limit_alone_adds_no_headers() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nresponse_headers = false";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let response = weir.get("/");
    let names = [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    for name in names {
        assert!(!response.has(name), "{name}");
    }
    let refused = weir.get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.has("retry-after"));
    for name in names {
        assert!(!refused.has(name), "{name}");
    }
}

#[test]
fn header_styles_can_be_chosen() {
    let upstream = Upstream::ok();
    let draft = ["ratelimit", "ratelimit-policy"];
    let x = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let legacy = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    for mask in 0..8 {
        let chosen =
            [(1, "draft"), (2, "x"), (4, "legacy")].into_iter().filter(|(bit, _)| mask & bit != 0);
        let chosen: Vec<_> = chosen.map(|(_, name)| format!("\"{name}\"")).collect();
        let respond = format!("[respond]\nheaders = [{}]", chosen.join(", "));
        let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
        let weir = Weir::start(&Config::to(&upstream).limit(limit).also(&respond));
        for status in [200, 429] {
            let response = weir.get("/");
            assert_eq!(response.status, status);
            for (bit, names) in [(1, &draft[..]), (2, &x), (4, &legacy)] {
                for name in names {
                    assert_eq!(response.has(name), mask & bit != 0, "{name} of {respond}");
                }
            }
            if mask & 4 != 0 {
                assert_eq!(
                    (response.one("ratelimit-limit"), response.one("ratelimit-remaining")),
                    ("1", "0")
                );
                let reset = number(&response, "ratelimit-reset");
                assert!((3598..=3600).contains(&reset), "seconds from now: {reset}");
            }
        }
    }
}

#[test]
fn a_list_from_upstream_is_added_to_or_dropped() {
    let rows: &[(&str, Option<&str>)] = &[
        ("RateLimit: \"up\";r=3;t=4\r\nRateLimit-Policy: \"up\";q=10;w=60", Some("up")),
        (
            "RateLimit: \"a\";r=1, \"up\";r=3;t=4\r\nRateLimit-Policy: \"a\";q=1, \"up\";q=10;pk=:YQ==:",
            Some("up"),
        ),
        (
            "RateLimit: \"a\";r=1\r\nRateLimit: \"up\";r=3\r\nRateLimit-Policy: \"up\";q=10",
            Some("up"),
        ),
        ("RateLimit: limit=10, remaining=5, reset=3\r\nRateLimit-Policy: 10;w=", None),
        ("RateLimit: \"open;r=3\r\nRateLimit-Policy: \"open;q=3", None),
        ("RateLimit: \"up\";r=3,\r\nRateLimit-Policy: \"up\";q=3,", None),
        ("RateLimit: \"caf\u{e9}\";r=3\r\nRateLimit-Policy: \"caf\u{e9}\";q=3", None),
        ("RateLimit:\r\nRateLimit-Policy:", None),
    ];
    for (lines, kept) in rows {
        let upstream = Upstream::replying(move |_| {
            format!("HTTP/1.1 200 OK\r\n{lines}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
        let weir = Weir::start(&Config::to(&upstream).limit(SLOW));
        let response = weir.get("/");
        for name in ["ratelimit", "ratelimit-policy"] {
            let list = fields::list(&response.all(name));
            assert_eq!(list.last().unwrap().name(), "per-ip", "{lines:?}");
            let names: Vec<_> = list.iter().map(Item::name).collect();
            match kept {
                Some(kept) => assert!(names.contains(kept), "{lines:?}: {names:?}"),
                None => assert_eq!(names, ["per-ip"], "{lines:?}"),
            }
        }
    }
}

#[test]
fn upstream_x_headers_do_not_duplicate_ours() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nX-RateLimit-Limit: 99\r\nX-RateLimit-Remaining: 98\r\n\
          X-RateLimit-Reset: 1\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    });
    let weir = Weir::start(&Config::to(&upstream).limit(SLOW));
    let response = weir.get("/");
    assert_eq!(response.one("x-ratelimit-limit"), "5");
    assert_eq!(response.one("x-ratelimit-remaining"), "4");
    assert_eq!(response.all("x-ratelimit-reset").len(), 1);
    let open = Weir::start(&Config::to(&upstream).open());
    assert_eq!(open.get("/").one("x-ratelimit-limit"), "99", "without a limit they are upstream's");
}

#[test]
fn two_refusing_limits_are_both_named_and_the_longer_wait_is_stated() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .add_limit("short", "key = \"ip\"\nrate = \"1/minute\"\nburst = 1")
        .add_limit("long", "key = \"ip\"\nrate = \"1/hour\"\nburst = 1")
        .route("all", "/*", &["short", "long"]);
    let weir = Weir::start(&config);
    assert_eq!(weir.get("/").status, 200);
    let response = weir.get("/");
    assert_eq!(response.status, 429);
    assert!((3598..=3600).contains(&number(&response, "retry-after")));
    let problem = response.json();
    let mut violated: Vec<_> =
        problem["violated-policies"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    violated.sort_unstable();
    assert_eq!(violated, ["long", "short"]);
    let limits = fields::list(&response.all("ratelimit"));
    assert!((58..=60).contains(&named(&limits, "short").integer("t")));
}

#[test]
fn gateway_errors_are_problem_documents_and_affect_no_other_request() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).limit(SLOW));
    let response = weir.ask("GET / HTTP/1.1\r\n\r\n");
    assert_eq!((response.status, response.error()), (400, "bad_request".into()));
    assert!(response.json()["title"].is_string());
    assert_eq!(weir.ask(post("/", "x")).one("x-ratelimit-remaining"), "4", "the bad one was free");
}

#[test]
fn the_echo_upstream_answers_with_the_request() {
    let weir = Weir::start(&Config::echo());
    let response = weir.ask(get_with("/some/path?q=1", "X-Mine: yes\r\n"));
    assert_eq!(response.status, 200);
    let echoed = response.json();
    assert_eq!(echoed["method"], "GET");
    assert_eq!((&echoed["path"], &echoed["query"]), (&"/some/path".into(), &"q=1".into()));
    assert_eq!(echoed["headers"]["x-mine"], "yes");
    assert_eq!(response.one("x-ratelimit-remaining"), "4");
    let posted = weir.ask(post("/p", "the body"));
    assert_eq!(posted.status, 200);
    for _ in 0..3 {
        assert_eq!(weir.get("/").status, 200);
    }
    assert_eq!(weir.get("/").status, 429, "the sixth of a burst of five");
}

#[test]
fn hidden_refusal_does_not_show_in_another_limits_numbers() {
    let upstream = Upstream::ok();
    let hidden = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nresponse_headers = false";
    let config = Config::to(&upstream)
        .open()
        .add_limit("hidden", hidden)
        .bucket("shown", "ip", 100)
        .route("all", "/*", &["shown", "hidden"]);
    let headers = "[respond]\nheaders = [\"draft\", \"x\", \"legacy\"]";
    let weir = Weir::start(&config.also(headers));
    assert_eq!(weir.get("/").one("x-ratelimit-limit"), "100");
    let refused = weir.get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.has("retry-after"));
    for name in ["limit", "remaining", "reset"] {
        assert!(!refused.has(&format!("x-ratelimit-{name}")), "{refused:?}");
        assert!(!refused.has(&format!("ratelimit-{name}")), "{refused:?}");
    }
}
