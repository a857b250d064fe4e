//! HTTP/2 upstreams that refuse, reset, go away, hang or die.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::failing_clients::{TRUSTED, of};
use super::faults::proxy_error;
use super::http2::config;
use crate::support::frame_server::FrameServer;
use crate::support::frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, WINDOW_UPDATE};
use crate::support::http2_upstream::{Http2Options, Http2Received, Http2Upstream};
use crate::support::nginx::Nginx;
use crate::support::ports::free_port;
use crate::support::{Client, Config, Upstream, Weir, get, post, wait_until};

/// Of SETTINGS: RFC 9113 section 6.5.2.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// How often an error of the upstream was counted.
fn counted(weir: &Weir, error: &str) -> f64 {
    let labels = [("upstream", "api"), ("error", error)];
    weir.metrics().value("weir_upstream_errors_total", &labels).unwrap()
}

/// Asks again and again until `end`, twenty times at least, and fails if an answer is not 200.
fn ask_until(weir: &Weir, end: &Arc<AtomicBool>, request: &str) -> Vec<thread::JoinHandle<()>> {
    let asked = Arc::new(AtomicUsize::new(0));
    let threads = (0..6).map(|_| {
        let (address, end, request) = (weir.address(), Arc::clone(end), request.to_owned());
        let asked = Arc::clone(&asked);
        thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut count = 0;
            while !end.load(Ordering::Relaxed) || count < 20 {
                let response = client.ask(&request);
                assert_eq!(response.status, 200, "{response:#?}");
                count += 1;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let threads = threads.collect();
    wait_until("it is under load", || asked.load(Ordering::Relaxed) > 30);
    threads
}

#[test]
fn a_request_that_was_not_looked_at_is_sent_again_whatever_it_is() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream).upstream("retries = 0"));
    assert_eq!(weir.ask(post("/refuse", "hello")).status, 200);
    let received = upstream.requests();
    assert_eq!((received.len(), received[0].body), (1, 5));
    let response = weir.ask(post("/refuse-always", "hello"));
    assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
    assert_eq!(proxy_error(&response), "connection_terminated");
    assert_eq!((upstream.connections(), counted(&weir, "broken")), (1, 1.0));
}

#[test]
fn a_reset_fails_its_own_request_only() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut other = weir.connect();
    other.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    for request in [get("/reset"), post("/reset", "hello")] {
        let response = weir.ask(request);
        assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
        assert_eq!(proxy_error(&response), "connection_terminated");
    }
    let mut client = weir.connect();
    client.send(get("/cut"));
    assert!(client.try_response().map_or(true, |it| it.truncated), "visibly early");
    wait_until("it is counted", || counted(&weir, "cut_off") == 1.0);
    assert_eq!(counted(&weir, "broken"), 2.0);
    upstream.release();
    assert_eq!(other.response().status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn responses_that_do_not_keep_to_their_head_are_failures() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    for path in ["/longer", "/shorter"] {
        let mut client = weir.connect();
        client.send(get(path));
        let answer = client.try_response();
        assert!(answer.map_or(true, |it| it.truncated || it.status == 502), "{path}");
    }
    for path in ["/headers/100000", "/fields/150"] {
        let response = weir.get(path);
        assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
        assert_eq!(proxy_error(&response), "http_protocol_error");
    }
    assert_eq!(weir.get("/fields/50").status, 200);
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn an_answer_may_come_before_the_body_was_sent() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut client = weir.connect();
    client.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (413, "too much"));
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_server_that_hangs_is_a_504_and_its_connection_is_not_used_again() {
    let upstream = Http2Upstream::start();
    let lines = "response_timeout = \"800ms\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    for request in [get("/silent"), post("/silent", "hello")] {
        let response = weir.ask(request);
        assert_eq!((response.status, response.error()), (504, "upstream_timeout".into()));
        assert_eq!(proxy_error(&response), "http_response_timeout");
    }
    wait_until("their streams are reset", || upstream.resets() == 2);
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(upstream.connections(), 3);
    // One that accepts and says nothing does not even have a connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = [silent.local_addr().unwrap()];
    let lines = "http2 = true\nconnect_timeout = \"200ms\"";
    weir.reload(&Config::to_servers(&servers).open().upstream(lines).server("workers = 1"));
    let response = weir.get("/");
    assert_eq!((response.status, proxy_error(&response).as_str()), (504, "connection_timeout"));
}

#[test]
fn a_server_that_does_not_speak_http2_is_a_502_or_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let old = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            use std::io::{Read as _, Write as _};
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let good = Http2Upstream::start();
    let config = |servers: &[std::net::SocketAddr]| {
        let config = Config::to_servers(servers).open().server("workers = 1");
        config.upstream("http2 = true\nbalance = \"round_robin\"")
    };
    let weir = Weir::start(&config(&[old]));
    let response = weir.get("/");
    assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
    assert_eq!(proxy_error(&response), "http_protocol_error");
    weir.reload(&config(&[old, good.address()]));
    for _ in 0..4 {
        assert_eq!(weir.ask(post("/", "hello")).status, 200);
    }
}

#[test]
fn connections_that_go_away_under_load_fail_no_request() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream).upstream("retries = 0"));
    let end = Arc::new(AtomicBool::new(false));
    let threads = ask_until(&weir, &end, &post("/", "hello"));
    for times in 1..=10 {
        upstream.go_away();
        let is_next = |it: &Http2Received| it.connection >= times;
        wait_until("another is in use", || upstream.requests().iter().any(is_next));
    }
    end.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
fn what_is_under_way_on_a_connection_that_goes_away_is_finished() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut held = weir.connect();
    held.send(post("/held", "hello"));
    let mut large = weir.connect();
    large.send(get("/bytes/20000000"));
    wait_until("both are there", || upstream.open() == 2);
    upstream.go_away();
    wait_until("others go elsewhere", || {
        assert_eq!(weir.get("/").status, 200);
        upstream.connections() == 2
    });
    assert_eq!(large.response().body.len(), 20_000_000);
    upstream.release();
    assert_eq!(held.response().status, 200);
    wait_until("the old one is closed", || upstream.open_connections() == 1);
}

#[test]
fn a_response_that_stands_still_is_cut_off() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream).server("request_timeout = \"300ms\""));
    let mut client = weir.connect();
    client.send(get("/stall"));
    assert!(client.try_response().map_or(true, |it| it.truncated), "visibly early");
    wait_until("it is counted", || counted(&weir, "cut_off") == 1.0);
    wait_until("its stream is reset", || upstream.resets() == 1);
    assert_eq!(weir.get("/").status, 200);
}

/// nginx drops streams that come after its GOAWAY, and says so by the number of the last one that it
/// has seen.
#[test]
fn nginx_ends_connections_all_the_time_and_no_request_fails() {
    let locations = "location / { return 200 ok; }";
    let Some(nginx) = Nginx::start("http2", "keepalive_requests 7;", locations) else { return };
    let config = Config::to_servers(&[nginx.address()]).open();
    let weir = Weir::start(&config.upstream("http2 = true\nretries = 1"));
    let end = Arc::new(AtomicBool::new(true));
    for request in [get("/"), post("/", "hello")] {
        let threads = ask_until(&weir, &end, &request);
        threads.into_iter().for_each(|it| it.join().unwrap());
    }
}

#[test]
fn a_request_that_comes_too_late_for_a_goaway_and_has_been_sent_holds_against_no_other_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let breaker = "breaker = { failures = 1, window = \"1m\", open = \"1h\" }";
    let config = Config::to_servers(&[listener.local_addr().unwrap()]).open().also(TRUSTED);
    let config = config.upstream("http2 = true\nretries = 0").upstream(breaker);
    let weir = Weir::start(&config.server("workers = 1"));
    let (mut first, mut late) = (weir.connect(), weir.connect());
    first.send(of("192.0.2.1", "/"));
    const WINDOW: u32 = 1 << 20;
    let mut server = FrameServer::with_settings(&listener, &[(INITIAL_WINDOW_SIZE, WINDOW)]);
    server.send(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    let answered = server.next(HEADERS).stream;
    let lines = "Host: a\r\nX-Forwarded-For: 192.0.2.2\r\nContent-Length: 100000";
    late.send(format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n{}", "x".repeat(100_000)));
    assert!(server.next(HEADERS).stream > answered);
    // More than is kept to be sent again.
    let mut sent = 0;
    while sent < 100_000 {
        sent += server.next(DATA).payload.len();
    }
    // The last stream that it looks at, and no error.
    server.send(GOAWAY, 0, 0, &[answered.to_be_bytes(), [0; 4]].concat());
    assert_eq!(late.response().status, 502);
    assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 503, "the breaker is open for this one");
    // 0x88 is `:status: 200`: RFC 7541, appendix A.
    server.send(HEADERS, END_HEADERS | END_STREAM, answered, &[0x88]);
    assert_eq!(first.response().status, 200);
}

#[test]
fn a_server_killed_under_load_fails_no_safe_request_while_another_is_up() {
    let port = free_port();
    let options = Http2Options { port, ..Http2Options::default() };
    let (dies, stays) = (Http2Upstream::with(options.clone()), Http2Upstream::start());
    let config = Config::to_servers(&[dies.address(), stays.address()]).open();
    let weir = Weir::start(&config.upstream("http2 = true\nretries = 3").server("workers = 1"));
    let end = Arc::new(AtomicBool::new(false));
    let threads = ask_until(&weir, &end, &get("/"));
    wait_until("both are in use", || !dies.requests().is_empty() && !stays.requests().is_empty());
    dies.kill();
    let before = stays.requests().len();
    wait_until("the other serves on", || stays.requests().len() > before + 100);
    let back = Http2Upstream::with(options);
    wait_until("it is used again", || !back.requests().is_empty());
    end.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|it| it.join().unwrap());
}

#[test]
fn a_slow_client_is_not_the_upstreams_fault() {
    let upstream = Http2Upstream::start();
    let lines = "response_timeout = \"300ms\"";
    let weir = Weir::start(&config(&upstream).upstream(lines));
    let mut client = weir.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("it has begun", || upstream.open() == 1);
    assert!(client.stays_silent() && client.stays_silent() && client.stays_silent());
    client.send("world");
    assert_eq!(client.response().status, 200);
    // A plain server beside it is not disturbed by any of this.
    let plain = Upstream::ok();
    weir.reload(&Config::to(&plain).open());
    assert_eq!(weir.get("/").status, 200);
}
