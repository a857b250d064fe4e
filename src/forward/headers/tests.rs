use super::*;
use http::{HeaderValue, Version};
use std::net::SocketAddr;

struct Case {
    headers: &'static [(&'static str, &'static str)],
    trusted: bool,
    by_method: bool,
}

/// What the upstream sees, one `name: value` a line, in order.
fn visit(case: &Case) -> Vec<String> {
    visit_by(None, case)
}

/// The same where one header names the caller's address.
fn visit_by(address_header: Option<&HeaderName>, case: &Case) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for (name, value) in case.headers {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let peer = Peer::new(SocketAddr::from(([9, 9, 9, 9], 1)));
    let caller = Caller { ip: peer.ip, via_trusted: case.trusted };
    let outbound = OutboundHeaders {
        peer: &peer,
        caller: &caller,
        host: "example.com:8080",
        via: "weir-1",
        protocol: Protocol { version: Version::HTTP_11, scheme: Scheme::Http },
        has_via: headers.contains_key(header::VIA),
        edits: &HeaderEdits::default(),
        address_header,
        key_headers: &[HeaderName::from_static("x-api-key")],
        key_header_aliases: &["x-tenant-id".to_owned()],
        by_method: case.by_method,
        degrades: true,
        warns: true,
        upgrade: wants_upgrade(&headers),
    };
    let mut lines = Vec::new();
    outbound.for_each(&headers, |name, value| {
        lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
    });
    lines
}

fn untrusted(headers: &'static [(&'static str, &'static str)]) -> Vec<String> {
    visit(&Case { headers, trusted: false, by_method: false })
}

const OWN: [&str; 5] = [
    "via: 1.1 weir-1",
    "x-forwarded-for: 9.9.9.9",
    "forwarded: for=9.9.9.9;host=\"example.com:8080\";proto=http",
    "x-forwarded-proto: http",
    "x-forwarded-host: example.com:8080",
];

#[test]
fn an_untrusted_peer_has_no_say_in_forwarding() {
    let lines = untrusted(&[
        ("host", "other"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil"),
        ("x-real-ip", "1.1.1.1"),
        ("forwarded", "for=1.1.1.1"),
        ("accept", "*/*"),
    ]);
    assert_eq!(lines[..2], ["host: example.com:8080", "accept: */*"]);
    assert_eq!(lines[2..], OWN);
}

#[test]
fn a_trusted_peer_is_appended_to() {
    let headers = &[
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-for", "2.2.2.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "front"),
        ("forwarded", "for=1.1.1.1"),
        ("via", "1.1 edge"),
    ];
    let lines = visit(&Case { headers, trusted: true, by_method: false });
    let expected = [
        "host: example.com:8080",
        "via: 1.1 edge, 1.1 weir-1",
        "x-forwarded-for: 1.1.1.1, 2.2.2.2, 9.9.9.9",
        "forwarded: for=1.1.1.1, for=9.9.9.9;host=\"example.com:8080\";proto=http",
        "x-forwarded-proto: https",
        "x-forwarded-host: front",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_is_not_read_is_not_passed_on_as_a_proxys_word() {
    let headers = &[("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=6.6.6.6")];
    let by = |name| visit_by(Some(&name), &Case { headers, trusted: true, by_method: false });
    let lines = by(X_FORWARDED_FOR);
    assert_eq!(lines[2], "x-forwarded-for: 1.1.1.1, 9.9.9.9");
    assert!(!lines.iter().any(|line| line.starts_with("forwarded")), "{lines:#?}");
    let lines = by(FORWARDED);
    assert!(lines[2].starts_with("forwarded: for=6.6.6.6, for=9.9.9.9;"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("x-forwarded-for")), "{lines:#?}");
    // Proxies that name the caller elsewhere may write these as well.
    let lines = by(HeaderName::from_static("cf-connecting-ip"));
    assert_eq!(lines[2], "x-forwarded-for: 1.1.1.1, 9.9.9.9");
    assert!(lines[3].starts_with("forwarded: for=6.6.6.6, for=9.9.9.9;"), "{lines:#?}");
}

#[test]
fn the_header_that_names_the_caller_passes_from_trusted_peers_only() {
    let name = HeaderName::from_static("cf-connecting-ip");
    let headers = &[("cf-connecting-ip", "1.1.1.1")];
    let by = |trusted| visit_by(Some(&name), &Case { headers, trusted, by_method: false });
    assert_eq!(by(true)[1], "cf-connecting-ip: 1.1.1.1");
    assert_eq!(by(false)[1..], OWN);
}

#[test]
fn connection_strips_what_it_lists_but_nothing_that_protects() {
    let lines = untrusted(&[
        ("connection", "X-Hop, Authorization, Host, Via, X-Forwarded-For, X-Api-Key, Cookie"),
        ("x-hop", "1"),
        ("authorization", "Basic eDp5"),
        ("x-api-key", "k"),
        ("cookie", "a=b"),
    ]);
    let kept = ["authorization: Basic eDp5", "x-api-key: k", "cookie: a=b"];
    assert_eq!(lines[1..4], kept);
    assert_eq!(lines[4..], OWN);
}

#[test]
fn hop_by_hop_headers_stay_on_their_hop() {
    let lines = untrusted(&[
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("connection", "upgrade"),
        ("expect", "100-continue"),
    ]);
    assert_eq!(lines[1..], OWN);
}

#[test]
fn an_upgrade_is_passed_on_unless_it_would_hide_requests() {
    let lines = untrusted(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
    assert_eq!(lines[1..3], ["connection: Upgrade", "upgrade: websocket"]);
    for (protocol, good) in [
        ("websocket", true),
        ("h2c", false),
        ("HTTP/2.0", false),
        ("TLS/1.0", false),
        ("foo, h2c", false),
        ("foo/1.0", true),
        ("foo, bar/2", true),
        ("h2", false),
        ("\"h2c\"", false),
        ("'h2c'", false),
        (";h2c", false),
        ("foo/h2c", false),
        ("foo/1/2", false),
        ("foo/", false),
        ("", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        assert!(!wants_upgrade(&headers));
        headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
        assert_eq!(wants_upgrade(&headers), good, "{protocol}");
    }
}

#[test]
fn a_method_override_passes_only_where_methods_do_not_matter() {
    let headers = &[("x-http-method-override", "DELETE")];
    assert_eq!(visit(&Case { headers, trusted: false, by_method: true })[1..], OWN);
    assert_eq!(untrusted(headers)[1], "x-http-method-override: DELETE");
}

#[test]
fn a_header_in_disguise_is_withheld() {
    let lines = untrusted(&[
        ("x_forwarded_for", "1.1.1.1"),
        ("x-forwarded_for", "1.1.1.1"),
        ("content_length", "5"),
        ("transfer_encoding", "chunked"),
        ("x_api_key", "stolen"),
        ("content_type", "application/x-www-form-urlencoded"),
        ("content_encoding", "gzip"),
        ("x_weir_degraded", "limit"),
        ("x_weir_warning", "guard"),
        ("x-original-url", "/admin"),
        ("x-tenant-id", "double of a counted x_tenant_id"),
        ("x_custom", "kept"),
        ("x_hop", "listed"),
        ("connection", "x_hop"),
    ]);
    assert_eq!(lines[1], "x_custom: kept");
    assert_eq!(lines[2..], OWN);
    let headers = &[("x_http_method_override", "DELETE")];
    assert_eq!(visit(&Case { headers, trusted: false, by_method: true })[1..], OWN);
}

#[test]
fn a_chain_is_not_told_in_part() {
    let headers = &[("x-forwarded-for", "1.1.1.1")];
    let lines = visit(&Case { headers, trusted: true, by_method: false });
    assert!(!lines.iter().any(|line| line.starts_with("forwarded:")), "{lines:?}");
    let headers = &[("forwarded", "for=1.1.1.1")];
    let lines = visit(&Case { headers, trusted: true, by_method: false });
    assert!(!lines.iter().any(|line| line.starts_with("x-forwarded-for:")), "{lines:?}");
}
