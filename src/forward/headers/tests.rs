use std::net::SocketAddr;
use std::sync::Arc;

use http::Version;

use super::*;
use crate::forward::field_rules::FieldRules;

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
    visit_from("9.9.9.9", address_header, case)
}

/// The same where that is the caller.
fn visit_from(ip: &str, address_header: Option<&HeaderName>, case: &Case) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for (name, value) in case.headers {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let peer = Peer::new(SocketAddr::from(([9, 9, 9, 9], 1)));
    let caller = Caller { ip: ip.parse().expect("an address"), via_trusted: case.trusted };
    let rules = FieldRules {
        identity_names: ["x-user-id", "x-plan"].map(HeaderName::from_static).to_vec(),
        address_header: address_header.cloned(),
        key_headers: vec![HeaderName::from_static("x-api-key")],
        key_header_aliases: vec!["x-tenant-id".to_owned()],
        by_method: case.by_method,
        degrades: true,
        warns: true,
        has_ids: false,
    };
    let outbound = OutboundHeaders {
        peer: &peer,
        caller: &caller,
        host: "example.com:8080",
        via: "weir-1",
        protocol: Protocol { version: Version::HTTP_11, scheme: Scheme::Http, is_grpc: false },
        has_via: headers.contains_key(header::VIA),
        identity: &[(HeaderName::from_static("x-user-id"), HeaderValue::from_static("ann"))],
        upgrade: wants_upgrade(&headers),
        fields: &Rc::new(RouteFields { rules: Arc::new(rules), ..RouteFields::default() }),
    };
    let mut lines = Vec::new();
    let mut write = |name: &HeaderName, value: &[u8]| {
        lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
    };
    outbound.write_to(&headers, &mut write);
    lines
}

fn untrusted(headers: &'static [(&'static str, &'static str)]) -> Vec<String> {
    visit(&Case { headers, trusted: false, by_method: false })
}

const OWN: [&str; 6] = [
    "via: 1.1 weir-1",
    "x-forwarded-for: 9.9.9.9",
    "forwarded: for=9.9.9.9;host=\"example.com:8080\";proto=http",
    "x-forwarded-proto: http",
    "x-forwarded-host: example.com:8080",
    "x-user-id: ann",
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
        "x-user-id: ann",
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
    // Where proxies name the caller elsewhere, a client may have written both.
    let lines = by(HeaderName::from_static("cf-connecting-ip"));
    assert_eq!(lines[1..], OWN);
}

#[test]
fn a_caller_that_another_header_names_comes_before_its_peer() {
    let name = HeaderName::from_static("cf-connecting-ip");
    let headers = &[("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=6.6.6.6")];
    for (ip, listed, forwarded) in [
        ("1.1.1.1", "1.1.1.1, 9.9.9.9", "for=1.1.1.1, for=9.9.9.9;"),
        ("2001:db8::1", "2001:db8::1, 9.9.9.9", "for=\"[2001:db8::1]\", for=9.9.9.9;"),
    ] {
        let case = Case { headers, trusted: true, by_method: false };
        let lines = visit_from(ip, Some(&name), &case);
        assert_eq!(lines[2], format!("x-forwarded-for: {listed}"));
        assert!(lines[3].starts_with(&format!("forwarded: {forwarded}")), "{lines:#?}");
        // Where one of the two was read, it has the caller already.
        let lines = visit_from(ip, Some(&X_FORWARDED_FOR), &case);
        assert_eq!(lines[2], "x-forwarded-for: 6.6.6.6, 9.9.9.9");
        let lines = visit_from(ip, None, &case);
        assert_eq!(lines[2], "x-forwarded-for: 6.6.6.6, 9.9.9.9");
    }
}

#[test]
fn nobody_else_says_who_the_caller_is() {
    for trusted in [true, false] {
        let headers = &[
            ("x-user-id", "mallory"),
            ("x_user_id", "mallory"),
            ("x-user_id", "mallory"),
            ("x-plan", "unlimited"),
            ("x_plan", "unlimited"),
            ("connection", "x-user-id, x-plan"),
        ];
        let lines = visit(&Case { headers, trusted, by_method: false });
        assert_eq!(lines[1..], OWN);
    }
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
