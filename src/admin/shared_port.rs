//! The port of the admin listener while one process leaves and the next one starts.
//!
//! A gateway that drains still answers `/readyz` and `/metrics`, and must not keep its successor from
//! starting. So it lets others bind the address from then on (`SO_REUSEPORT`, which asks for the same
//! user), and leaves it to them once somebody has. Before that the address is its own, so that two
//! gateways with one admin address by mistake are noticed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::SockRef;

use crate::listen::socket;

/// How often a process that leaves looks for its successor.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Opens the listening socket, beside that of a gateway that drains if need be. It then stays shared:
/// Linux remembers that of the port.
///
/// # Errors
/// If the address is in use, not of this machine, or not allowed.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let alone = socket::bind_tcp(address);
    match alone {
        Err(error) if error.kind() == ErrorKind::AddrInUse => socket::bind_shared(address),
        bound => bound,
    }
}

/// Lets a process of the same user bind the address as well.
///
/// # Errors
/// If the system cannot do that.
pub(super) fn share(listener: &tokio::net::TcpListener) -> io::Result<()> {
    SockRef::from(listener).set_reuse_port(true)
}

/// Resolves when another socket listens on the same address.
pub(super) async fn taken(listener: &tokio::net::TcpListener) {
    let Ok(address) = listener.local_addr() else { return std::future::pending().await };
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    while listeners_on(address).unwrap_or(0) < 2 {
        look.tick().await;
    }
}

/// How many sockets listen on an address, as Linux tells it: they come first in its table. It is read in
/// pieces, so one that was closed or opened meanwhile may shift another out of sight or into it twice.
fn listeners_on(address: SocketAddr) -> io::Result<usize> {
    const LISTEN: &str = "0A";
    let table = if address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let wanted = in_table(address);
    let mut inodes = HashSet::new();
    for line in BufReader::new(File::open(table)?).lines().skip(1) {
        let line = line?;
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, state, inode) = (columns.next(), columns.nth(1), columns.nth(5));
        if state != Some(LISTEN) {
            break;
        }
        if local == Some(&wanted) {
            inodes.extend(inode.map(str::to_owned));
        }
    }
    Ok(inodes.len())
}

/// An address as Linux writes it: words in the order of the machine, in hexadecimal.
fn in_table(address: SocketAddr) -> String {
    let mut text = String::new();
    let mut words = |octets: &[u8]| {
        for word in octets.chunks_exact(4) {
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            text.push_str(&format!("{word:08X}"));
        }
    };
    match address {
        SocketAddr::V4(address) => words(&address.ip().octets()),
        SocketAddr::V6(address) => words(&address.ip().octets()),
    }
    format!("{text}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks again, as `taken` does: other tests open and close sockets while the table is read.
    fn has_listeners(address: SocketAddr, count: usize) -> bool {
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            listeners_on(address).unwrap() == count
        })
    }

    #[test]
    fn a_listener_is_found_in_the_table_of_the_system() {
        // An IPv4 address of its own, so that nobody else gets the port.
        for any in ["127.91.7.1:0", "[::1]:0"] {
            let Ok(listener) = bind(any.parse().unwrap()) else { continue };
            let address = listener.local_addr().unwrap();
            assert!(has_listeners(address, 1), "{address}");
            drop(listener);
            assert!(has_listeners(address, 0), "{address}");
        }
    }

    #[tokio::test]
    async fn an_address_is_bound_twice_only_once_it_is_shared() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
        let first = tokio::net::TcpListener::from_std(first).unwrap();
        share(&first).unwrap();
        let second = bind(address).unwrap();
        taken(&first).await;
        drop(first);
        assert_eq!(second.local_addr().unwrap(), address);
    }
}
