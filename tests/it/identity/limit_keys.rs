//! Keys of limits: by address, header, query, cookie or route, alone and combined.

use crate::support::{Config, Upstream, Weir, get, get_with};

const ONCE: &str = "rate = \"1/hour\"\nburst = 1\n";

fn keyed(upstream: &Upstream, key: &str) -> Config {
    Config::to(upstream).limit(&format!("key = {key}\n{ONCE}"))
}

#[test]
fn untrusted_peer_cannot_set_its_address() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&keyed(&upstream, "\"ip\""));
    assert_eq!(weir.get("/").status, 200);
    let lines = [
        "X-Forwarded-For: 1.2.3.4",
        "Forwarded: for=1.2.3.4",
        "X-Real-IP: 1.2.3.4",
        "X-Client-IP: 1.2.3.4",
        "True-Client-IP: 1.2.3.4",
        "CF-Connecting-IP: 1.2.3.4",
        "X-Forwarded-For: 127.0.0.2",
        "X-Forwarded-For: ::1",
    ];
    for line in lines {
        assert_eq!(weir.ask(get_with("/", &format!("{line}\r\n"))).status, 429, "{line}");
    }
}

/// A gateway that trusts its peers, and asks with each header line in turn: the same caller as
/// before is refused.
#[track_caller]
fn callers(prefix: &str, rows: &[(&str, bool)]) {
    let upstream = Upstream::ok();
    let identity = format!(
        "[identity]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\", \"fd00::/8\"]\n{prefix}"
    );
    let weir = Weir::start(&keyed(&upstream, "\"ip\"").also(&identity));
    for (line, fresh) in rows {
        let lines = if line.is_empty() { String::new() } else { format!("{line}\r\n") };
        let status = weir.ask(get_with("/", &lines)).status;
        assert_eq!(status, if *fresh { 200 } else { 429 }, "{line}");
    }
}

#[test]
fn a_trusted_chain_is_read_from_the_right() {
    callers(
        "",
        &[
            ("X-Forwarded-For: 1.1.1.1", true),
            ("X-Forwarded-For: 9.9.9.9, 1.1.1.1", false),
            ("X-Forwarded-For: 8.8.8.8, 1.1.1.1, 10.0.0.1", false),
            ("X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-For: 1.1.1.1", false),
            (
                "X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 10.0.0.1",
                false,
            ),
            ("X-Forwarded-For: 1.1.1.1:4711", false),
            ("X-Forwarded-For:   1.1.1.1  ", false),
            ("X-Forwarded-For: 2.2.2.2", true),
            ("X-Forwarded-For: 1.1.1.1, 2.2.2.2, 10.0.0.1, 10.0.0.2", false),
            ("", true),
        ],
    );
}

#[test]
fn addresses_of_one_ipv6_prefix_are_one_caller() {
    callers(
        "",
        &[
            ("X-Forwarded-For: 2001:db8::1", true),
            ("X-Forwarded-For: 2001:db8::2", false),
            ("X-Forwarded-For: 2001:DB8:0:0:ffff:ffff:ffff:ffff", false),
            ("X-Forwarded-For: [2001:db8::3]", false),
            ("X-Forwarded-For: [2001:db8::3]:443", false),
            ("X-Forwarded-For: 2001:db8:0:1::1", true),
            ("X-Forwarded-For: 1.2.3.4", true),
            ("X-Forwarded-For: ::ffff:1.2.3.4", false),
            ("X-Forwarded-For: ::ffff:102:304", false),
            ("X-Forwarded-For: [::ffff:1.2.3.4]:80", false),
            ("X-Forwarded-For: ::ffff:1.2.3.5", true),
        ],
    );
    callers(
        "ipv6_prefix = 128",
        &[
            ("X-Forwarded-For: 2001:db8::1", true),
            ("X-Forwarded-For: 2001:db8::2", true),
            ("X-Forwarded-For: 2001:db8::1", false),
        ],
    );
    callers(
        "ipv6_prefix = 48",
        &[
            ("X-Forwarded-For: 2001:db8:0:1::1", true),
            ("X-Forwarded-For: 2001:db8:0:2::1", false),
            ("X-Forwarded-For: 2001:db8:1::1", true),
        ],
    );
}

#[test]
fn forwarded_is_read_like_x_forwarded_for() {
    callers(
        "",
        &[
            ("Forwarded: for=1.1.1.1", true),
            ("Forwarded: For=\"1.1.1.1:80\";proto=https", false),
            ("Forwarded: for=9.9.9.9, proto=http;for=1.1.1.1, for=10.0.0.1", false),
            ("Forwarded: for=\"[2001:db8::1]\"", true),
            ("Forwarded: for=\"[2001:db8::2]:443\"", false),
        ],
    );
}

#[test]
fn malformed_chain_entries_are_harmless() {
    let upstream = Upstream::ok();
    let identity = "[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let weir = Weir::start(&keyed(&upstream, "\"ip\"").also(identity));
    assert_eq!(weir.get("/").status, 200, "the peer itself");
    let many = vec!["1.1.1.1"; 1_000].join(", ");
    let rows = [
        "X-Forwarded-For: unknown",
        "X-Forwarded-For: ",
        "X-Forwarded-For: ,",
        "X-Forwarded-For: , ,,",
        "X-Forwarded-For: _hidden",
        "X-Forwarded-For: 1.1.1.1.1",
        "X-Forwarded-For: 999.1.1.1",
        "X-Forwarded-For: 1.1.1",
        "X-Forwarded-For: a b",
        "X-Forwarded-For: [",
        "X-Forwarded-For: [::1",
        "X-Forwarded-For: 6.6.6.6, unknown",
        "X-Forwarded-For: 6.6.6.6, garbage",
        "Forwarded: for=unknown",
        "Forwarded: for=",
        "Forwarded: ;;,",
        "Forwarded: for=\"",
        "Forwarded: by=1.1.1.1",
        "X-Forwarded-For: 01.1.1.1",
        "X-Forwarded-For: 0x1010101",
        "X-Forwarded-For: 16843009",
    ];
    // None of them names a caller, so each is the nearest one that is known: the peer.
    for row in rows {
        let status = weir.ask(get_with("/", &format!("{row}\r\n"))).status;
        assert!(matches!(status, 400 | 429), "{row}: {status}");
    }
    assert_eq!(weir.ask(get_with("/", &format!("X-Forwarded-For: {many}\r\n"))).status, 200);
    assert_eq!(weir.ask(get_with("/", &format!("X-Forwarded-For: {many}\r\n"))).status, 429);
    let ten_thousand = vec!["2.2.2.2"; 10_000].join(",");
    let status = weir.ask(get_with("/", &format!("X-Forwarded-For: {ten_thousand}\r\n"))).status;
    assert!(matches!(status, 200 | 400 | 431), "{status}");
    assert_eq!(weir.admin("/healthz").status, 200);
}

#[test]
fn an_ipv6_listener_serves_and_counts() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("no IPv6 here");
        return;
    }
    let upstream = Upstream::ok();
    let config = keyed(&upstream, "\"ip\"").server("listen = [\"127.0.0.1:0\", \"[::1]:0\"]");
    let weir = Weir::start(&config);
    crate::support::wait_until("both addresses are told", || {
        weir.output().contains("http://[::1]:")
    });
    let said = weir.output();
    let rest = said.split("listening on http://[::1]:").nth(1).expect("an IPv6 address");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("[::1]:{digits}").parse().unwrap();
    let ask = || crate::support::Client::connect(address).ask(get("/"));
    assert_eq!(ask().status, 200);
    assert_eq!(ask().status, 429);
    let forwarded = upstream.last().one("forwarded").to_owned();
    assert!(forwarded.to_ascii_lowercase().contains("for=\"[::1]\""), "{forwarded}");
    assert_eq!(upstream.last().one("x-forwarded-for"), "::1");
    assert_eq!(weir.get("/").status, 200, "another address, another caller");
    assert!(!weir.addresses().is_empty());
}

#[test]
fn a_doubled_identity_header_is_refused() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&keyed(&upstream, "\"header:x-user\""));
    let rows =
        ["X-User: a\r\nX-User: b\r\n", "X-User: a\r\nX-User: a\r\n", "X-User: a\r\nx-user:\r\n"];
    for row in rows {
        let response = weir.ask(get_with("/", row));
        assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{row:?}");
    }
    assert_eq!(upstream.heads(), 0);
    assert_eq!(weir.ask(get_with("/", "X-User: a\r\n")).status, 200, "nothing was spent");
}

#[test]
fn identities_never_collide() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&keyed(&upstream, "\"header:x-user\""));
    let long = "x".repeat(10 * 1024);
    let plain = [
        "a",
        "A",
        "b",
        "a:b",
        "a::b",
        ":a",
        "a:",
        "{x}",
        "{a}b",
        "{}",
        "}{",
        "a b",
        "a,b",
        "a;b",
        "a%3Ab",
        "a%0d%0ab",
        "%00",
        "*",
        "\"a\"",
        "\\",
        "'a'",
        "a\\nb",
        "1.2.3.4",
        "127.0.0.1",
        "weir:a",
        "null",
        "0",
        "caf\u{e9}",
    ];
    let rows = plain.iter().map(ToString::to_string);
    let rows: Vec<String> = rows.chain([format!("{long}1"), format!("{long}2"), long]).collect();
    for round in [200, 429] {
        for row in &rows {
            let response = weir.ask(get_with("/", &format!("X-User: {row}\r\n")));
            assert_eq!(response.status, round, "{}", &row.escape_debug().to_string());
        }
    }
}

#[test]
fn parts_of_a_composite_key_are_kept_apart() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&keyed(&upstream, "[\"header:x-a\", \"header:x-b\"]"));
    let pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "b"),
        ("b", "a"),
        ("ab", "c"),
        ("a", "bc"),
        ("a|b", "c"),
        ("a", "b|c"),
    ];
    for round in [200, 429] {
        for (a, b) in pairs {
            let response = weir.ask(get_with("/", &format!("X-A: {a}\r\nX-B: {b}\r\n")));
            assert_eq!(response.status, round, "{a} and {b}");
        }
    }
}

#[test]
fn keys_come_from_queries_cookies_and_routes() {
    let upstream = Upstream::ok();
    let query = Weir::start(&keyed(&upstream, "\"query:user\""));
    let rows = [
        ("/?user=a", 200),
        ("/?user=a&x=y", 429),
        ("/?x=y&user=a", 429),
        ("/?user=%61", 429),
        ("/?%75ser=a", 429),
        ("/?user=b", 200),
        ("/?user=a+b", 200),
        ("/?user=a%20b", 429),
        ("/?USER=a", 200),
    ];
    for (target, status) in rows {
        assert_eq!(query.get(target).status, status, "{target}");
    }
    assert_eq!(query.get("/?user=c&user=d").status, 400, "a doubled identity");

    let cookie = Weir::start(&keyed(&upstream, "\"cookie:session\""));
    let rows = [
        ("Cookie: session=a", 200),
        ("Cookie: x=y; session=a", 429),
        ("Cookie: session=a; x=y", 429),
        ("Cookie: x=y;session=a", 429),
        ("Cookie: session=b", 200),
        ("Cookie: xsession=a; session=c", 200),
        ("Cookie: x=y\r\nCookie: session=a", 429),
        ("Cookie: session=\"a\"", 429),
        ("Cookie: session=%61", 429),
        ("Cookie: session=\"%61\"", 429),
        ("Cookie: session=s%3Aa%2Fb", 200),
        ("Cookie: session=s:a/b", 429),
        ("Cookie: session=%2561", 200),
        ("Cookie: session=a+b", 200),
        ("Cookie: session=a%2Bb", 429),
        ("Cookie: session=100%", 200),
        ("Cookie: session=a; session=z", 400),
    ];
    for (line, status) in rows {
        assert_eq!(cookie.ask(get_with("/", &format!("{line}\r\n"))).status, status, "{line}");
    }

    let routes = "[[routes]]\nname = \"a\"\npath = \"/a/*\"\nupstream = \"api\"\nlimits = [\"per-ip\"]\n\
                  [[routes]]\nname = \"b\"\npath = \"/b/*\"\nupstream = \"api\"\nlimits = [\"per-ip\"]";
    let route = Weir::start(&keyed(&upstream, "\"route\"").routes(routes));
    for (target, status) in [("/a/1", 200), ("/a/2", 429), ("/b/1", 200), ("/b/2", 429)] {
        assert_eq!(route.get(target).status, status, "{target}");
    }
}

/// Frameworks read these as another value than is written, each in its own way: some undo backslashes,
/// some drop a quote that has no partner, some end a value at a blank, some trim what is no ASCII.
#[test]
fn counted_cookie_with_two_readings_is_refused() {
    let upstream = Upstream::ok();
    let identity = "[identity]\nuser = \"cookie:user\"\n[access]\ndeny = { user = [\"mallory\"] }";
    let weir = Weir::start(&keyed(&upstream, "\"user\"").also(identity));
    let ask = |cookie: &[u8]| {
        let line = [b"GET / HTTP/1.1\r\nHost: weir.test\r\nCookie: ", cookie, b"\r\n\r\n"].concat();
        weir.ask(line)
    };
    for denied in ["user=mallory", "user=\"mallory\"", "user=%6dallory", "user=%6Dall%6fry"] {
        assert_eq!(ask(denied.as_bytes()).status, 403, "{denied}");
    }
    let ambiguous: [&[u8]; 14] = [
        br#"user="\155allory""#,
        br#"user="mallor\171""#,
        br#"user="\mallory""#,
        br"user=\155allory",
        br#"user="mallory"#,
        br#"user="malloryx"#,
        br#"user=mallory""#,
        br#"user=""mallory"""#,
        b"user=mallory x",
        b"user=mallory,x",
        b"user=mallory\xa0",
        b"user=\xc2\xa0mallory",
        b"user=\"mallory\x85\"",
        b"\xa0user=mallory",
    ];
    for cookie in ambiguous {
        let response = ask(cookie);
        let told = (response.status, response.error());
        assert_eq!(told, (400, "bad_request".into()), "{}", cookie.escape_ascii());
    }
    assert_eq!(upstream.heads(), 0);
    // Cookies that nobody counts by may be as they like.
    assert_eq!(ask(br#"x="\155"; user=ann; y=a b, c; z="#).status, 200);
    assert_eq!(ask(b"user=ann").status, 429);
}

#[test]
fn missing_key_follows_its_setting() {
    let upstream = Upstream::ok();
    let with = |rule: &str| {
        let missing =
            if rule.is_empty() { String::new() } else { format!("missing = \"{rule}\"\n") };
        let limit = format!("key = \"header:x-user\"\n{missing}{ONCE}");
        let identity = "[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]";
        Weir::start(&Config::to(&upstream).limit(&limit).also(identity))
    };
    let ask = |weir: &Weir, lines: &str| weir.ask(get_with("/", lines)).status;
    let (one, two) = ("X-Forwarded-For: 1.1.1.1\r\n", "X-Forwarded-For: 2.2.2.2\r\n");
    // By address is the default.
    for rule in ["ip", ""] {
        let weir = with(rule);
        assert_eq!(
            [ask(&weir, one), ask(&weir, one), ask(&weir, two), ask(&weir, two)],
            [200, 429, 200, 429]
        );
        let named = format!("{one}X-User: 1.1.1.1\r\n");
        assert_eq!(
            ask(&weir, &named),
            200,
            "a user who is called like an address is not that address"
        );
    }
    let weir = with("skip");
    assert_eq!([ask(&weir, one), ask(&weir, one), ask(&weir, one)], [200; 3]);
    assert_eq!([ask(&weir, "X-User: a\r\n"), ask(&weir, "X-User: a\r\n")], [200, 429]);
    let weir = with("shared");
    assert_eq!([ask(&weir, one), ask(&weir, one), ask(&weir, two)], [200, 429, 429]);
    let weir = with("deny");
    let response = weir.ask(get_with("/", one));
    assert_eq!((response.status, response.error()), (403, "missing_key".into()));
    assert_eq!([ask(&weir, "X-User: a\r\n"), ask(&weir, "X-User: a\r\n")], [200, 429]);
}

#[test]
fn an_empty_key_is_never_unlimited() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&keyed(&upstream, "\"header:x-user\""));
    let passed = (0..4).filter(|_| weir.ask(get_with("/", "X-User:\r\n")).status == 200).count();
    assert!(passed <= 1, "{passed} passed");
    let passed = (0..4).filter(|_| weir.ask(get_with("/", "X-User:  \r\n")).status == 200).count();
    assert_eq!(passed, 0, "white space is no other identity");
}
