//! Heads over which a connection to an HTTP/2 server may end: they cost nobody else theirs.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::faults::proxy_error;
use super::http2::config;
use crate::support::frame_server::FrameServer;
use crate::support::frames::{DATA, END_STREAM};
use crate::support::http2_upstream::{Http2Options, Http2Received, Http2Upstream};
use crate::support::{Client, Config, Weir, get, wait_until};

/// A request over which nginx ends the connection; here any for that path will do.
fn large(path: &str) -> String {
    let field = "x".repeat(12_000);
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Large: {field}\r\n\r\n")
}

fn pending(weir: &Weir) -> f64 {
    weir.metrics().value("weir_upstream_pending", &[("upstream", "api")]).unwrap()
}

/// A client whose request is held at the server.
fn held(weir: &Weir, upstream: &Http2Upstream) -> Client {
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it is held", || upstream.open() == 1);
    client
}

#[test]
fn a_request_with_a_large_head_costs_nobody_else_its_connection() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut others: Vec<_> = (0..3).map(|_| weir.connect()).collect();
    others.iter_mut().for_each(|client| client.send(get("/held")));
    wait_until("all are held", || upstream.open() == 3);
    // nginx ends the connection for a field of this size, and a target is one; here any request for that
    // path will do.
    let large = "x".repeat(12_000);
    let in_field = ("/fatal".to_owned(), format!("X-Large: {large}\r\n"));
    let in_target = (format!("/fatal?q={large}"), String::new());
    for (target, field) in [in_field, in_target] {
        for method in ["GET", "POST"] {
            let lines = format!("Host: a\r\nContent-Length: 0\r\n{field}");
            let response = weir.ask(format!("{method} {target} HTTP/1.1\r\n{lines}\r\n"));
            assert_eq!(response.status, 502, "{method} {:.7}", target);
        }
    }
    assert_eq!(upstream.open(), 3, "those before are still held");
    upstream.release();
    assert!(others.iter_mut().all(|client| client.response().status == 200));
    let is_held = |it: &&Http2Received| it.uri.path() == "/held";
    assert_eq!(upstream.requests().iter().filter(is_held).count(), 3, "none was sent again");
    assert!(upstream.connections() >= 3, "each had a connection of its own");
    wait_until("that is not kept", || upstream.open_connections() == 1);
}

#[test]
fn large_heads_leave_others_a_connection_to_share() {
    let upstream = Http2Upstream::start();
    let lines = "max_connections = 2\nconnect_timeout = \"2s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    assert_eq!(weir.get("/").status, 200);
    let mut clients = [weir.connect(), weir.connect()];
    clients.iter_mut().for_each(|client| client.send(large("/held")));
    wait_until("one has a connection of its own", || upstream.open() == 1);
    wait_until("the other one waits", || pending(&weir) == 1.0);
    // For as long as that may wait, and every time.
    wait_until("it has waited in vain", || {
        assert_eq!(weir.get("/").status, 200);
        pending(&weir) == 0.0
    });
    upstream.release();
    let mut statuses = clients.map(|mut client| client.response().status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
}

/// Servers of which one failure leaves one out for long.
fn touchy(servers: &[SocketAddr], lines: &str) -> Weir {
    let touchy = "http2 = true\nbalance = \"round_robin\"\n\
                  ejection = { failures = 1, time = \"1h\", max_time = \"1h\" }";
    let config = Config::to_servers(servers).open().upstream(&format!("{touchy}\n{lines}"));
    Weir::start(&config.server("workers = 1"))
}

fn ejections(weir: &Weir) -> Option<f64> {
    weir.metrics().value("weir_upstream_ejections_total", &[("upstream", "api")])
}

#[test]
fn a_server_is_not_left_out_for_heads_that_wait_in_vain_for_a_connection_of_their_own() {
    let servers = [(); 2].map(|()| Http2Upstream::start());
    let lines = "max_connections = 2\nconnect_timeout = \"1s\"\nretries = 0";
    let weir = touchy(&servers.each_ref().map(Http2Upstream::address), lines);
    (0..2).for_each(|_| assert_eq!(weir.get("/").status, 200));
    let mut held: Vec<_> = (0..2).map(|_| weir.connect()).collect();
    held.iter_mut().for_each(|client| client.send(large("/held")));
    wait_until("each server has one", || servers.iter().all(|it| it.open() == 1));
    let mut in_vain = [weir.connect(), weir.connect()];
    in_vain.iter_mut().for_each(|client| client.send(large("/")));
    assert_eq!(in_vain.map(|mut client| client.response().status), [503, 503]);
    assert_eq!(ejections(&weir).unwrap_or_default(), 0.0);
}

#[test]
fn a_server_that_takes_no_connection_beside_a_shared_one_is_left_out_for_who_asks_for_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let good = Http2Upstream::start();
    let weir = touchy(&[listener.local_addr().unwrap(), good.address()], "");
    let mut clients = [weir.connect(), weir.connect()];
    clients.iter_mut().for_each(|client| client.send(get("/")));
    let mut server = FrameServer::accept(&listener);
    let stream = server.begin_answer();
    drop(listener);
    (0..4).for_each(|_| assert_eq!(weir.ask(large("/")).status, 200, "the other one answers"));
    assert_eq!(ejections(&weir), Some(1.0));
    server.send(DATA, END_STREAM, stream, b"y");
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
}

#[test]
fn large_heads_wait_in_the_order_in_which_they_came() {
    let upstream = Http2Upstream::start();
    let lines = "max_connections = 2\nconnect_timeout = \"60s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let mut clients: Vec<_> = (0..6).map(|_| weir.connect()).collect();
    clients[0].send(large("/held"));
    wait_until("one is held", || upstream.open() == 1);
    for (number, client) in (1_u32..).zip(&mut clients[1..]) {
        client.send(large(&format!("/{number}")));
        wait_until("it waits", || pending(&weir) == f64::from(number));
    }
    upstream.release();
    assert_eq!(clients[0].response().status, 200);
    // One that comes while others wait.
    clients[0].send(large("/again"));
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    let requests = upstream.requests();
    let paths: Vec<_> = requests.iter().map(|it| it.uri.path()).collect();
    assert_eq!(paths, ["/held", "/1", "/2", "/3", "/4", "/5", "/again"]);
}

#[test]
fn clients_that_send_one_large_head_after_another_all_get_answers() {
    const ENOUGH: usize = 10;
    let upstream = Http2Upstream::start();
    for workers in [1, 2] {
        let lines = "http2 = true\nmax_connections = 2\nconnect_timeout = \"10s\"";
        let config = Config::to_servers(&[upstream.address()]).open().upstream(lines);
        let weir = Weir::start(&config.server(&format!("workers = {workers}")));
        let mut clients: Vec<_> = (0..6).map(|_| weir.connect()).collect();
        // All go on until each has had so many, however few turns the machine gives it.
        let behind = AtomicUsize::new(clients.len());
        clients.iter_mut().for_each(|client| client.send(large("/")));
        let answers: Vec<Vec<u16>> = thread::scope(|scope| {
            let ask_on = |mut client: Client| {
                let mut statuses = vec![client.response().status];
                while behind.load(Ordering::Relaxed) > 0 {
                    statuses.push(client.ask(large("/")).status);
                    if statuses.len() == ENOUGH {
                        behind.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                statuses
            };
            let threads: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || ask_on(client))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let is_good = answers.iter().flatten().all(|status| *status == 200);
        assert!(is_good, "{workers}: {answers:?}");
    }
}

#[test]
fn a_reload_that_allows_more_connections_ends_the_wait_of_large_heads() {
    for more in [8, 0] {
        let upstream = Http2Upstream::start();
        let lines = |max: u32| format!("max_connections = {max}\nconnect_timeout = \"60s\"");
        let weir = Weir::start(&config(&upstream).upstream(&lines(2)));
        let mut clients: Vec<_> = (0..3).map(|_| weir.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(large("/held")));
        wait_until("one is held and the others wait", || {
            upstream.open() == 1 && pending(&weir) == 2.0
        });
        weir.reload(&config(&upstream).upstream(&lines(more)));
        wait_until("all are held", || upstream.open() == 3);
        upstream.release();
        assert!(clients.iter_mut().all(|client| client.response().status == 200), "{more}");
    }
}

#[test]
fn where_no_further_connection_may_be_made_a_large_head_does_not_share_one() {
    let upstream = Http2Upstream::start();
    let lines = "max_connections = 1\nconnect_timeout = \"2s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let mut other = held(&weir, &upstream);
    let response = weir.ask(large("/fatal"));
    assert_eq!((response.status, response.error()), (503, "overloaded".into()));
    assert_eq!((upstream.open(), upstream.requests().len()), (1, 1), "it was not sent");
    upstream.release();
    assert_eq!(other.response().status, 200);
    // An idle one is closed for it, and the next request has one again.
    assert_eq!(weir.ask(large("/")).status, 200);
    assert_eq!(weir.get("/").status, 200);
    let connections: Vec<_> = upstream.requests().iter().map(|it| it.connection).collect();
    assert_eq!(connections, [0, 1, 2]);
}

#[test]
fn a_large_head_that_waits_for_a_connection_stops_no_other_request() {
    let upstream = Http2Upstream::start();
    let lines = "max_connections = 1\nmax_pending = 1\nconnect_timeout = \"60s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let mut other = held(&weir, &upstream);
    let mut waits = weir.connect();
    waits.send(large("/"));
    wait_until("it waits", || pending(&weir) == 1.0);
    let refused = weir.ask(large("/"));
    assert_eq!((refused.status, refused.error()), (503, "overloaded".into()));
    // For longer than it takes until connections are given up for those that wait.
    let start = Instant::now();
    while start.elapsed().as_millis() < 500 {
        assert_eq!(weir.get("/").status, 200);
    }
    waits.wire.reset();
    wait_until("who leaves makes room", || pending(&weir) == 0.0);
    let mut waits = weir.connect();
    waits.send(large("/"));
    wait_until("another waits", || pending(&weir) == 1.0);
    upstream.release();
    assert_eq!((other.response().status, waits.response().status), (200, 200));
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn who_leaves_while_it_waits_for_the_half_of_large_heads_makes_room() {
    let upstream = Http2Upstream::start();
    let lines = "max_connections = 4\nmax_pending = 2\nconnect_timeout = \"60s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    // Another connection may still be made, but for a request that shares it.
    let mut held: Vec<_> = (0..3).map(|_| weir.connect()).collect();
    held[0].send(get("/held"));
    held[1..].iter_mut().for_each(|client| client.send(large("/held")));
    wait_until("all are held", || upstream.open() == 3);
    let mut leaving = [weir.connect(), weir.connect()];
    leaving.iter_mut().for_each(|client| client.send(large("/left")));
    wait_until("both wait", || pending(&weir) == 2.0);
    drop(leaving);
    wait_until("who leaves makes room", || pending(&weir) == 0.0);
    let mut waits = weir.connect();
    waits.send(large("/after"));
    wait_until("another waits", || pending(&weir) == 1.0);
    upstream.release();
    assert!(held.iter_mut().all(|client| client.response().status == 200));
    assert_eq!(waits.response().status, 200);
    assert!(upstream.requests().iter().all(|it| it.uri.path() != "/left"), "they were not sent");
}

#[test]
fn who_leaves_while_another_makes_the_connection_is_not_served() {
    let options =
        Http2Options { settings_delay: Duration::from_secs(5), ..Http2Options::default() };
    let upstream = Http2Upstream::with(options);
    let lines = "max_connections = 2\nconnect_timeout = \"60s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let (mut first, mut leaving) = (weir.connect(), weir.connect());
    first.send(get("/first"));
    wait_until("a connection is being made", || upstream.connections() == 1);
    leaving.send(get("/left"));
    wait_until("another request waits for it", || pending(&weir) == 1.0);
    drop(leaving);
    wait_until("who leaves makes room", || pending(&weir) == 0.0);
    assert_eq!(first.response().status, 200);
    assert_eq!(weir.get("/last").status, 200);
    let requests = upstream.requests();
    let paths: Vec<_> = requests.iter().map(|it| it.uri.path()).collect();
    assert_eq!(paths, ["/first", "/last"]);
}

#[test]
fn large_heads_have_only_so_many_connections_where_nothing_else_bounds_them() {
    let upstream = Http2Upstream::start();
    let lines = "max_pending = 6\nconnect_timeout = \"60s\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let mut other = held(&weir, &upstream);
    let send = || {
        let mut client = weir.connect();
        client.send(large("/held/large"));
        client
    };
    let mut clients: Vec<_> = (0..64).map(|_| send()).collect();
    wait_until("they have connections of their own", || upstream.open() == 65);
    clients.extend((0..6).map(|_| send()));
    wait_until("the rest waits", || pending(&weir) == 6.0);
    let refused = weir.ask(large("/"));
    assert_eq!((refused.status, refused.error()), (503, "overloaded".into()));
    // Requests that share their connection do not stand in that line.
    assert_eq!(weir.get("/").status, 200);
    drop(clients.pop());
    wait_until("who leaves makes room", || pending(&weir) == 5.0);
    upstream.release();
    assert_eq!(other.response().status, 200);
    wait_until("the rest is held", || upstream.open() == 5);
    upstream.release();
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    assert_eq!(upstream.requests().len(), 1 + 1 + 69);
    assert_eq!(upstream.most_open(), 1 + 1 + 64);
}

#[test]
fn the_wait_for_a_slot_leaves_the_whole_connect_timeout_for_the_connection() {
    let options =
        Http2Options { settings_delay: Duration::from_secs(3), ..Http2Options::default() };
    let servers = [options.clone(), options].map(Http2Upstream::with);
    let addresses = servers.each_ref().map(Http2Upstream::address);
    let lines = "http2 = true\nmax_connections = 1\nconnect_timeout = \"6s\"\nretries = 0";
    let config = Config::to_servers(&addresses).open().upstream(lines).server("workers = 1");
    let weir = Weir::start(&config);
    let send = |request: String| {
        let mut client = weir.connect();
        client.send(request);
        client
    };
    // One at each server, on a connection that is not shared.
    let mut held = [send(large("/held")), send(large("/held"))];
    wait_until("both are held", || servers.iter().all(|it| it.open() == 1));
    let mut waiting = [send(large("/")), send(get("/"))];
    wait_until("one waits at each server", || pending(&weir) == 2.0);
    // The passing of time is what counts: what is left of it is less than a connection takes here.
    thread::sleep(Duration::from_millis(3500));
    servers.iter().for_each(Http2Upstream::release);
    assert_eq!(held.each_mut().map(|it| it.response().status), [200, 200]);
    assert_eq!(waiting.each_mut().map(|it| it.response().status), [200, 200]);
    let ejections = weir.metrics().value("weir_upstream_ejections_total", &[("upstream", "api")]);
    assert_eq!(ejections, Some(0.0));
}

#[test]
fn a_response_with_a_large_head_ends_no_other_stream() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut other = held(&weir, &upstream);
    for path in ["/headers/70000", "/headers/200000", "/headers/1200000", "/heads/1200000"] {
        let response = weir.get(path);
        assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
        assert_eq!(proxy_error(&response), "http_protocol_error", "{path}");
    }
    let mut client = weir.connect();
    client.send(get("/large-trailers/200000"));
    assert!(client.try_response().map_or(true, |it| it.truncated), "visibly early");
    assert_eq!(weir.get("/headers/60000").status, 200);
    upstream.release();
    assert_eq!(other.response().status, 200);
    assert_eq!(upstream.connections(), 1);
}
