//! Who sent the request.

pub mod access;
pub mod address;
pub mod clients;
pub mod identity;
pub mod jwt;

pub use access::{Access, AccessList};
pub use address::Addresses;
pub use identity::Identity;

use std::cell::Cell;
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
    /// Its request waits for a limit to let it pass, or holds a place that others wait for.
    waits: Cell<bool>,
}

/// Holds while a peer's request waits.
#[derive(Debug)]
pub struct Waits<'a>(&'a Cell<bool>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Peer {
    /// Says that its request waits, for as long as what is returned lives.
    #[must_use]
    pub fn wait(&self) -> Waits<'_> {
        self.waits.set(true);
        Waits(&self.waits)
    }

    /// Whether its request waits for its turn, or has others wait for theirs. Then one who has
    /// finished sending counts as gone: most of those have closed their connection, and no place is
    /// to be kept for them.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        Peer { ip, text: ip.to_string(), node, waits: Cell::new(false) }
    }
}

/// The one the limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub ip: IpAddr,
    /// Whether the peer is a proxy whose forwarding headers are believed.
    pub via_trusted: bool,
}
