//! Routes that ask for headers and parameters, and what spellings of these do.

use crate::support::{Config, Upstream, Weir, get, get_with};

/// Version 2 and a debug route beside the one for all, each with three requests.
fn gateway(upstream: &Upstream) -> Weir {
    let config = Config::to(upstream)
        .open()
        .bucket("old", "global", 3)
        .bucket("new", "global", 3)
        .bucket("debug", "global", 3)
        .route("all", "/*", &["old"])
        .route("v2", "/*", &["new"])
        .route_lines("headers = { x-version = [\"2\", \"2.*\"] }")
        .route("debug", "/*", &["debug"])
        .route_lines("query = { debug = \"*\" }");
    Weir::start(&config)
}

/// Which limit has counted the request; a refusal by its status.
fn counted(weir: &Weir, request: String) -> String {
    let response = weir.ask(request);
    match response.status {
        200 => response.one("ratelimit-policy").split('"').nth(1).unwrap().to_owned(),
        status => status.to_string(),
    }
}

#[test]
fn a_request_takes_the_route_that_its_headers_and_query_ask_for() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    for (target, lines, expected) in [
        ("/", "", "old"),
        ("/", "X-Version: 2\r\n", "new"),
        ("/", "x-version: 2.7\r\n", "new"),
        ("/", "X-Version: 3\r\n", "old"),
        ("/?debug=1", "", "debug"),
        ("/?%64ebug=x", "", "debug"),
        ("/?a=b&debug=+", "", "debug"),
        ("/?debug=1", "X-Version: 2\r\n", "new"),
        ("/?debug=", "", "old"),
    ] {
        assert_eq!(counted(&weir, get_with(target, lines)), expected, "{target} {lines}");
    }
}

#[test]
fn what_two_readers_could_read_differently_takes_no_route() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    for (target, lines) in [
        ("/", "X-Version: 2\r\nX-Version: 3\r\n"),
        ("/", "X-Version: 2\r\nX-Version: 2\r\n"),
        ("/?debug=1&debug=2", ""),
        ("/?debug=1&%64ebug=2", ""),
        ("/?debug=1;debug=2", ""),
    ] {
        assert_eq!(counted(&weir, get_with(target, lines)), "400", "{target} {lines}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn upstreams_see_the_header_that_was_asked_for_and_no_look_alike() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    let lines = "X_Version: 2\r\nConnection: x-version\r\nX-Version: 3\r\n";
    assert_eq!(counted(&weir, get_with("/", lines)), "old");
    let seen = upstream.last();
    assert_eq!(seen.one("x-version"), "3");
    assert!(!seen.has("x_version"), "{}", seen.raw);
    // Without the header its look-alike is none either.
    assert_eq!(counted(&weir, get_with("/", "X_Version: 2\r\n")), "old");
    assert!(!upstream.last().has("x_version"));
}

#[test]
fn patterns_say_for_whom_a_limit_is() {
    let upstream = Upstream::ok();
    let limit = |value: &str| {
        format!("key = \"global\"\nrate = \"1/day\"\nwhen = {{ \"header:x-app\" = '{value}' }}")
    };
    let config = Config::to(&upstream)
        .open()
        .add_limit("prefix", &limit("ios-*"))
        .add_limit("suffix", &limit("*.internal"))
        .add_limit("star", &limit(r"\*"))
        .route("all", "/*", &["prefix", "suffix", "star"]);
    let weir = Weir::start(&config);
    for (app, statuses) in [
        ("ios-1", [200, 429]),
        ("web", [200, 200]),
        ("IOS-1", [200, 200]),
        ("a.internal", [200, 429]),
        ("*", [200, 429]),
    ] {
        let ask = |_| weir.ask(get_with("/", &format!("X-App: {app}\r\n"))).status;
        assert_eq!([0, 1].map(ask), statuses, "{app}");
    }
    assert_eq!(weir.ask(get_with("/", "X-App: ios-2\r\n")).status, 429, "one bucket for all");
    assert_eq!(weir.ask(get("/")).status, 200);
}
