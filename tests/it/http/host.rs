//! The Host of a request: exactly one, well-formed, and the target's before the header's.

use super::gateway;
use crate::support::{Config, Upstream, Weir};

#[test]
fn missing_duplicate_or_malformed_host_is_refused() {
    let (upstream, weir) = gateway();
    let lines = [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nX: y\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: \r\n",
        "Host: a/b\r\n",
        "Host: /\r\n",
        "Host: a b\r\n",
        "Host: a\tb\r\n",
        "Host: http://a\r\n",
        "Host: a:port\r\n",
        "Host: a:-1\r\n",
        "Host: a:+80\r\n",
        "Host: a:99999\r\n",
        "Host: a:65536\r\n",
        "Host: a:80:80\r\n",
        "Host: a:8 0\r\n",
        "Host: user@a\r\n",
        "Host: user:pw@a\r\n",
        "Host: a?b\r\n",
        "Host: a#b\r\n",
        "Host: a\\b\r\n",
        "Host: [::1\r\n",
        "Host: ::1\r\n",
        "Host: [::1]x\r\n",
        "Host: []\r\n",
        "Host: [zz]\r\n",
        "Host: :80\r\n",
        "Host: a<b\r\n",
        "Host: a\"b\r\n",
        "Host: a^b\r\n",
        "Host: a|b\r\n",
        "Host: {a}\r\n",
        "Host: a%\r\n",
        "Host: a%zz\r\n",
        "Host: a, b\r\n",
        "Host: @\r\n",
    ];
    for line in lines {
        let response = weir.ask(format!("GET / HTTP/1.1\r\n{line}\r\n"));
        assert_eq!(response.status, 400, "{line:?}: {}", response.text());
        assert_eq!(response.error(), "bad_request", "{line:?}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn valid_hosts_arrive_as_sent() {
    let (upstream, weir) = gateway();
    for host in [
        "a",
        "a.test",
        "a.test:8080",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:8080",
        "A_b-c.test",
    ] {
        assert_eq!(
            weir.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status,
            200,
            "{host}"
        );
        assert_eq!(upstream.last().one("host"), host);
        assert_eq!(upstream.last().one("x-forwarded-host"), host);
    }
}

#[test]
fn http_1_0_needs_no_host() {
    let (upstream, weir) = gateway();
    assert_eq!(weir.ask("GET / HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn absolute_target_wins_over_host() {
    let (upstream, weir) = gateway();
    let rows = [
        ("http://target.test/x?y=z", "target.test", "/x?y=z"),
        ("http://target.test:8080/x", "target.test:8080", "/x"),
        ("http://target.test", "target.test", "/"),
        ("http://target.test?q=1", "target.test", "/?q=1"),
        ("HTTP://target.test/x", "target.test", "/x"),
    ];
    for (target, host, path) in rows {
        let request = format!("GET {target} HTTP/1.1\r\nHost: other.test\r\n\r\n");
        assert_eq!(weir.ask(request).status, 200, "{target}");
        let request = upstream.last();
        assert_eq!(request.one("host"), host, "{target}");
        assert_eq!(request.target, path, "{target}");
        assert_eq!(request.one("x-forwarded-host"), host, "{target}");
        assert!(!request.raw.contains("other.test"), "{}", request.raw);
    }
}

#[test]
fn an_absolute_target_with_a_bad_authority_is_refused() {
    let (upstream, weir) = gateway();
    let targets = [
        "http://",
        "http:///x",
        "http://user@a/x",
        "http://a:b@c/x",
        "http://a:99999/x",
        "http://[::1/x",
        "ftp://a/x",
        "file:///etc/passwd",
        "javascript:x",
        "http:a/x",
        "://a/x",
        "http//a",
    ];
    for target in targets {
        let response = weir.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(response.status, 400, "{target}: {}", response.text());
    }
    // The header still has to be there, and to be one, whatever the target is.
    for lines in ["", "Host: a\r\nHost: b\r\n", "Host: a b\r\n"] {
        let response = weir.ask(format!("GET http://a/ HTTP/1.1\r\n{lines}\r\n"));
        assert_eq!(response.status, 400, "{lines:?}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn absolute_target_chooses_the_route() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .bucket("none-left", "global", 1)
        .route("closed", "/*", &["none-left"])
        .route_lines("host = \"closed.test\"")
        .route("open", "/*", &[]);
    let weir = Weir::start(&config);
    let closed = "GET http://closed.test/ HTTP/1.1\r\nHost: open.test\r\n\r\n";
    assert_eq!(weir.ask(closed).status, 200);
    assert_eq!(weir.ask(closed).status, 429);
    let open = "GET http://open.test/ HTTP/1.1\r\nHost: closed.test\r\n\r\n";
    assert_eq!(weir.ask(open).status, 200);
}

#[test]
fn a_host_has_labels_and_not_too_many_of_them() {
    let (upstream, weir) = gateway();
    let endless = "a.".repeat(15_000);
    let long = "a".repeat(256);
    for host in [".", ".a", "..", "a..b", "a..", ".:80", &endless, &long] {
        for request in [
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        ] {
            let response = weir.ask(&request);
            let what = &request[..request.len().min(60)];
            assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{what}");
        }
    }
    assert_eq!(upstream.heads(), 0);
    for host in ["a:", "a.b.", "[::1]:", &long[1..]] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(weir.ask(request).status, 200, "{host}");
    }
}

#[test]
fn ip_address_is_one_host_in_every_notation() {
    let upstream = Upstream::ok();
    let routes = "[[routes]]\nname = \"own\"\nhost = \"[::1]\"\npath = \"/*\"\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).open().routes(routes));
    let rows = [
        ("[::1]", 200),
        ("[::1]:8080", 200),
        ("[0:0:0:0:0:0:0:1]", 200),
        ("[0000::0001]:80", 200),
        ("[::0.0.0.1]", 200),
        ("[::2]", 404),
        ("a", 404),
    ];
    for (host, status) in rows {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(weir.ask(request).status, status, "{host}");
    }
}
