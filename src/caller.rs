//! Who sent the request.

pub mod address;

pub use address::Addresses;

use std::net::{IpAddr, SocketAddr};

/// The other end of a connection, as the socket says, with its address in the forms that
/// forwarding headers want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub ip: IpAddr,
    /// As in `X-Forwarded-For`.
    pub text: String,
    /// As in the `for` of `Forwarded`, RFC 7239 section 6.
    pub node: String,
}

impl Peer {
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        Peer { ip, text: ip.to_string(), node }
    }
}

/// The one the limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub ip: IpAddr,
    /// Whether the peer is a proxy whose forwarding headers are believed.
    pub via_trusted: bool,
}
