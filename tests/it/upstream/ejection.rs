//! Servers that fail are left out, and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::upstream::{Exchange, ok};
use crate::support::{After, Config, Upstream, Weir, get, post, wait_until};

/// A server that answers or, while it is told so, reads requests and closes.
fn moody() -> (Upstream, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let server = Upstream::scripted(move |exchange| {
        exchange.read_body();
        if is_broken.load(Ordering::SeqCst) {
            return After::Close;
        }
        exchange.reply(ok("ok"));
        After::Keep
    });
    (server, broken)
}

pub(super) fn ejections(weir: &Weir, server: &Upstream) -> f64 {
    let server = server.address().to_string();
    let labels = [("upstream", "api"), ("server", server.as_str())];
    weir.metrics().value("weir_upstream_ejections_total", &labels).unwrap()
}

#[test]
fn a_server_that_breaks_requests_is_left_out_until_a_trial_succeeds() {
    let ((bad, broken), good) = (moody(), Upstream::ok());
    let lines = "balance = \"round_robin\"\nretries = 0\n\
                 ejection = { failures = 3, time = \"200ms\", max_time = \"400ms\" }";
    let servers = [bad.address(), good.address()];
    let weir = Weir::start(&Config::to_servers(&servers).open().upstream(lines));
    let mut client = weir.connect();
    let mut failures = 0;
    wait_until("the server is left out", || {
        failures += usize::from(client.ask(post("/", "x")).status == 502);
        ejections(&weir, &bad) == 1.0
    });
    assert_eq!(failures, 3, "after three in a row");
    let text = ", for the one client whose requests failed: 3 requests in a row got no response";
    wait_until("that is logged", || weir.output().contains(text));

    // Each trial fails one request, so there are few of them.
    let seen = bad.heads();
    let before = std::time::Instant::now();
    for _ in 0..50 {
        client.ask(post("/", "x"));
    }
    let periods = before.elapsed().as_millis() as usize / 200 + 1;
    assert!(bad.heads() - seen <= periods, "{} trials", bad.heads() - seen);

    broken.store(false, Ordering::SeqCst);
    wait_until("the server is back", || {
        client.ask(post("/", "x"));
        weir.output().contains("answers again")
    });
    let seen = bad.heads();
    (0..10).for_each(|_| assert_eq!(client.ask(post("/", "x")).status, 200));
    assert_eq!(bad.heads() - seen, 5, "it has its share again");
    assert_eq!(ejections(&weir, &bad), 1.0, "failed trials are part of the same ejection");
}

#[test]
fn most_servers_stay_however_many_fail() {
    let servers: Vec<_> = (0..4).map(|_| moody()).collect();
    let addresses: Vec<_> = servers.iter().map(|(server, _)| server.address()).collect();
    let lines = "balance = \"round_robin\"\nretries = 0\n\
                 ejection = { failures = 1, time = \"1h\", max_time = \"1h\", max_percent = 50 }";
    let weir = Weir::start(&Config::to_servers(&addresses).open().upstream(lines));
    let mut client = weir.connect();
    for _ in 0..40 {
        assert_eq!(client.ask(post("/", "x")).status, 502);
    }
    let out = servers.iter().filter(|(server, _)| ejections(&weir, server) == 1.0).count();
    assert_eq!(out, 2);
    // Those that stay answer once they can.
    servers.iter().for_each(|(_, broken)| broken.store(false, Ordering::SeqCst));
    for _ in 0..20 {
        assert_eq!(client.ask(post("/", "x")).status, 200);
    }
}

#[test]
fn a_server_that_is_restarted_is_back_with_the_next_connection() {
    let good = Upstream::ok();
    let port = crate::support::ports::nobody();
    let lines = "balance = \"round_robin\"\nejection = { time = \"100ms\", max_time = \"100ms\" }";
    let servers = [port, good.address()];
    let weir = Weir::start(&Config::to_servers(&servers).open().upstream(lines));
    let mut client = weir.connect();
    (0..10).for_each(|_| assert_eq!(client.ask(get("/")).status, 200));
    wait_until("that is logged", || weir.output().contains("cannot be reached"));
    // It accepts and hangs up, so that requests are repeated at the other.
    let listener = std::net::TcpListener::bind(port).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    wait_until("it is connected to again", || {
        assert_eq!(client.ask(get("/")).status, 200);
        weir.output().contains("can be reached again")
    });
}

#[test]
fn none_of_the_servers_is_left_out_where_none_may_be_and_else_one_may() {
    for (percent, left_out) in [(0, 0), (10, 1)] {
        let servers = [moody(), moody()];
        let addresses: Vec<_> = servers.iter().map(|(server, _)| server.address()).collect();
        let lines = format!(
            "balance = \"round_robin\"\nretries = 0\n\
             ejection = {{ failures = 1, time = \"1h\", max_time = \"1h\", max_percent = {percent} }}"
        );
        let weir = Weir::start(&Config::to_servers(&addresses).open().upstream(&lines));
        let mut client = weir.connect();
        for _ in 0..20 {
            assert_eq!(client.ask(post("/", "x")).status, 502);
        }
        let out = servers.iter().filter(|(server, _)| ejections(&weir, server) == 1.0).count();
        assert_eq!(out, left_out, "{percent} %");
    }
}

/// An answer whose end may be taken to be in one of two places.
fn two_lengths(exchange: &mut Exchange<'_>) -> After {
    exchange.read_body();
    let fields = "Content-Length: 1\r\nTransfer-Encoding: chunked";
    exchange.reply(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n0\r\n\r\n"));
    After::Close
}

#[test]
fn a_server_whose_answers_have_two_lengths_is_left_out() {
    let (bad, good) = (Upstream::scripted(two_lengths), Upstream::ok());
    let lines = "balance = \"round_robin\"\nretries = 0\n\
                 ejection = { failures = 3, time = \"1h\", max_time = \"1h\" }";
    let servers = [bad.address(), good.address()];
    let weir = Weir::start(&Config::to_servers(&servers).open().upstream(lines));
    let mut client = weir.connect();
    wait_until("the server is left out", || {
        client.ask(post("/", "x"));
        ejections(&weir, &bad) == 1.0
    });
    (0..4).for_each(|_| assert_eq!(client.ask(post("/", "x")).status, 200));
}
