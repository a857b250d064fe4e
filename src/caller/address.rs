//! The caller's address: the peer's own, or what trusted proxies say it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

use super::{Caller, Peer};
use crate::config::settings::Identity;

pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Debug)]
pub struct Addresses {
    trusted: Vec<IpNet>,
    ipv6_mask: u128,
}

impl Addresses {
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        let host_bits = 128 - u32::from(identity.ipv6_prefix.clamp(1, 128));
        Addresses { trusted: identity.trusted_proxies.clone(), ipv6_mask: u128::MAX << host_bits }
    }

    /// Reads `X-Forwarded-For` and `Forwarded` from right to left while their authors are trusted.
    /// What cannot be read as an address ends the search: everything left of it is hearsay. Where
    /// both are there and differ, the client has written one of them, and neither is believed.
    #[must_use]
    pub fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Caller {
        let via_trusted = self.is_trusted(peer.ip);
        let ip = if via_trusted { self.named(peer.ip, headers) } else { peer.ip };
        Caller { ip, via_trusted }
    }

    fn named(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let listed = entries(headers, X_FORWARDED_FOR).map(parse);
        let forwarded = entries(headers, header::FORWARDED);
        let forwarded = forwarded.map(|element| parse(forwarded_for(element)?));
        match (headers.contains_key(X_FORWARDED_FOR), headers.contains_key(header::FORWARDED)) {
            (false, false) => peer,
            (true, false) => self.last_untrusted(peer, listed),
            (false, true) => self.last_untrusted(peer, forwarded),
            (true, true) => {
                let listed = self.last_untrusted(peer, listed);
                if listed == self.last_untrusted(peer, forwarded) { listed } else { peer }
            }
        }
    }

    fn last_untrusted(
        &self,
        peer: IpAddr,
        mut named: impl Iterator<Item = Option<IpAddr>>,
    ) -> IpAddr {
        let mut ip = peer;
        while self.is_trusted(ip) {
            match named.next() {
                Some(Some(named)) => ip = named,
                _ => break,
            }
        }
        ip
    }

    /// The part of an address that limits count by.
    #[must_use]
    pub fn counted(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(_) => ip,
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & self.ipv6_mask)),
        }
    }

    fn is_trusted(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&ip))
    }
}

/// The elements of a list header, last first, without empty ones.
fn entries(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter().rev();
    let entries = values.flat_map(|value| value.as_bytes().rsplit(|&byte| byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
}

/// The `for` of one element of `Forwarded`, RFC 7239 section 4. A comma or semicolon within
/// quotes cuts the value short; no address has one, so what is left is then no address.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    element.split(|&byte| byte == b';').find_map(|pair| {
        let (name, value) = pair.trim_ascii().split_at_checked(4)?;
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        name.eq_ignore_ascii_case(b"for=").then_some(quoted.unwrap_or(value))
    })
}

/// An address as proxies write it: bare, bracketed, or with a port.
fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    ip.ok().map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn caller(peer: &str, forwarded: &[&str]) -> String {
        caller_by(X_FORWARDED_FOR, peer, forwarded)
    }

    fn caller_by(name: HeaderName, peer: &str, forwarded: &[&str]) -> String {
        let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let addresses = Addresses::new(&Identity { trusted_proxies, ipv6_prefix: 64 });
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(&name, HeaderValue::from_str(value).unwrap());
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
        let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        let addresses = Addresses::new(&Identity { trusted_proxies, ipv6_prefix: 64 });
        let peer = Peer::new("10.0.0.1:1".parse().unwrap());
        for (forwarded, expected) in [("for=9.9.9.9", "9.9.9.9"), ("for=6.6.6.6", "10.0.0.1")] {
            let mut headers = HeaderMap::new();
            headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("9.9.9.9"));
            headers.insert(header::FORWARDED, HeaderValue::from_static(forwarded));
            assert_eq!(addresses.caller(&peer, &headers).ip.to_string(), expected);
        }
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
}
