//! What upstream and client see of each other's headers.

use crate::support::{Config, Upstream, Weir, get, get_with, post};

fn gateway(more: &str) -> (Upstream, Weir) {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().also(more));
    (upstream, weir)
}

const TRUSTING: &str = "[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]";

#[test]
fn end_to_end_headers_pass_untouched() {
    let (upstream, weir) = gateway("");
    let lines = "Accept: */*\r\nX-Twice: a\r\nX-Twice: b\r\nX-Empty:\r\nCookie: a=b; c=d\r\n\
                 Authorization: Basic eDp5\r\nX-Latin: caf\u{e9}\r\nX-Spaces: a  b\r\nRange: bytes=0-1\r\n";
    assert_eq!(weir.ask(get_with("/p/a?q=%20&r", lines)).status, 200);
    let request = upstream.last();
    assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/p/a?q=%20&r"));
    assert_eq!(request.all("x-twice"), ["a", "b"]);
    assert_eq!(request.one("x-empty"), "");
    assert_eq!(request.one("cookie"), "a=b; c=d");
    assert_eq!(request.one("authorization"), "Basic eDp5");
    assert_eq!(request.one("x-latin"), "caf\u{e9}");
    assert_eq!(request.one("x-spaces"), "a  b");
    assert_eq!(request.one("range"), "bytes=0-1");
    assert_eq!(request.one("host"), "weir.test");
    assert!(!request.has("content-length") && !request.has("transfer-encoding"));
}

#[test]
fn hop_by_hop_headers_of_the_client_are_removed() {
    let (upstream, weir) = gateway("");
    let lines = "Connection: keep-alive, X-Drop , x-also\r\nConnection: X-Third\r\nKeep-Alive: timeout=5\r\n\
                 Proxy-Connection: keep-alive\r\nTE: trailers\r\nX-Drop: 1\r\nX-Also: 2\r\nX-Third: 3\r\n\
                 Proxy-Authorization: Basic eDp5\r\nUpgrade: foo\r\nX-Stay: 4\r\n";
    assert_eq!(weir.ask(get_with("/", lines)).status, 200);
    let request = upstream.last();
    for name in ["x-drop", "x-also", "x-third", "keep-alive", "proxy-connection", "upgrade"] {
        assert!(!request.has(name), "{name} was passed on:\n{}", request.raw);
    }
    assert_eq!(request.one("x-stay"), "4");
    let te = request.all("te");
    assert!(te.is_empty() || te == ["trailers"], "{te:?}");
    for value in request.all("connection") {
        assert!(!value.to_ascii_lowercase().contains("x-"), "{value}");
    }
}

#[test]
fn hop_by_hop_headers_of_upstream_are_removed() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nConnection: X-Drop\r\nX-Drop: 1\r\nKeep-Alive: timeout=5\r\n\
          Proxy-Connection: x\r\nUpgrade: h2c\r\nX-Stay: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
          Server: origin\r\nContent-Length: 2\r\n\r\nok"
            .to_vec()
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let response = weir.get("/");
    for name in ["x-drop", "keep-alive", "proxy-connection", "upgrade"] {
        assert!(!response.has(name), "{name} was passed on: {response:#?}");
    }
    assert_eq!(response.one("x-stay"), "1");
    assert_eq!(response.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.one("server"), "origin");
}

#[test]
fn connection_cannot_strip_end_to_end_headers() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-user-id\"\nrate = \"1/hour\"\nburst = 2\nmissing = \"deny\"";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let names = [
        "host",
        "authorization",
        "via",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "x-user-id",
        "X-User-Id",
    ];
    for name in names {
        let user = format!("u-{name}");
        let lines = format!(
            "Connection: close, {name}\r\nX-User-Id: {user}\r\nAuthorization: Basic eDp5\r\nX-Other: 1\r\n"
        );
        assert_eq!(weir.ask(get_with("/", &lines)).status, 200, "{name}");
        let request = upstream.last();
        assert_eq!(request.one("host"), "weir.test", "{name}");
        assert_eq!(request.one("authorization"), "Basic eDp5", "{name}");
        assert_eq!(request.one("x-user-id"), user, "{name}");
        assert_eq!(request.one("x-forwarded-for"), "127.0.0.1", "{name}");
        for present in ["via", "x-forwarded-proto", "x-forwarded-host", "forwarded"] {
            assert!(request.has(present), "{name} stripped {present}");
        }
        // And it counts as the same caller with and without.
        assert_eq!(weir.ask(get_with("/", &format!("X-User-Id: {user}\r\n"))).status, 200);
        assert_eq!(weir.ask(get_with("/", &lines)).status, 429, "{name}");
    }
}

#[test]
fn connection_cannot_strip_the_framing() {
    let (upstream, weir) = gateway("");
    for name in ["content-length", "Content-Length, close"] {
        let request = post("/", "hello").replace("Host:", &format!("Connection: {name}\r\nHost:"));
        let response = weir.ask(request);
        assert!(matches!(response.status, 200 | 400), "{name}");
        if response.status == 200 {
            assert_eq!(upstream.last().body, b"hello", "{name}");
        }
    }
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nConnection: transfer-encoding\r\n\
                   Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let response = weir.ask(chunked);
    assert!(matches!(response.status, 200 | 400));
    assert!(response.status == 400 || upstream.last().body == b"hello");
}

#[test]
fn via_names_weir_in_both_directions() {
    let (upstream, weir) = gateway("");
    let response = weir.ask(get_with("/", "Via: 1.0 fred\r\n"));
    let via = upstream.last().all("via").join(", ");
    assert!(via.starts_with("1.0 fred, 1.1 weir"), "{via}");
    let response_via = response.all("via").join(", ");
    assert!(response_via.is_empty() || response_via.starts_with("1.1 weir"), "{response_via}");
}

#[test]
fn forwarding_headers_of_an_untrusted_peer_are_dropped() {
    let (upstream, weir) = gateway("");
    let lines = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-Host: evil.test\r\nForwarded: for=6.6.6.6;host=evil.test;proto=https\r\n\
                 Forwarded: for=7.7.7.7\r\n";
    weir.ask(get_with("/", lines));
    let request = upstream.last();
    assert_eq!(request.one("x-forwarded-for"), "127.0.0.1");
    assert_eq!(request.one("x-forwarded-proto"), "http");
    assert_eq!(request.one("x-forwarded-host"), "weir.test");
    let forwarded = request.one("forwarded").to_ascii_lowercase();
    assert!(forwarded.contains("for=127.0.0.1") && forwarded.contains("proto=http"), "{forwarded}");
    assert!(forwarded.contains("host=weir.test"), "{forwarded}");
    assert!(!request.raw.contains("6.6.6.6") && !request.raw.contains("evil"), "{}", request.raw);
}

#[test]
fn forwarding_headers_of_a_trusted_proxy_are_extended() {
    let (upstream, weir) = gateway(TRUSTING);
    let lines = "X-Forwarded-For: 1.2.3.4, 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-Host: public.test\r\nForwarded: for=1.2.3.4;proto=https;host=public.test\r\n";
    weir.ask(get_with("/", lines));
    let request = upstream.last();
    assert_eq!(request.all("x-forwarded-for").join(", "), "1.2.3.4, 10.0.0.1, 127.0.0.1");
    assert_eq!(request.one("x-forwarded-proto"), "https");
    assert_eq!(request.one("x-forwarded-host"), "public.test");
    let forwarded = request.all("forwarded").join(", ");
    assert!(forwarded.starts_with("for=1.2.3.4;proto=https;host=public.test,"), "{forwarded}");
    assert!(forwarded.contains("for=127.0.0.1"), "{forwarded}");
    // A trusted proxy that says nothing is a peer like any other.
    weir.get("/");
    assert_eq!(upstream.last().one("x-forwarded-for"), "127.0.0.1");
    assert_eq!(upstream.last().one("x-forwarded-proto"), "http");
}

#[test]
fn a_forwarded_host_with_a_port_or_brackets_is_quoted() {
    let (upstream, weir) = gateway("");
    weir.ask("GET / HTTP/1.1\r\nHost: weir.test:8080\r\n\r\n");
    let request = upstream.last();
    assert!(request.one("forwarded").contains("host=\"weir.test:8080\""), "{}", request.raw);
}

#[test]
fn trace_and_connect_are_not_allowed() {
    let (upstream, weir) = gateway("");
    let requests = [
        get("/").replace("GET", "TRACE"),
        get("*").replace("GET", "TRACE"),
        get("weir.test:443").replace("GET", "CONNECT"),
        get("/").replace("GET", "CONNECT"),
        get_with("/", "Max-Forwards: 0\r\n").replace("GET", "TRACE"),
    ];
    for request in requests {
        let response = weir.ask(&request);
        assert_eq!(response.status, 405, "{request:?}: {}", response.text());
        assert_eq!(response.error(), "method_not_allowed", "{request:?}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn other_methods_pass_as_they_are() {
    let (upstream, weir) = gateway("");
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "FOO", "M-SEARCH"] {
        assert_eq!(weir.ask(get("/").replace("GET", method)).status, 200, "{method}");
        assert_eq!(upstream.last().method, method);
    }
}

#[test]
fn a_loop_through_itself_is_a_502() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    weir.reload(&Config::to_servers(&[weir.address()]).open());
    let response = weir.get("/");
    assert_eq!(response.status, 502);
    let proxy_status = response.all("proxy-status").join(", ");
    assert!(proxy_status.contains("proxy_loop_detected"), "{proxy_status}");
}

#[test]
fn two_gateways_in_a_row_are_no_loop() {
    let upstream = Upstream::ok();
    let inner = Weir::start(&Config::to(&upstream).open());
    let outer = Weir::start(&Config::to_servers(&[inner.address()]).open());
    assert_eq!(outer.get("/").status, 200);
    assert_eq!(upstream.last().all("via").join(", ").matches("1.1 weir").count(), 2);
}

#[test]
fn a_route_edits_headers_and_path() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nX-Powered-By: x\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let edits = r#"
        strip_prefix = "/api"
        request_headers = { set = { x-gateway = "weir" }, remove = ["x-secret"] }
        response_headers = { set = { x-frame-options = "DENY" }, remove = ["x-powered-by"] }
    "#;
    let config = Config::to(&upstream).open().route("api", "/api/*", &[]).route_lines(edits);
    let weir = Weir::start(&config);
    let lines = "X-Gateway: fake\r\nX-Secret: s\r\n";
    let rows = [("/api/a/b?c=d", "/a/b?c=d"), ("/api", "/"), ("/api/", "/"), ("/api?x", "/?x")];
    for (sent, received) in rows {
        let response = weir.ask(get_with(sent, lines));
        assert_eq!(response.one("x-frame-options"), "DENY");
        assert!(!response.has("x-powered-by"));
        let request = upstream.last();
        assert_eq!(request.target, received, "{sent}");
        assert_eq!(request.one("x-gateway"), "weir");
        assert!(!request.has("x-secret"));
    }
}

#[test]
fn header_set_by_a_route_appears_once_and_removed_ones_are_gone() {
    let upstream = Upstream::ok();
    let names = [
        "authorization",
        "cookie",
        "user-agent",
        "host",
        "x-forwarded-proto",
        "x-real-ip",
        "accept",
    ];
    let mut wrong = Vec::new();
    for name in names {
        let edit = |edit: &str| {
            format!(
                "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nrequest_headers = {edit}"
            )
        };
        let set = edit(&format!("{{ set = {{ {name} = \"ours\" }} }}"));
        let remove = edit(&format!("{{ remove = [\"{name}\"] }}"));
        for (text, expected) in [(set, Some("ours")), (remove, None)] {
            // What may be edited is for the configuration to say; what it allows must be done.
            let scratch = crate::support::Scratch::new();
            let file =
                scratch.file("weir.toml", &Config::to(&upstream).open().routes(&text).text());
            let check =
                crate::support::gateway::program().arg("check").arg(&file).output().unwrap();
            if check.status.code() == Some(2) {
                continue;
            }
            let weir = Weir::start_from(scratch, file);
            let lines = if name == "host" { String::new() } else { format!("{name}: theirs\r\n") };
            weir.ask(get_with("/", &lines));
            let request = upstream.last();
            let found = request.all(name);
            if found != expected.into_iter().collect::<Vec<_>>() {
                wrong.push(format!("{} gives {found:?}", text.lines().last().unwrap()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_server_may_be_named() {
    let upstream = Upstream::ok();
    let named = Config::to(&upstream).open().text().replace("127.0.0.1:", "localhost:");
    let named = named.replace("\"localhost:0\"", "\"127.0.0.1:0\"");
    let scratch = crate::support::Scratch::new();
    let file = scratch.file("weir.toml", &named);
    assert_eq!(Weir::start_from(scratch, file).get("/").status, 200);
    let unknown = named.replace("localhost", "nobody.invalid");
    let scratch = crate::support::Scratch::new();
    let file = scratch.file("weir.toml", &unknown);
    let response = Weir::start_from(scratch, file).get("/");
    assert!(matches!(response.status, 502 | 504), "{}", response.status);
}

#[test]
fn disguised_header_does_not_reach_upstream() {
    // To CGI and its heirs `_` and `-` are the same.
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-api-key\"\nrate = \"1/second\"\nburst = 100";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let names = [
        "X_Forwarded_For",
        "X-Forwarded_For",
        "x_forwarded-for",
        "X_Forwarded_Proto",
        "X_Forwarded_Host",
        "X_Real_Ip",
        "Content_Length",
        "Transfer_Encoding",
        "X_Api_Key",
        "X-Api_Key",
        "X_Original_Url",
    ];
    for name in names {
        let response = weir.ask(get_with("/", &format!("X-Api-Key: k\r\n{name}: 1\r\n")));
        assert!(matches!(response.status, 200 | 400), "{name}: {}", response.status);
        let seen = upstream.requests().iter().any(|it| it.has(name));
        assert!(!seen, "{name} was passed on");
    }
    assert_eq!(weir.ask(get_with("/", "X_Other: 1\r\n")).status, 200);
    assert_eq!(upstream.last().one("x_other"), "1", "all others are nobody's business");
}

#[test]
fn a_route_edits_its_refusals_too() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let config = Config::to(&upstream)
        .limit(limit)
        .route("all", "/*", &["per-ip"])
        .route_lines("response_headers = { set = { access-control-allow-origin = \"*\" } }");
    let weir = Weir::start(&config);
    for status in [200, 429] {
        let response = weir.get("/");
        assert_eq!(response.status, status);
        assert_eq!(response.one("access-control-allow-origin"), "*", "{status}");
    }
}

#[test]
fn marks_of_weir_in_an_answer_of_the_upstream_are_removed() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nX-Weir-Warning: flood\r\nX-Weir-Degraded: all\r\nX-Weir: yes\r\n\
          X-Weir-Warning: again\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let response = weir.get("/");
    assert_eq!((response.status, response.one("x-weir")), (200, "yes"));
    assert!(!response.has("x-weir-warning") && !response.has("x-weir-degraded"), "{response:?}");
}
