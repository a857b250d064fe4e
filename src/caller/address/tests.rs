//! Whose address a request counts by, header by header.

use http::HeaderValue;

use super::*;

fn caller(peer: &str, forwarded: &[&str]) -> String {
    caller_by(X_FORWARDED_FOR, peer, forwarded)
}

fn addresses(address_header: Option<HeaderName>) -> Addresses {
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    Addresses::new(&Identity { trusted_proxies, address_header, ..Identity::default() })
}

fn caller_by(name: HeaderName, peer: &str, forwarded: &[&str]) -> String {
    let by_default = counted(&addresses(None), &name, peer, forwarded);
    // Naming the header that is there makes no difference.
    assert_eq!(by_default, counted(&addresses(Some(name.clone())), &name, peer, forwarded));
    by_default
}

fn counted(addresses: &Addresses, name: &HeaderName, peer: &str, forwarded: &[&str]) -> String {
    let mut headers = HeaderMap::new();
    for value in forwarded {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let peer = Peer::new(SocketAddr::new(peer.parse().unwrap(), 1234));
    addresses.counted(addresses.caller(&peer, &headers).ip).to_string()
}

#[test]
fn an_untrusted_peer_speaks_for_itself_alone() {
    assert_eq!(caller("1.2.3.4", &["9.9.9.9"]), "1.2.3.4");
    assert_eq!(caller("::ffff:1.2.3.4", &["9.9.9.9"]), "1.2.3.4");
}

#[test]
fn trusted_proxies_are_read_from_right_to_left() {
    assert_eq!(caller("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(caller("10.0.0.1", &["9.9.9.9"]), "9.9.9.9");
    assert_eq!(caller("10.0.0.1", &["6.6.6.6, 9.9.9.9, 10.0.0.2"]), "9.9.9.9");
    assert_eq!(caller("10.0.0.1", &["6.6.6.6", "9.9.9.9", "10.0.0.2"]), "9.9.9.9");
    assert_eq!(caller("::ffff:10.0.0.1", &["9.9.9.9:80"]), "9.9.9.9");
    assert_eq!(caller("fd00::1", &["[2001:db8::1]:443"]), "2001:db8::");
}

#[test]
fn forwarded_is_read_like_the_other() {
    let by = |lines: &[&str]| caller_by(header::FORWARDED, "10.0.0.1", lines);
    assert_eq!(by(&["for=9.9.9.9"]), "9.9.9.9");
    assert_eq!(by(&["for=6.6.6.6, proto=http;For=9.9.9.9;by=x , for=10.0.0.2"]), "9.9.9.9");
    assert_eq!(by(&[r#"for="[2001:db8::1]:443""#]), "2001:db8::");
    assert_eq!(by(&["for=9.9.9.9, for=unknown"]), "10.0.0.1");
    assert_eq!(by(&["for=9.9.9.9, for=_hidden, for=10.0.0.3"]), "10.0.0.3");
    assert_eq!(by(&["proto=http"]), "10.0.0.1");
}

#[test]
fn two_headers_that_differ_are_both_disbelieved() {
    let addresses = addresses(None);
    let peer = Peer::new("10.0.0.1:1".parse().unwrap());
    for (forwarded, expected) in [("for=9.9.9.9", "9.9.9.9"), ("for=6.6.6.6", "10.0.0.1")] {
        let mut headers = HeaderMap::new();
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("9.9.9.9"));
        headers.insert(header::FORWARDED, HeaderValue::from_static(forwarded));
        assert_eq!(addresses.caller(&peer, &headers).ip.to_string(), expected);
    }
}

#[test]
fn what_a_client_has_quoted_within_forwarded_is_not_believed() {
    let by = |line: &str| caller_by(header::FORWARDED, "10.0.0.1", &[line]);
    assert_eq!(by(r#"host="a;for=6.6.6.6;b";for=9.9.9.9"#), "9.9.9.9");
    // Nor does half a pair of quotes swallow what a proxy adds to it.
    assert_eq!(by(r#"for="a, for=9.9.9.9"#), "9.9.9.9");
    for line in [
        r#"for=9.9.9.9;host="a, for=6.6.6.6;b=""#,
        r#"for=9.9.9.9;host="a, for=6.6.6.6;b=\"""#,
        r#"for=9.9.9.9;host="a, for=6.6.6.6, b""#,
    ] {
        assert_ne!(by(line), "6.6.6.6", "{line}");
    }
}

#[test]
fn a_named_header_is_the_only_one_read() {
    let name = HeaderName::from_static("x-real-ip");
    let named = addresses(Some(name.clone()));
    let by = |peer: &str, lines: &[&str]| counted(&named, &name, peer, lines);
    assert_eq!(by("10.0.0.1", &["9.9.9.9"]), "9.9.9.9");
    assert_eq!(by("10.0.0.1", &["6.6.6.6, 9.9.9.9", "10.0.0.2"]), "9.9.9.9");
    assert_eq!(by("10.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::");
    assert_eq!(by("10.0.0.1", &["unknown"]), "10.0.0.1");
    assert_eq!(by("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(by("1.2.3.4", &["9.9.9.9"]), "1.2.3.4", "an untrusted peer");
    for other in [X_FORWARDED_FOR, header::FORWARDED] {
        assert_eq!(counted(&named, &other, "10.0.0.1", &["for=9.9.9.9", "9.9.9.9"]), "10.0.0.1");
    }
    let listed = addresses(Some(X_FORWARDED_FOR));
    assert_eq!(counted(&listed, &header::FORWARDED, "10.0.0.1", &["for=9.9.9.9"]), "10.0.0.1");
}

#[test]
fn what_is_no_address_ends_the_search() {
    assert_eq!(caller("10.0.0.1", &["9.9.9.9, unknown, 10.0.0.2"]), "10.0.0.2");
    assert_eq!(caller("10.0.0.1", &["unknown"]), "10.0.0.1");
    assert_eq!(caller("10.0.0.1", &["9.9.9.9,, ,"]), "9.9.9.9");
    let many = ["10.0.0.3"; 10_000].join(",");
    assert_eq!(caller("10.0.0.1", &[&many]), "10.0.0.3");
}

#[test]
fn addresses_of_one_ipv6_prefix_are_one_caller() {
    assert_eq!(caller("2001:db8::1", &[]), caller("2001:db8::ffff", &[]));
    assert_ne!(caller("2001:db8::1", &[]), caller("2001:db8:0:1::1", &[]));
}
