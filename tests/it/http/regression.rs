//! Bugs of the past in responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::upstream::ok;
use crate::support::{Config, Response, Upstream, Weir, get, get_with};

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn number(response: &Response, name: &str) -> u64 {
    response.one(name).parse().unwrap()
}

/// Asks a fixed window at all parts of a second, since it is rounding that this is about.
fn ask_fixed_window(period: u64, check: impl Fn(&Response, f64, f64)) {
    let upstream = Upstream::ok();
    let headers = "[respond]\nheaders = [\"x\", \"legacy\"]";
    let limit = format!("key = \"ip\"\nalgorithm = \"fixed_window\"\nrate = \"6/{period}s\"");
    let weir = Weir::start(&Config::to(&upstream).limit(&limit).also(headers));
    let mut client = weir.connect();
    for _ in 0..12 {
        let before = now();
        let response = client.ask(get("/"));
        check(&response, before, now());
        // Moves on to another part of the second.
        std::thread::sleep(Duration::from_millis(73));
    }
}

/// The end of the window that an instant lies in.
fn end(at: f64, period: u64) -> u64 {
    (at as u64 / period + 1) * period
}

#[test]
fn a_fixed_window_resets_at_its_end() {
    for period in [7, 60] {
        ask_fixed_window(period, |response, before, after| {
            let (reset, left) =
                (number(response, "x-ratelimit-reset"), number(response, "ratelimit-reset"));
            let ends = end(before, period)..=end(after, period);
            if response.status == 200 {
                assert!(ends.contains(&reset), "{reset} between {before} and {after}");
            } else {
                assert_eq!(number(response, "retry-after"), left);
            }
            // Whole seconds from now, rounded up.
            let earliest = (*ends.start() as f64 - after).ceil() as u64;
            let latest = (*ends.end() as f64 - before).ceil() as u64;
            assert!((earliest..=latest).contains(&left), "{left} s at {before} for {reset}");
        });
    }
}

#[test]
fn a_refused_fixed_window_resets_at_its_end_as_well() {
    for period in [7, 60] {
        ask_fixed_window(period, |response, before, after| {
            let reset = number(response, "x-ratelimit-reset");
            let ends = end(before, period)..=end(after, period);
            assert!(ends.contains(&reset), "{}: {reset} at {before}", response.status);
        });
    }
}

#[test]
fn response_header_set_by_a_route_appears_once() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let names =
        ["cache-control", "content-type", "retry-after", "proxy-status", "x-ratelimit-limit"];
    for name in names {
        for (edit, expected) in [
            (format!("set = {{ {name} = \"7\" }}"), &["7"][..]),
            (format!("remove = [\"{name}\"]"), &[]),
        ] {
            let routes = format!(
                "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"per-ip\"]\nresponse_headers = {{ {edit} }}"
            );
            let weir = Weir::start(&Config::to(&upstream).limit(limit).routes(&routes));
            for status in [200, 429] {
                let response = weir.get("/");
                assert_eq!(
                    (response.status, response.all(name)),
                    (status, expected.to_vec()),
                    "{edit}"
                );
            }
        }
    }
}

#[test]
fn a_bucket_resets_no_later_than_it_is_full() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"10/second\"\nburst = 10";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = weir.connect();
    for n in 0..12 {
        let response = client.ask(get("/"));
        let after = now();
        let spent = (10 - number(&response, "x-ratelimit-remaining")) as f64;
        let reset = number(&response, "x-ratelimit-reset") as f64;
        assert!(reset < after + spent / 10.0 + 1.0, "request {n}: {reset} at {after}");
        // Moves on to another part of the second.
        std::thread::sleep(Duration::from_millis(37));
    }
}

#[test]
fn response_without_a_body_has_no_length() {
    let rows =
        ["", "Content-Length: 0\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"];
    for lines in rows {
        let upstream = Upstream::replying(move |request| match request.target.as_str() {
            "/204" => format!("HTTP/1.1 204 No Content\r\n{lines}\r\n").into_bytes(),
            _ => ok("whole"),
        });
        let weir = Weir::start(&Config::to(&upstream).open());
        let mut client = weir.connect();
        let response = client.ask(get("/204"));
        assert_eq!(response.status, 204, "{lines}");
        for name in ["content-length", "transfer-encoding"] {
            assert!(!response.has(name), "{lines}: {response:?}");
        }
        assert_eq!(client.ask(get("/")).text(), "whole", "after {lines}");
    }
}

#[test]
fn only_another_version_is_an_unsupported_version() {
    let weir = Weir::start(&Config::echo().open());
    let rows = [
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/3.0", 505),
        ("GET / HTTP/0.9", 505),
        ("PRI * HTTP/2.0", 505),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/11", 400),
        ("GET / HTTP/1.11", 400),
        ("GET / HTTP/1.1 x", 400),
        ("GET / HTTP/a.b", 400),
        ("GET / http/2.0", 400),
        ("GET / FTP/2.0", 400),
        ("GET /a b HTTP/1.1", 400),
        ("GET /a b HTTP/2.0", 400),
        ("GET / x", 400),
        ("GET /", 400),
    ];
    for (line, status) in rows {
        let response = weir.ask(format!("{line}\r\nHost: a\r\n\r\n"));
        assert_eq!((response.status, response.error()), (status, "bad_request".into()), "{line}");
    }
}

#[test]
fn refused_grpc_request_gets_a_grpc_status() {
    let upstream = Upstream::ok();
    let weir =
        Weir::start(&Config::to(&upstream).limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1"));
    let call = get_with("/", "Content-Type: application/grpc\r\n");
    assert!(weir.ask(&call).all("grpc-status").is_empty());
    assert_eq!(weir.ask(&call).one("grpc-status"), "8");
    assert!(weir.get("/").all("grpc-status").is_empty());
}

#[test]
fn via_names_the_received_version() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    for version in ["1.0", "1.1"] {
        weir.ask(format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let via = upstream.last().one("via").to_owned();
        assert!(via.starts_with(&format!("{version} weir-")), "{via}");
    }
}
