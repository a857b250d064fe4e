//! Who sent the request.

pub mod access;
pub mod address;
pub mod clients;
pub mod form;
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
    /// Its request waits for a limit to let it pass.
    waits: Cell<bool>,
    charge: Cell<PendingCharge>,
    left: Cell<bool>,
}

/// Whether a peer's request is to be charged by its response, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PendingCharge {
    #[default]
    None,
    /// The upstream has not seen it yet.
    Unsent,
    /// The upstream may be at work on it, whoever is still there to hear of it.
    Sent,
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

    /// Whether its request waits for its turn. Then one who has finished sending counts as gone: most
    /// of those have closed their connection, and no place in a line is to be kept for them.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Says that the response to its request will be charged.
    pub fn expect_charge(&self) {
        self.charge.set(PendingCharge::Unsent);
    }

    /// Says that its request is on its way to an upstream.
    pub fn note_sent(&self) {
        if self.charge.get() == PendingCharge::Unsent {
            self.charge.set(PendingCharge::Sent);
        }
    }

    /// Says that what had to be charged was.
    pub fn note_charged(&self) {
        self.charge.set(PendingCharge::None);
    }

    /// Whether an upstream has its request and the response is still to be charged. Then the exchange
    /// is seen through, though the peer has left.
    #[must_use]
    pub fn awaits_charge(&self) -> bool {
        self.charge.get() == PendingCharge::Sent
    }

    pub fn note_left(&self) {
        self.left.set(true);
    }

    /// Whether it left before its answer.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left.get()
    }

    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        let text = ip.to_string();
        Peer {
            ip,
            text,
            node,
            waits: Cell::default(),
            charge: Cell::default(),
            left: Cell::default(),
        }
    }
}

/// The one the limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub ip: IpAddr,
    /// Whether the peer is a proxy whose forwarding headers are believed.
    pub via_trusted: bool,
}
