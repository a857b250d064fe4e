//! The caller's address: the peer's own, or what trusted proxies say it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName};
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

    /// Reads `X-Forwarded-For` from right to left while its authors are trusted. What cannot be
    /// read as an address ends the search: everything left of it is hearsay.
    #[must_use]
    pub fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Caller {
        let mut ip = peer.ip;
        let via_trusted = self.is_trusted(ip);
        if via_trusted {
            let values = headers.get_all(X_FORWARDED_FOR);
            let entries =
                values.iter().rev().flat_map(|value| value.as_bytes().rsplit(|&b| b == b','));
            for entry in entries.filter(|entry| !entry.trim_ascii().is_empty()) {
                let Some(named) = parse(entry.trim_ascii()) else { break };
                ip = named;
                if !self.is_trusted(ip) {
                    break;
                }
            }
        }
        Caller { ip, via_trusted }
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
        let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let addresses = Addresses::new(&Identity { trusted_proxies, ipv6_prefix: 64 });
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
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
