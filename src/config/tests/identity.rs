//! Whose address a caller has: which proxies are believed, in what, and what of it counts.

use http::{HeaderName, header};

use super::faults::{each_refused, each_warned};
use super::{good, limit, with_route};
use crate::config::{Settings, summary};
use crate::limit::{Key, Source};

/// A file that trusts some proxies, with more lines of `[identity]` and what may follow it.
fn trusting(lines: &str) -> String {
    with_route(&format!("[identity]\ntrusted_proxies = [\"10.0.0.0/8\"]\n{lines}"))
}

fn means(text: &str) -> Settings {
    let loaded = good(text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings
}

#[test]
fn the_address_comes_from_the_header_that_is_named() {
    let named = |line: &str| means(&trusting(line)).identity.address_header;
    assert_eq!(named(""), None);
    assert_eq!(named("address_header = \"Forwarded\""), Some(header::FORWARDED));
    let other = HeaderName::from_static("cf-connecting-ip");
    assert_eq!(named("address_header = \"CF-Connecting-IP\""), Some(other));
}

#[test]
fn headers_that_name_no_address_are_refused() {
    each_refused(&[
        (trusting("address_header = \"a b\""), "is not the name of a header: `a b`; write the"),
        (trusting("address_header = \"\""), "is not the name of a header: ``"),
        (trusting("address_header = \"TE\""), "cannot be `TE`: it never names an address"),
        (trusting("address_header = \"Host\""), "cannot be `Host`: it never names an address"),
        (trusting("address_header = [\"forwarded\"]"), "must be a string, not an array"),
    ]);
    each_warned(&[(
        with_route("[identity]\naddress_header = \"forwarded\""),
        "warning: `address_header` is never read: there are no `trusted_proxies`; list your",
    )]);
}

#[test]
fn proxies_speak_the_proxy_protocol_if_they_are_told_to() {
    let spoken =
        |line: &str| means(&trusting(&format!("[server]\n{line}"))).server.listen[0].proxy_protocol;
    assert!(!spoken(""));
    assert!(!spoken("proxy_protocol = false"));
    assert!(spoken("proxy_protocol = true"));
    each_refused(&[(
        trusting("[server]\nproxy_protocol = \"v2\""),
        "`proxy_protocol` must be a boolean, not a string; write `true` or `false`",
    )]);
    each_warned(&[(
        with_route("[server]\nproxy_protocol = true"),
        "warning: `proxy_protocol` has no effect: there are no `trusted_proxies` to say whom they",
    )]);
}

#[test]
fn keys_may_name_a_prefix_of_ipv6() {
    let text = |key: &str| limit(&format!("key = {key}\nrate = \"1/second\""));
    let key = |written: &str| means(&text(written)).limits[0].key.clone();
    assert_eq!(key("\"ip/48\""), Key(vec![Source::IpPrefix(48)]));
    assert_eq!(key("[\"ip\", \"ip/128\"]"), Key(vec![Source::Ip, Source::IpPrefix(128)]));
    assert!(summary(&good(&text("[\"route\", \"ip/56\"]"))).contains("route + ip/56"));
    each_refused(&[
        (text("\"ip/0\""), "has no valid prefix of IPv6: `0`; write a number from 1 to 128"),
        (text("\"ip/129\""), "has no valid prefix of IPv6: `129`"),
        (text("\"ip/+48\""), "has no valid prefix of IPv6: `+48`"),
        (text("\"ip/048\""), "has no valid prefix of IPv6: `048`"),
        (text("\"ip/\""), "has no valid prefix of IPv6: ``"),
        (text("[\"ip/48\", \"ip/48\"]"), "repeats an earlier one: `ip/48`"),
    ]);
    each_warned(&[
        (
            text("\"ip/24\""),
            "counts IPv6 addresses by 24 bits, and IPv4 addresses whole; write a prefix of IPv6",
        ),
        (
            text("\"ip/48\"\nmissing = \"deny\""),
            "`missing` has no effect: no request is without this key",
        ),
    ]);
}
