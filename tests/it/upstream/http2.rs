//! HTTP/2 to upstreams: shared connections, heads, bodies, and which version is spoken.

use std::io::Write as _;
use std::thread;

use crate::support::certificates::Certificates;
use crate::support::held_upstream::{SWITCH, UPGRADE};
use crate::support::http2_upstream::{Http2Options, Http2Upstream};
use crate::support::tls_front::{FrontOptions, TlsFront};
use crate::support::{After, Client, Config, Upstream, Weir, get, get_with, post, wait_until};

/// One worker, so that what it shares can be counted.
pub(super) fn config(upstream: &Http2Upstream) -> Config {
    Config::to_servers(&[upstream.address()]).open().upstream("http2 = true").server("workers = 1")
}

#[test]
fn requests_share_one_connection() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut clients: Vec<Client> = (0..50).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/held")));
    wait_until("all are there", || upstream.open() == 50);
    upstream.release();
    for client in &mut clients {
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    }
    assert_eq!((upstream.connections(), upstream.most_open()), (1, 50));
    // A reload keeps it.
    weir.reload(&config(&upstream).also("# touched"));
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn as_many_streams_as_the_server_allows_and_more_connections_beyond() {
    for (allowed, at_once) in [(1, 12), (5, 12)] {
        let options = Http2Options { max_streams: Some(allowed), ..Http2Options::default() };
        let upstream = Http2Upstream::with(options);
        let weir = Weir::start(&config(&upstream));
        let mut clients: Vec<Client> = (0..at_once).map(|_| weir.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(post("/held", "hello")));
        wait_until("all are there", || upstream.open() == at_once);
        assert_eq!(upstream.connections(), at_once.div_ceil(allowed as usize));
        upstream.release();
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
    }
}

#[test]
fn beyond_all_connections_requests_wait_for_a_stream() {
    let options = Http2Options { max_streams: Some(1), ..Http2Options::default() };
    let upstream = Http2Upstream::with(options);
    let weir = Weir::start(&config(&upstream).upstream("connect_timeout = \"20s\""));
    let mut clients: Vec<Client> = (0..80).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/held")));
    wait_until("all connections are in use", || upstream.open() == 64);
    upstream.release();
    wait_until("the rest has come", || upstream.requests().len() == 80);
    upstream.release();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.connections(), 64);
}

#[test]
fn heads_are_those_of_http2() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let lines = "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-A: 1\r\nX-A: 2\r\n\
                 Cookie: a=b; c=d\r\nAuthorization: Bearer t\r\nKeep-Alive: 5\r\n";
    let response = weir.ask(get_with("/some/path?q=1", lines));
    assert_eq!(response.status, 200);
    let received = upstream.requests().pop().unwrap();
    assert_eq!(received.uri.to_string(), "http://weir.test/some/path?q=1");
    assert_eq!(received.method, "GET");
    let all = |name: &str| {
        let values = received.headers.get_all(name).iter();
        values.map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(all("x-a"), ["1", "2"]);
    assert_eq!(all("cookie"), ["a=b; c=d"]);
    assert_eq!(all("authorization"), ["Bearer t"]);
    assert_eq!(all("x-forwarded-for"), ["127.0.0.1"]);
    assert!(all("via")[0].starts_with("1.1 weir-"));
    // HTTP/1.1 clients get no trailers, so none are asked for.
    for name in ["connection", "x-hop", "keep-alive", "te", "host", "transfer-encoding"] {
        assert_eq!(all(name), [""; 0], "{name}");
    }
    // Without a host the server's own is named.
    let mut client = weir.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let authority = upstream.address().to_string();
    let uri = upstream.requests().pop().unwrap().uri;
    assert_eq!(uri.authority().unwrap().as_str(), authority);
    // Lengths and statuses.
    assert_eq!(weir.ask(post("/", "hello")).status, 200);
    let received = upstream.requests().pop().unwrap();
    assert_eq!((received.body, &received.headers["content-length"]), (5, &"5".parse().unwrap()));
    assert_eq!(weir.get("/status/404").status, 404);
    let mut client = weir.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.head_response();
    assert_eq!((response.status, response.one("content-length")), (200, "2"));
}

#[test]
fn large_bodies_pass_both_ways_at_once() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let body: Vec<u8> = (0..3_000_000u32).map(|it| (it % 251) as u8).collect();
    let mut client = weir.connect();
    let length = body.len();
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    // The answer comes while the body is still being sent, so both have to be done at once.
    let mut writer = client.wire.stream().try_clone().unwrap();
    let sent = body.clone();
    let writing = thread::spawn(move || writer.write_all(&sent).unwrap());
    let response = client.response();
    writing.join().unwrap();
    assert_eq!((response.status, response.body.len()), (200, length));
    assert!(response.body == body);
    // Chunks have no length that is known in advance.
    let chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n1\r\n!\r\n0\r\nX-Trailer: 1\r\n\r\n";
    assert_eq!(weir.ask(chunked).text(), "hello!");
    assert_eq!(weir.get("/bytes/5000000").body.len(), 5_000_000);
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_else() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut stuck: Vec<Client> = (0..20).map(|_| weir.connect()).collect();
    stuck.iter_mut().for_each(|client| client.send(get("/bytes/20000000")));
    wait_until("they are under way", || upstream.open() == 20);
    for _ in 0..5 {
        assert_eq!(weir.get("/bytes/1000000").body.len(), 1_000_000);
    }
    assert_eq!(upstream.connections(), 1);
    drop(stuck);
    wait_until("their streams are reset", || upstream.resets() == 20);
}

#[test]
fn a_client_that_leaves_resets_its_stream_and_no_other() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream));
    let mut stays = weir.connect();
    stays.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    let mut leaves = weir.connect();
    leaves.send(get("/silent"));
    wait_until("it is there", || upstream.open() == 2);
    leaves.wire.reset();
    wait_until("its stream is reset", || upstream.resets() == 1);
    // Also in the middle of a body.
    let mut leaves = weir.connect();
    leaves.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("it is there", || upstream.open() == 2);
    leaves.wire.reset();
    wait_until("its stream is reset", || upstream.resets() == 2);
    upstream.release();
    assert_eq!(stays.response().status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn idle_connections_are_closed_in_time() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&config(&upstream).upstream("keepalive_timeout = \"50ms\""));
    assert_eq!(weir.get("/").status, 200);
    wait_until("it is closed", || upstream.open_connections() == 0);
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn over_tls_the_server_chooses() {
    let certificates = Certificates::new();
    let (two, one) = (Http2Upstream::start(), Upstream::ok());
    let front = |target, alpn: &[&str]| {
        let options = FrontOptions { alpn, ..FrontOptions::default() };
        TlsFront::start(target, &certificates, &options)
    };
    let fronts = [
        front(two.address(), &["h2", "http/1.1"]),
        front(one.address(), &["http/1.1"]),
        front(one.address(), &[]),
        front(one.address(), &["h2", "http/1.1"]),
    ];
    let config = |at: usize, keys: &str| {
        let url = format!("https://{}", fronts[at].address());
        let ca = certificates.path("ca.pem");
        let lines = format!("servers = [\"{url}\"]\ntls = {{ ca = {ca:?} }}\n{keys}");
        Config::echo().open().server("workers = 1").upstream(&lines)
    };
    let weir = Weir::start(&config(0, "http2 = true"));
    for _ in 0..3 {
        assert_eq!(weir.get("/").status, 200);
    }
    let received = two.requests();
    assert_eq!((received.len(), two.connections()), (3, 1));
    assert_eq!(received[0].uri.scheme_str(), Some("https"));
    // Those that do not choose it are spoken to in HTTP/1.1, on connections that are kept.
    for at in [1, 2] {
        let before = one.connections();
        weir.reload(&config(at, "http2 = true"));
        for _ in 0..3 {
            assert_eq!(weir.get("/").status, 200);
        }
        assert_eq!(one.connections() - before, 1);
    }
    // Without the key it is not offered.
    weir.reload(&config(3, ""));
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(one.requests().len(), 7);
}

#[test]
fn probes_speak_as_requests_do() {
    let certificates = Certificates::new();
    let (two, one) = (Http2Upstream::start(), Upstream::ok());
    let options = FrontOptions::default();
    let over_tls = TlsFront::start(two.address(), &certificates, &options);
    let options = FrontOptions { alpn: &[], ..options };
    let declines = TlsFront::start(one.address(), &certificates, &options);
    let ca = certificates.path("ca.pem");
    let weir = Weir::start(&Config::echo().open().server("workers = 1").upstream(&format!(
        "servers = [\"https://{}\", \"https://{}\"]\ntls = {{ ca = {ca:?} }}\nhttp2 = true\n\
         health = {{ path = \"/status/201\", interval = \"500ms\", timeout = \"500ms\", status = 201 }}",
        over_tls.address(),
        declines.address(),
    )));
    let healthy = |address: std::net::SocketAddr| {
        let address = address.to_string();
        let labels = [("upstream", "api"), ("server", address.as_str())];
        weir.metrics().value("weir_upstream_healthy", &labels)
    };
    // This one answers with 200, which shows that it was asked.
    wait_until("it is probed", || healthy(declines.address()) == Some(0.0));
    wait_until("the other is probed", || !two.requests().is_empty());
    wait_until("it is healthy", || healthy(over_tls.address()) == Some(1.0));
    let probe = two.requests().remove(0);
    let uri = format!("https://{}/status/201", over_tls.address());
    assert_eq!((probe.method.as_str(), probe.uri.to_string()), ("GET", uri));
    assert_eq!(probe.headers["user-agent"], "weir-health");
}

#[test]
fn max_connections_bounds_shared_connections_too() {
    let options = Http2Options { max_streams: Some(2), ..Http2Options::default() };
    let upstream = Http2Upstream::with(options);
    let config = Config::to_servers(&[upstream.address()]).open().server("workers = 2");
    let lines = "http2 = true\nmax_connections = 2\nconnect_timeout = \"20s\"";
    let weir = Weir::start(&config.upstream(lines));
    let mut clients: Vec<Client> = (0..12).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/held")));
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Bounded, so that a request which gets no answer fails the test instead of holding it up.
            for _ in 0..3_000 {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                upstream.release();
                thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(upstream.most_open() <= 4, "{}", upstream.most_open());
}

#[test]
fn upgrades_go_over_a_connection_of_their_own() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(SWITCH);
        exchange.reply("hello");
        let _ = exchange.wire.fill();
        After::Close
    });
    let config = Config::to(&upstream).open().upstream("http2 = true");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    client.send(UPGRADE);
    assert_eq!(client.response().status, 101);
    assert_eq!(client.wire.take(5).unwrap(), b"hello");
    assert_eq!(upstream.requests()[0].one("upgrade"), "websocket");
}

#[test]
fn streams_of_many_workers_do_not_mix() {
    let upstream = Http2Upstream::start();
    let config = Config::to_servers(&[upstream.address()]).open().upstream("http2 = true");
    let weir = Weir::start(&config.server("workers = 2"));
    let address = weir.address();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for turn in 0..40 {
                    let body = format!("{number}-{turn}-").repeat(200 * (turn % 3 + 1));
                    let response = client.ask(post("/echo", &body));
                    assert_eq!((response.status, response.text()), (200, body));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}
