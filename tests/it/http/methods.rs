//! Methods: which of them a limit takes for which, and which the gateway answers itself.

use crate::support::{Config, Upstream, Weir, get, get_with};

/// One request an hour, of these methods.
fn limited(upstream: &Upstream, methods: &str) -> Config {
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nwhen = { method = METHODS }";
    Config::to(upstream).limit(&limit.replace("METHODS", methods))
}

#[test]
fn head_counts_as_get_where_a_limit_matches_methods() {
    let upstream = Upstream::ok();
    let head = |weir: &Weir| {
        let mut client = weir.connect();
        client.send(get("/").replace("GET", "HEAD"));
        client.head_response().status
    };
    let weir = Weir::start(&limited(&upstream, "[\"GET\", \"DELETE\"]"));
    assert_eq!((head(&weir), weir.get("/").status, head(&weir)), (200, 429, 429));
    assert_eq!(weir.ask(get("/").replace("GET", "POST")).status, 200);
    // Not the other way round: GET is more than HEAD.
    let weir = Weir::start(&limited(&upstream, "\"HEAD\""));
    assert_eq!((head(&weir), head(&weir), weir.get("/").status), (200, 429, 200));
}

#[test]
fn method_override_header_does_not_evade_a_limit() {
    const OVERRIDES: [&str; 6] = [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X-Method",
        "X_HTTP_Method_Override",
        "X_Method",
    ];
    let upstream = Upstream::ok();
    let sent = |config: &Config, name: &str| {
        let weir = Weir::start(config);
        let request = get_with("/", &format!("{name}: DELETE\r\n")).replace("GET", "POST");
        assert_eq!(weir.ask(request).status, 200);
        upstream.last().has(name)
    };
    for name in OVERRIDES {
        assert!(!sent(&limited(&upstream, "\"DELETE\""), name), "{name} went through");
        assert!(sent(&Config::to(&upstream), name), "{name} was nobody's business");
    }
}

#[test]
fn options_asterisk_is_answered_by_the_gateway() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream));
    let mut client = weir.connect();
    for _ in 0..10 {
        let response = client.ask(get("*").replace("GET", "OPTIONS"));
        assert_eq!((response.status, response.body.len()), (200, 0));
        let allow: Vec<&str> = response.one("allow").split(", ").collect();
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            assert!(allow.contains(&method), "{allow:?}");
        }
    }
    for method in ["GET", "POST", "PROPFIND"] {
        assert_eq!(weir.ask(get("*").replace("GET", method)).status, 400, "{method}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn max_forwards_zero_is_answered_by_the_gateway() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    let ask = |method: &str, lines: &str| {
        weir.ask(get_with("/a", &format!("{lines}\r\n")).replace("GET", method))
    };
    let response = ask("OPTIONS", "Max-Forwards: 0");
    assert_eq!(response.status, 200);
    assert!(response.one("allow").contains("OPTIONS"));
    assert_eq!(ask("TRACE", "Max-Forwards: 0").status, 405, "nobody traces");
    assert_eq!(upstream.heads(), 0);
    // RFC 9110 section 7.6.2: each hop counts down, for these methods.
    let rows = [
        ("OPTIONS", "Max-Forwards: 3", "2"),
        ("OPTIONS", "Max-Forwards: 1", "0"),
        ("GET", "Max-Forwards: 0", "0"),
        ("POST", "Max-Forwards: 3", "3"),
        ("OPTIONS", "Max-Forwards: x", "x"),
        ("OPTIONS", "Max-Forwards: -1", "-1"),
    ];
    for (method, line, left) in rows {
        assert_eq!(ask(method, line).status, 200, "{method} {line}");
        assert_eq!(upstream.last().one("max-forwards"), left, "{method} {line}");
    }
}
