//! Ports that stay free until a server of the test binds them.
//!
//! A server that is killed and comes back needs the port it had. So these lie below the range
//! from which the system serves port 0 and outgoing connections: only another run of the tests
//! could take one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

const FIRST: usize = 12_000;
const COUNT: usize = 20_000;
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A port of the loopback address that is not in use.
#[track_caller]
pub(crate) fn free_port() -> u16 {
    let start = std::process::id() as usize * 611;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + (start + step) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// An address at which nobody listens, nor will.
#[track_caller]
pub(crate) fn nobody() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
