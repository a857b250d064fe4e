//! The caller's address: the peer's own, or what trusted proxies say it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::{IpNet, Ipv4Net};

use super::{AddressSource, Caller, Peer};
use crate::config::settings::Identity;
use crate::limit::source;

pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What a peer that comes by a Unix socket counts as: no host has this address, so all such peers are
/// one caller, unless they are trusted and name another.
pub const UNIX_PEER: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

#[derive(Debug, Clone)]
pub struct Addresses {
    trusted: Vec<IpNet>,
    /// The one that is read, if one is named.
    header: Option<HeaderName>,
    ipv6_prefix: u8,
}

impl Addresses {
    pub fn new(identity: &Identity) -> Self {
        Addresses {
            trusted: identity.trusted_proxies.clone(),
            header: identity.address_header.clone(),
            ipv6_prefix: identity.ipv6_prefix,
        }
    }

    /// Reads the header that the configuration names from right to left while its authors are
    /// trusted. What cannot be read as an address ends the search: everything left of it is
    /// hearsay. If none is named, `X-Forwarded-For` and `Forwarded` are read; where both are there
    /// and differ, the client has written one of them, and neither is believed.
    pub fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Caller {
        let via_trusted = self.is_trusted(peer.ip);
        let ip = if via_trusted { self.named(peer.ip, headers) } else { peer.ip };
        Caller { ip, via_trusted }
    }

    /// Where a caller's address was found.
    #[must_use]
    pub fn source(&self, caller: Caller, peer: &Peer, headers: &HeaderMap) -> AddressSource<'_> {
        match &self.header {
            _ if !caller.via_trusted || caller.ip == peer.ip => AddressSource::Peer,
            Some(name) => AddressSource::Header(name),
            None if headers.contains_key(X_FORWARDED_FOR) => AddressSource::ForwardedFor,
            None => AddressSource::Forwarded,
        }
    }

    fn named(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let listed = entries(headers, &X_FORWARDED_FOR).map(parse);
        let forwarded = entries(headers, &header::FORWARDED);
        let forwarded = forwarded.map(|element| parse(forwarded_for(element)?));
        match &self.header {
            Some(name) if *name == header::FORWARDED => {
                return self.last_untrusted(peer, forwarded);
            }
            Some(name) => return self.last_untrusted(peer, entries(headers, name).map(parse)),
            None => {}
        }
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
    pub fn counted(&self, ip: IpAddr) -> IpAddr {
        source::cut(ip, self.ipv6_prefix)
    }

    /// Whether a peer's word on whom it speaks for is believed.
    pub fn is_trusted(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&ip))
    }
}

/// A network of IPv4-mapped addresses as one of IPv4, which is what callers' addresses are compared as.
pub fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let mapped = v6.prefix_len().checked_sub(96).zip(v6.network().to_ipv4_mapped());
    let v4 = mapped.and_then(|(prefix, ip)| Ipv4Net::new(ip, prefix).ok());
    v4.map_or(network, IpNet::V4)
}

/// The elements of a list header, last first, without empty ones.
fn entries<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let values = headers.get_all(name).into_iter().rev();
    let entries = values.flat_map(|value| value.as_bytes().rsplit(|&byte| byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
}

/// The `for` of one element of `Forwarded`, RFC 7239 section 4. A comma within quotes cuts an element
/// in two, and a client whose host a proxy quotes may have put it there: what has half a pair of
/// quotes, or an escape that could hide one, is not read.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    let quotes = element.iter().filter(|&&byte| byte == b'"').count();
    if quotes % 2 == 1 || element.contains(&b'\\') {
        return None;
    }
    let mut within = false;
    let mut pairs = element.split(|&byte| {
        within ^= byte == b'"';
        byte == b';' && !within
    });
    pairs.find_map(|pair| {
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
#[path = "address/tests.rs"]
mod tests;
