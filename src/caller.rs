//! Who sent the request.

pub mod access;
pub mod address;
pub mod clients;
pub mod form;
pub mod identity;
pub mod jwt;

pub use access::AccessLists;
pub use address::Addresses;
pub use identity::Identity;

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;

use crate::limit::source::ClientCertificate;

/// The other end of a connection, as the socket or a PROXY header says, with its address in the
/// forms that forwarding headers want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub ip: IpAddr,
    /// As in `X-Forwarded-For`.
    pub text: String,
    /// As in the `for` of `Forwarded`, RFC 7239 section 6.
    pub node: String,
    /// The certificate that it has shown, if it has.
    pub certificate: Option<Box<ClientCertificate>>,
}

impl Peer {
    pub fn new(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        Peer { ip, text: ip.to_string(), node, certificate: None }
    }
}

/// The client whose requests are counted, by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub ip: IpAddr,
    /// Whether the peer is a proxy whose forwarding headers are believed.
    pub via_trusted: bool,
}

/// Where a caller's address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource<'a> {
    /// The connection's own.
    Peer,
    /// `X-Forwarded-For`, by a trusted proxy.
    ForwardedFor,
    /// `Forwarded`, by a trusted proxy.
    Forwarded,
    /// The one header that the configuration names.
    Header(&'a HeaderName),
}
