//! Connections over HTTP/2 that end with requests of several clients on them, or cannot be had.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::failing_clients::{TRUSTED, breaker_is_open, of};
use crate::support::http2_upstream::Http2Upstream;
use crate::support::{Client, Config, Weir, get_with, wait_until};

const BREAKER: &str = "retries = 0\nbreaker = { failures = 4, window = \"1m\", open = \"1h\" }";

/// One worker, so that its requests share a connection.
fn config(servers: &[SocketAddr], lines: &str) -> Config {
    let config = Config::to_servers(servers).open().also(TRUSTED).server("workers = 1");
    config.upstream("http2 = true").upstream(lines)
}

/// A request with a body, so that it is not sent again.
fn post_of(client: usize, path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{client}\r\n\
         Content-Length: 1\r\n\r\nx"
    )
}

#[test]
fn the_end_of_a_shared_connection_is_one_failure_however_many_requests_it_had() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&[upstream.address()], BREAKER));
    let mut clients: Vec<Client> = (1..=8).map(|_| weir.connect()).collect();
    for (client, number) in clients.iter_mut().zip(1..) {
        client.send(post_of(number, "/held"));
    }
    wait_until("all are there", || upstream.open() == clients.len());
    assert_eq!(weir.ask(post_of(9, "/fatal")).status, 502);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 502));
    assert!(!breaker_is_open(&weir));
    let labels = [("upstream", "api"), ("error", "broken")];
    let counted = || weir.metrics().value("weir_upstream_errors_total", &labels);
    wait_until("each is counted as an error", || counted() == Some(9.0));
}

#[test]
fn a_client_that_ends_connections_opens_the_breaker_for_none_that_shared_them() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&[upstream.address()], BREAKER));
    for number in 1..=4 {
        let mut other = weir.connect();
        other.send(post_of(number, "/held"));
        wait_until("it is there", || upstream.open() == 1);
        assert_eq!(weir.ask(post_of(9, "/fatal")).status, 502);
        assert_eq!(other.response().status, 502);
        wait_until("it is gone", || upstream.open() == 0);
    }
    assert_eq!(weir.ask(post_of(9, "/fatal")).status, 503, "it is open for this one");
    for number in 1..=5 {
        assert_eq!(weir.ask(post_of(number, "/")).status, 200, "{number}");
    }
}

#[test]
fn the_end_of_a_shared_connection_leaves_no_server_out_for_what_others_had_on_it() {
    let servers = [Http2Upstream::start(), Http2Upstream::start()];
    let lines = "balance = \"hash:header:x-server\"\nretries = 1\n\
                 ejection = { failures = 3, time = \"1h\", max_time = \"1h\" }";
    let addresses = servers.each_ref().map(Http2Upstream::address);
    let weir = Weir::start(&config(&addresses, lines));
    let fields = |client: usize| format!("X-Server: a\r\nX-Forwarded-For: 192.0.2.{client}\r\n");
    let mut clients: Vec<Client> = (1..=6).map(|_| weir.connect()).collect();
    for (client, number) in clients.iter_mut().zip(1..) {
        client.send(get_with("/held", &fields(number)));
    }
    let open = || servers.each_ref().map(Http2Upstream::open);
    wait_until("all are at one server", || open().contains(&6));
    let other = open().iter().position(|open| *open == 0).unwrap();
    assert_eq!(weir.ask(get_with("/fatal", &fields(9))).status, 502);
    wait_until("all are repeated at the other", || open()[other] == 6);
    servers.iter().for_each(Http2Upstream::release);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert_eq!(weir.metrics().value("weir_upstream_ejections_total", &[]), Some(0.0));
}

/// Takes one connection, and refuses all further ones.
fn take_one_connection(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        drop(listener);
        let server = TcpStream::connect(server).unwrap();
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        };
        let (answers, requests) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || copy(answers, requests));
        copy(client, server);
    });
    address
}

#[test]
fn a_connection_of_its_own_that_cannot_be_had_costs_no_other_client_the_shared_one() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&[take_one_connection(upstream.address())], BREAKER));
    assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 200, "which is shared from now on");
    let large = format!("X-Forwarded-For: 192.0.2.1\r\nX-Large: {}\r\n", "x".repeat(12_000));
    (0..4).for_each(|_| assert_eq!(weir.ask(get_with("/", &large)).status, 502));
    assert_eq!(weir.ask(of("192.0.2.1", "/")).status, 503, "the breaker is open for this one");
    assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 200);
}
