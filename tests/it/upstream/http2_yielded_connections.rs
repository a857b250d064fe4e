//! Connections that requests of one worker share, and that are given up because those of another wait.

use crate::support::http2_upstream::{Http2Options, Http2Upstream};
use crate::support::{Client, Config, Weir, get, wait_until};

/// An upstream that allows two streams a connection.
fn upstream_of_two_streams() -> Http2Upstream {
    Http2Upstream::with(Http2Options { max_streams: Some(2), ..Http2Options::default() })
}

/// Connections of clients are dealt to the workers by turns.
fn start(upstream: &Http2Upstream, workers: usize, lines: &str) -> Weir {
    let config = Config::to_servers(&[upstream.address()]).open().upstream("http2 = true");
    Weir::start(&config.upstream(lines).server(&format!("workers = {workers}")))
}

fn pending(weir: &Weir) -> Option<f64> {
    weir.metrics().value("weir_upstream_pending", &[("upstream", "api")])
}

/// A request waits in vain for a connection, while those of another worker are answered over theirs.
fn wait_in_vain(weir: &Weir, waits: &mut Client, asks: &mut Client) {
    waits.send(get("/"));
    wait_until("one of the other worker waits", || pending(weir) == Some(1.0));
    wait_until("it has waited in vain", || {
        assert_eq!(asks.ask(get("/")).status, 200);
        pending(weir) == Some(0.0)
    });
    assert_eq!(waits.response().status, 503);
}

#[test]
fn a_request_that_waits_in_vain_takes_no_more_than_one_connection_from_another_worker() {
    let upstream = upstream_of_two_streams();
    // More workers than connections: none is kept for those that have none.
    let weir = start(&upstream, 3, "max_connections = 2\nconnect_timeout = \"2s\"");
    let mut clients = [(); 10].map(|()| weir.connect());
    let [first, other, _, second, _, _, third, _, _, asks] = &mut clients;
    // Two share one connection, and the other one has room.
    let mut held = [first, second, third];
    for (count, client) in (1..).zip(&mut held) {
        client.send(get("/held"));
        wait_until("it is held", || upstream.open() == count);
    }
    assert_eq!(upstream.connections(), 2);
    wait_in_vain(&weir, other, asks);
    upstream.release();
    assert!(held.iter_mut().all(|client| client.response().status == 200));
}

#[test]
fn a_long_stream_takes_the_server_from_no_client_of_its_worker() {
    let upstream = Http2Upstream::start();
    let weir = start(&upstream, 2, "max_connections = 1\nconnect_timeout = \"1s\"");
    let [mut long, mut other, mut asks] = [(); 3].map(|()| weir.connect());
    long.send(get("/held"));
    wait_until("it is held", || upstream.open() == 1);
    // For the first the connection is given up, and taken back; for the second it is not given up again.
    for _ in 0..2 {
        wait_in_vain(&weir, &mut other, &mut asks);
    }
    // The long stream has ended: the connection goes to the other worker.
    upstream.release();
    assert_eq!(long.response().status, 200);
    assert_eq!((other.ask(get("/")).status, asks.ask(get("/")).status), (200, 200));
}

#[test]
fn a_worker_without_a_connection_gets_one_while_another_has_more_streams_than_one_takes() {
    let upstream = upstream_of_two_streams();
    let weir = start(&upstream, 2, "max_connections = 2\nconnect_timeout = \"60s\"");
    let [mut first, mut other, mut second, _idle, mut third] = [(); 5].map(|()| weir.connect());
    for (count, client) in (1..).zip([&mut first, &mut second]) {
        client.send(get("/held"));
        wait_until("it is held", || upstream.open() == count);
    }
    third.send(get("/held"));
    wait_until("it is held, or waits", || upstream.open() == 3 || pending(&weir) == Some(1.0));
    other.send(get("/"));
    wait_until("it is answered, or waits as well", || {
        upstream.requests().len() == 3 || pending(&weir) == Some(1.0) && upstream.open() == 3
    });
    assert!(upstream.requests().iter().any(|request| request.uri.path() == "/"));
    assert_eq!((other.response().status, upstream.connections()), (200, 2));
    upstream.release();
    assert_eq!((first.response().status, second.response().status), (200, 200));
    wait_until("the third has a stream", || upstream.open() == 1);
    upstream.release();
    assert_eq!(third.response().status, 200);
}
