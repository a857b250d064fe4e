//! Connections that requests of one worker share, and that are given up because those of another wait.

use crate::support::http2_upstream::{Http2Options, Http2Upstream};
use crate::support::{Config, Weir, get, wait_until};

#[test]
fn a_request_that_waits_in_vain_takes_no_more_than_one_connection_from_another_worker() {
    let options = Http2Options { max_streams: Some(2), ..Http2Options::default() };
    let upstream = Http2Upstream::with(options);
    let lines = "http2 = true\nmax_connections = 2\nconnect_timeout = \"2s\"";
    let config = Config::to_servers(&[upstream.address()]).open().upstream(lines);
    let weir = Weir::start(&config.server("workers = 2"));
    // Dealt to the workers by turns.
    let [mut first, mut other, mut second, _idle, mut third, _as_idle, mut asks] =
        [(); 7].map(|()| weir.connect());
    // Two share one connection, and the other one has room.
    for (count, client) in (1..).zip([&mut first, &mut second, &mut third]) {
        client.send(get("/held"));
        wait_until("it is held", || upstream.open() == count);
    }
    assert_eq!(upstream.connections(), 2);
    other.send(get("/"));
    let pending = || weir.metrics().value("weir_upstream_pending", &[("upstream", "api")]);
    wait_until("one of the other worker waits", || pending() == Some(1.0));
    wait_until("it has waited in vain", || {
        assert_eq!(asks.ask(get("/")).status, 200);
        pending() == Some(0.0)
    });
    assert_eq!(other.response().status, 503);
    upstream.release();
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.response().status, 200);
    }
}
