//! Clients that leave before their answer: what upstreams take for an attack must not end the connection
//! of others.

use super::http2::config;
use crate::support::http2_upstream::{Http2Received, Http2Upstream};
use crate::support::{Weir, get, wait_until};

/// How many requests a connection may have that were given up. Envoy, Netty and others end connections
/// with a few hundred.
const GIVEN_UP: usize = 64;

/// Sends a request and leaves as soon as the server has it.
fn ask_and_leave(weir: &Weir, upstream: &Http2Upstream) {
    let (requests, resets) = (upstream.requests().len(), upstream.resets());
    let mut leaves = weir.connect();
    leaves.send(get("/silent"));
    wait_until("it is there", || upstream.requests().len() == requests + 1);
    leaves.wire.reset();
    wait_until("its stream is reset", || upstream.resets() == resets + 1);
}

/// How many requests for that path each connection has had.
fn by_connection(upstream: &Http2Upstream, path: &str) -> Vec<usize> {
    let requests = upstream.requests();
    let is_there = |it: &&Http2Received, number| it.connection == number && it.uri.path() == path;
    let count = |number| requests.iter().filter(|it| is_there(it, number)).count();
    (0..upstream.connections()).map(count).collect()
}

#[test]
fn no_connection_has_many_requests_that_were_given_up() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut stays = weir.connect();
    stays.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    for _ in 0..3 * GIVEN_UP {
        ask_and_leave(&weir, &upstream);
    }
    assert_eq!(by_connection(&upstream, "/silent"), [GIVEN_UP; 3]);
    upstream.release();
    assert_eq!(stays.response().status, 200);
    assert_eq!(by_connection(&upstream, "/held"), [1, 0, 0], "it was sent once");
    wait_until("the first is closed with its last", || upstream.open_connections() < 3);
}

#[test]
fn answers_make_up_for_requests_that_were_given_up() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    for _ in 0..GIVEN_UP + 10 {
        ask_and_leave(&weir, &upstream);
        assert_eq!(weir.get("/").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    // No more than they were: what is to come is not paid for in advance.
    for _ in 0..GIVEN_UP {
        assert_eq!(weir.get("/").status, 200);
        assert_eq!(weir.get("/").status, 200);
    }
    for _ in 0..GIVEN_UP + 10 {
        ask_and_leave(&weir, &upstream);
    }
    assert_eq!(upstream.connections(), 2);
}

/// With a limit the next request would wait for all that is under way on the old one.
#[test]
fn a_connection_stays_in_use_where_no_other_may_be_made() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream).upstream("max_connections = 1"));
    let mut stays = weir.connect();
    stays.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    for _ in 0..GIVEN_UP + 10 {
        ask_and_leave(&weir, &upstream);
    }
    assert_eq!(weir.get("/").status, 200);
    upstream.release();
    assert_eq!(stays.response().status, 200);
    assert_eq!(upstream.connections(), 1);
    wait_until("it makes room once it is idle", || {
        assert_eq!(weir.get("/").status, 200);
        upstream.connections() == 2
    });
}
