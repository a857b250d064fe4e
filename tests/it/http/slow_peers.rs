//! Slow clients and upstreams: they time out, and do not affect others.

use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::gateway::program_with_files;
use crate::support::upstream::ok;
use crate::support::wire::ReadError;
use crate::support::{
    After, Client, Config, PATIENCE, Response, Scratch, Upstream, Weir, get, get_with, post,
    wait_until, wait_until_steady,
};

/// A slow client gets a 408 or is disconnected.
#[track_caller]
fn assert_timed_out(what: &str, outcome: Result<Response, ReadError>) {
    match outcome {
        Ok(response) => assert_eq!(response.status, 408, "{what}"),
        Err(stop) => assert_eq!(stop, ReadError::Closed, "{what}"),
    }
}

/// A kept connection on which one request was answered, however long a busy machine takes to send
/// one in time.
#[track_caller]
fn used(weir: &Weir) -> Client {
    let mut client = weir.connect();
    wait_until("a request is sent in time", || {
        let answered = client.try_ask(get("/")).is_ok_and(|response| response.status == 200);
        if !answered {
            client = weir.connect();
        }
        answered
    });
    client
}

#[test]
fn unfinished_head_times_out() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("header_timeout = \"300ms\""));
    for part in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n", "\r\n"] {
        let mut client = weir.connect();
        client.send(part);
        assert_timed_out(part, client.try_response());
    }
    // Bytes now and then do not buy more time.
    let mut client = weir.connect();
    let mut dripping =
        Client { wire: crate::support::wire::Wire::new(client.wire.stream().try_clone().unwrap()) };
    let dripper = std::thread::spawn(move || {
        dripping.send("GET / HTTP/1.1\r\n");
        for _ in 0..200 {
            if !dripping.wire.write(b"X-A: b\r\n") {
                return;
            }
            // The slow pace is what is tested.
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_timed_out("dripping", client.try_response());
    drop(client);
    dripper.join().unwrap();
    // On a kept connection the second head is under the same clock.
    let mut client = used(&weir);
    client.send("GET / HT");
    assert_timed_out("second", client.try_response());
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn a_head_of_bare_carriage_returns_is_refused_at_once() {
    let weir = Weir::start(&Config::echo().server("header_timeout = \"10m\""));
    let heads = ["GET / HTTP/1.1\rHost: a\r\r", "\r\r", "GET / HTTP/1.1\r\nHost: a\rX: b\r\r"];
    for head in heads {
        let mut client = weir.connect();
        client.send(head);
        assert_eq!(client.response().status, 400, "{head:?}");
        assert!(client.closes());
        // Wherever it is cut.
        let mut client = weir.connect();
        for byte in head.as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.response().status, 400, "{head:?}");
    }
}

#[test]
fn idle_connection_times_out() {
    let timeouts = "idle_timeout = \"300ms\"\nheader_timeout = \"300ms\"";
    let weir = Weir::start(&Config::echo().server(timeouts));
    let mut fresh = weir.connect();
    assert!(used(&weir).closes());
    assert_timed_out("never used", fresh.try_response());
}

#[test]
fn stalled_request_body_times_out() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let heads = ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"];
    for head in heads {
        let mut client = weir.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}"));
        assert_timed_out(head, client.try_response());
    }
    assert!(upstream.requests().iter().all(|it| !it.complete));
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn stalled_upstream_body_is_visible_to_the_client() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // Longer than the client waits: it is the gateway that must end it.
        let _ = over.lock().unwrap().recv_timeout(2 * PATIENCE);
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let mut client = weir.connect();
    client.send(get("/"));
    assert!(client.try_response().is_ok_and(|response| response.truncated));
    drop(end);
}

#[test]
fn client_that_stops_reading_times_out() {
    let (gone, notice) = mpsc::channel::<()>();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while exchange.wire.write(&[b'x'; 65_536]) {}
        let _ = gone.send(());
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let mut client = weir.connect();
    client.send(get("/"));
    // The upstream's own writes give up after `PATIENCE`, so this must happen before that.
    notice.recv_timeout(PATIENCE / 2).expect("the upstream connection is let go");
}

#[test]
fn slow_clients_do_not_affect_a_healthy_one() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open();
    let weir = Weir::start(&config.server("header_timeout = \"60s\"\nrequest_timeout = \"60s\""));
    let slow: Vec<Client> = (0..1000)
        .map(|n| {
            let mut client = weir.connect();
            client.send(match n % 4 {
                0 => "",
                1 => "GET / HTTP/1.1\r\nHost: a\r\nX-",
                2 => "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhel",
                _ => "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
            });
            client
        })
        .collect();
    let mut client = weir.connect();
    for _ in 0..50 {
        assert_eq!(client.ask(get("/")).status, 200);
        assert_eq!(weir.get("/").status, 200);
    }
    assert_eq!(weir.admin("/healthz").status, 200);
    drop(slow);
    wait_until("it has let go of them", || weir.get("/").status == 200);
}

#[test]
fn a_client_that_resets_frees_the_upstream_connection() {
    let (gone, notice) = mpsc::channel::<()>();
    let upstream = Upstream::scripted(move |exchange| {
        // Nothing is answered; the read ends when the gateway lets go.
        while exchange.wire.fill().is_ok() {}
        let _ = gone.send(());
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open().upstream("response_timeout = \"60s\""));
    for request in [get("/"), post("/", "hello")] {
        let seen = upstream.heads();
        let mut client = weir.connect();
        client.send(request);
        wait_until("it is in flight", || upstream.heads() > seen);
        client.wire.reset();
        notice.recv_timeout(PATIENCE).expect("the upstream connection is let go");
    }
}

#[test]
fn half_closed_client_still_gets_its_response() {
    let (upstream, go) = Upstream::on_demand("ok");
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    client.send(get("/"));
    client.wire.finish_writing();
    wait_until("it is in flight", || upstream.heads() == 1);
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "ok");
    assert!(client.closes());
}

#[test]
fn connections_above_the_bound_wait_or_are_turned_away() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("max_connections = 10"));
    let held: Vec<Client> = (0..30).map(|_| weir.connect()).collect();
    assert_eq!(weir.admin("/healthz").status, 200, "the admin port is not part of it");
    drop(held);
    let ask = || Client::connect(weir.address()).try_ask(get("/")).is_ok_and(|it| it.status == 200);
    wait_until("there is room again", ask);
}

#[test]
fn gateway_out_of_file_descriptors_waits_and_recovers() {
    let upstream = Upstream::ok();
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &Config::to(&upstream).open().text());
    let mut weir = Weir::start_with(program_with_files(90), scratch, file);
    let held: Vec<Client> = (0..200).map(|_| weir.connect()).collect();
    // It must not spin meanwhile: a quarter of a second of processor time in half a second is.
    let spent = weir.processor_ticks_in(Duration::from_millis(500));
    assert!(spent < 25, "{spent} ticks of processor time with nothing to do");
    assert!(weir.runs());
    drop(held);
    let ask = || Client::connect(weir.address()).try_ask(get("/")).is_ok_and(|it| it.status == 200);
    wait_until("it serves again", ask);
    for _ in 0..10 {
        assert!(ask());
    }
}

/// How much the kernel holds on the way from the gateway to this client.
fn under_way(client: &Client) -> usize {
    let stream = client.wire.stream();
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let ends = [port(stream.local_addr().unwrap()), port(stream.peer_addr().unwrap())];
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| {
        let is = |at: usize, end: usize| row[at].ends_with(&ends[end]);
        (is(1, 0) && is(2, 1)) || (is(1, 1) && is(2, 0))
    });
    let queues = ours.flat_map(|row| row[4].split(':').map(str::to_owned).collect::<Vec<_>>());
    queues.map(|queue| usize::from_str_radix(&queue, 16).unwrap()).sum()
}

#[test]
fn slow_reader_gets_the_whole_last_response() {
    const PIECE: usize = 2048;
    let upstream = Upstream::scripted(|exchange| {
        let pieces: usize = exchange.request.target[1..].parse().unwrap();
        exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let piece = [&b"800\r\n"[..], &[b'x'; PIECE], b"\r\n"].concat();
        let whole = (0..pieces).all(|_| exchange.wire.write(&piece));
        exchange.wire.write(b"0\r\n\r\n");
        if whole { After::Keep } else { After::Close }
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let ask = |pieces: usize, ending: &str| {
        let mut client = weir.connect();
        client.send(format!("GET /{pieces} {ending}\r\n\r\n"));
        client
    };
    let endings = ["HTTP/1.0", "HTTP/1.1\r\nHost: a\r\nConnection: close"];
    // The end of an answer has to wait in the gateway itself, so the answer has to be a little
    // longer than what the kernel takes for a client that does not read.
    let probe = ask(1 << 20, endings[0]);
    wait_until("the kernel takes some of it", || under_way(&probe) > 0);
    let held = wait_until_steady("the kernel takes no more", || under_way(&probe));
    drop(probe);
    let sizes = (0..12).map(|step| (held / PIECE + 8 * step).saturating_sub(32));
    let asked = sizes.flat_map(|pieces| endings.map(|ending| (pieces, ask(pieces, ending))));
    let asked: Vec<_> = asked.collect();
    // The passing of time is what is tested: longer than a lingering close, shorter than
    // `request_timeout`.
    std::thread::sleep(Duration::from_secs(3));
    for (pieces, mut client) in asked {
        let response = client.response();
        assert_eq!((response.status, response.body.len()), (200, pieces * PIECE));
    }
}

#[test]
fn unread_responses_are_not_buffered() {
    // Large answers to small requests, and none of them has a body to wait for.
    let large = format!("response_headers = {{ set = {{ x-large = \"{}\" }} }}", "x".repeat(4000));
    let route = format!("[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n{large}");
    let weir = Weir::start(&Config::echo().open().server("workers = 1").routes(&route));
    assert_eq!(weir.get("/").status, 200);
    let before = weir.peak_memory();
    let mut flood = weir.connect().wire;
    flood.stream().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // A length that fits no buffer leaves some of the next request to look at, always.
    let block = get("/odd-length").replace("GET", "HEAD").repeat(100);
    // Either no more is taken, or there are more answers than the kernel could hide.
    let taken = (0..2000).take_while(|_| flood.write(block.as_bytes())).count();
    wait_until_steady("it goes no further", || weir.metrics().value("weir_requests_total", &[]));
    for _ in 0..10 {
        assert_eq!(weir.get("/").status, 200, "others are served");
    }
    let grown = weir.peak_memory() - before;
    assert!(grown < 20 * 1024, "{grown} KiB for {taken} hundred answers");
}

#[test]
fn connections_turned_away_are_counted() {
    let weir = Weir::start(&Config::echo().open().server("max_connections = 3"));
    let value = |name| weir.metrics().value(name, &[]).unwrap_or(0.0);
    let mut held: Vec<Client> = (0..3).map(|_| weir.connect()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.ask(get("/")).status, 200));
    assert_eq!(value("weir_connections_turned_away_total"), 0.0);
    for _ in 0..4 {
        let response = weir.connect().response();
        assert_eq!((response.status, response.error()), (503, "overloaded".into()));
    }
    assert_eq!(value("weir_connections_turned_away_total"), 4.0);
    assert_eq!(held[0].ask(get("/")).status, 200);
}

#[test]
fn idle_connections_keep_nothing_of_the_last_message() {
    // So many that what the process as a whole keeps does not count.
    const CONNECTIONS: u64 = 600;
    let fields: String = (0..7).map(|n| format!("X-{n}: {}\r\n", "x".repeat(4000))).collect();
    let request = get_with("/", &fields);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}{fields}\r\n");
    let upstream = Upstream::replying(move |request| match request.target.as_str() {
        "/head" => head.clone().into_bytes(),
        "/body" => ok(&"x".repeat(1 << 20)),
        _ => ok("ok"),
    });
    let config = Config::to(&upstream).open().server("workers = 1\nidle_timeout = \"10m\"");
    for request in [get("/head"), get("/body"), request] {
        let weir = Weir::start(&config);
        assert_eq!(weir.ask(&request).status, 200);
        let before = weir.peak_memory();
        let idle = (0..CONNECTIONS).map(|_| {
            let mut client = weir.connect();
            assert_eq!(client.ask(&request).status, 200);
            client
        });
        let _idle: Vec<Client> = idle.collect();
        let each = (weir.peak_memory() - before) / CONNECTIONS;
        let line = request.lines().next().unwrap_or_default();
        assert!(each < 32, "{each} KiB for each connection after {line}");
    }
}
