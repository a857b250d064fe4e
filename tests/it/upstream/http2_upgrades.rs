//! Upgrades, which need a connection of their own, beside requests that share one over HTTP/2.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::support::held_upstream::{HeldUpstream, UPGRADE};
use crate::support::http2_upstream::Http2Upstream;
use crate::support::{Client, Config, Weir, check_for, get, wait_until};

/// A server that speaks both versions, whichever a connection begins with.
struct Server {
    http1: HeldUpstream,
    http2: Http2Upstream,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let (http1, http2) = (HeldUpstream::start(), Http2Upstream::start());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let targets = [http1.upstream.address(), http2.address()];
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || serve(&client, targets));
            }
        });
        Server { http1, http2, address }
    }

    /// One worker, so that all share what it has.
    fn weir(&self, max_connections: usize) -> Weir {
        let lines =
            format!("http2 = true\nmax_connections = {max_connections}\nconnect_timeout = \"60s\"");
        let config = Config::to_servers(&[self.address]).open().upstream(&lines);
        Weir::start(&config.server("workers = 1"))
    }
}

fn serve(client: &TcpStream, [http1, http2]: [SocketAddr; 2]) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first)?;
    // Of the preface of HTTP/2; here every other request is a GET.
    let server = TcpStream::connect(if first == *b"P" { http2 } else { http1 })?;
    thread::scope(|scope| {
        scope.spawn(|| pass(client, &server));
        pass(&server, client);
    });
    Ok(())
}

/// Passes on what comes, until either side closes.
fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

fn upgrade(weir: &Weir) -> Client {
    let mut client = weir.connect();
    client.send(UPGRADE);
    client
}

fn pending(weir: &Weir) -> f64 {
    weir.metrics().value("weir_upstream_pending", &[("upstream", "api")]).unwrap()
}

#[test]
fn an_idle_shared_connection_is_closed_for_an_upgrade() {
    let server = Server::start();
    let weir = server.weir(1);
    assert_eq!(weir.get("/").status, 200);
    let mut tunnel = upgrade(&weir);
    assert_eq!(tunnel.response().status, 101);
    wait_until("it is closed", || server.http2.open_connections() == 0);
    // And the other way round.
    drop(tunnel);
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn an_upgrade_that_waits_for_a_connection_stops_no_request_that_shares_one() {
    let server = Server::start();
    let weir = server.weir(2);
    let mut held = weir.connect();
    held.send(get("/held"));
    wait_until("it is held", || server.http2.open() == 1);
    let mut tunnel = upgrade(&weir);
    assert_eq!(tunnel.response().status, 101);
    let mut waits = upgrade(&weir);
    wait_until("another one waits", || pending(&weir) == 1.0);
    // For longer than it takes until connections are given up for those that wait.
    check_for(Duration::from_millis(500), || assert_eq!(weir.get("/").status, 200));
    assert_eq!(pending(&weir), 1.0);
    server.http1.release("/tunnel");
    assert_eq!(waits.response().status, 101);
    server.http2.release();
    assert_eq!(held.response().status, 200);
    assert_eq!(server.http2.connections(), 1);
}
