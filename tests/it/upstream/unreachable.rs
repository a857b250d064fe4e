//! Servers that cannot be connected to, while there are others.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Config, Upstream, Weir, get};

/// A listener whose queue is full: the system answers no further connection.
struct Full {
    address: SocketAddr,
    _kept: (socket2::Socket, Vec<socket2::Socket>),
}

impl Full {
    fn start() -> Full {
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = socket().unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let waiting = (0..4).map(|_| {
            let waits = socket().unwrap();
            let _ = waits.connect_timeout(&address.into(), Duration::from_millis(50));
            waits
        });
        let waiting = waiting.collect();
        Full { address, _kept: (listener, waiting) }
    }
}

#[test]
fn unreachable_server_fails_no_request_while_another_is_up() {
    let (gone, good) = (Full::start(), Upstream::ok());
    for balance in ["round_robin", "least_requests", "random"] {
        let servers = [gone.address, good.address()];
        let lines = format!("balance = \"{balance}\"\nconnect_timeout = \"300ms\"\nretries = 1");
        let weir = Weir::start(&Config::to_servers(&servers).open().upstream(&lines));
        // More at once than retries have a budget for: nothing was sent, so they need none.
        let mut clients: Vec<_> = (0..80).map(|_| weir.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(get("/")));
        for client in &mut clients {
            assert_eq!(client.response().status, 200, "{balance}");
        }
    }
}
