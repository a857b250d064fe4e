//! Upgrades: a tunnel when both sides agree, an ordinary answer when they do not.

use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::slots::concurrency_limit;
use crate::support::upstream::ok;
use crate::support::{
    After, Client, Config, Exchange, PATIENCE, Upstream, Weir, get, get_with, wait_until,
};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: weir.test\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Agrees, says `first`, then sends back every byte.
fn mirror(exchange: &mut Exchange<'_>) -> After {
    exchange.reply(format!("{SWITCH}first"));
    loop {
        let bytes = exchange.wire.take_rest();
        if !exchange.wire.write(&bytes) || exchange.wire.fill().is_err() {
            return After::Close;
        }
    }
}

fn tunnel(weir: &Weir) -> Client {
    let mut client = weir.connect();
    client.send(UPGRADE);
    let response = client.response();
    assert_eq!(response.status, 101);
    assert_eq!(response.one("upgrade"), "websocket");
    assert!(response.one("connection").eq_ignore_ascii_case("upgrade"));
    assert_eq!(response.one("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(client.wire.take(5).unwrap(), b"first");
    client
}

#[test]
fn a_tunnel_is_byte_exact_and_costs_one() {
    let upstream = Upstream::scripted(mirror);
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 2";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = tunnel(&weir);
    let request = upstream.last();
    assert_eq!(request.one("upgrade"), "websocket");
    assert!(request.one("connection").to_ascii_lowercase().contains("upgrade"));
    assert_eq!(request.one("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
    // Every byte there is, what looks like requests, and more than any buffer holds.
    let mut message: Vec<u8> = (0..=255).collect();
    message.extend(get("/hidden").bytes());
    message.extend((0..500_000_u32).flat_map(u32::to_le_bytes));
    for piece in message.chunks(9_973) {
        client.send(piece);
        assert!(client.wire.take(piece.len()).unwrap() == piece, "changed on the way");
    }
    assert_eq!(upstream.heads(), 1);
    let response = weir.ask(UPGRADE);
    assert_eq!(response.status, 101, "one of two was spent");
    assert_eq!(weir.ask(UPGRADE).status, 429);
}

#[test]
fn bytes_behind_the_request_reach_the_tunnel() {
    let upstream = Upstream::scripted(mirror);
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    client.send(format!("{UPGRADE}early"));
    assert_eq!(client.response().status, 101);
    assert_eq!(client.wire.take(10).unwrap(), b"firstearly");
}

#[test]
fn either_side_may_end_a_tunnel() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("{SWITCH}first"));
        let _ = exchange.wire.take(4);
        exchange.wire.write(b"bye");
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = tunnel(&weir);
    client.send("quit");
    assert_eq!(client.wire.take(3).unwrap(), b"bye");
    assert!(client.closes());
    let client = tunnel(&weir);
    drop(client);
    assert_eq!(tunnel(&weir).wire.take_rest(), b"");
}

#[test]
fn half_closed_client_still_receives() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("{SWITCH}first"));
        let mut count = 0;
        while exchange.wire.fill().is_ok() {
            count += exchange.wire.take_rest().len();
        }
        exchange.wire.write(format!("{count} bytes").as_bytes());
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = tunnel(&weir);
    client.send("hello");
    client.wire.finish_writing();
    assert_eq!(client.wire.take(7).unwrap(), b"5 bytes");
}

#[test]
fn an_upgrade_answered_with_200_is_no_tunnel() {
    let upstream = Upstream::replying(|_| ok("plain"));
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    let response = client.ask(UPGRADE);
    assert_eq!((response.status, response.text().as_str()), (200, "plain"));
    assert!(!response.has("upgrade"));
    // What follows is HTTP still, each request seen and counted on its own.
    if let Ok(next) = client.try_ask(get("/next")) {
        assert_eq!(next.text(), "plain");
        assert_eq!(upstream.last().target, "/next");
        assert!(upstream.last().has("x-forwarded-for"), "it went through unseen");
    }
}

#[test]
fn an_upgrade_to_another_http_is_not_passed_on() {
    // Inside such a tunnel every request would go by unseen and uncounted.
    let upstream = Upstream::replying(|_| ok("plain"));
    let weir = Weir::start(&Config::to(&upstream).open());
    for protocol in [
        "h2c",
        "H2C",
        "HTTP/2.0",
        "websocket, h2c",
        "websocket\r\nUpgrade: h2c",
        "foo/1\r\nUpgrade: h2c",
        "h2c, websocket",
        "TLS/1.2, HTTP/1.1",
        "h2",
        "h3",
        "\"h2c\"",
        ";h2c",
        "h2c;q=1",
        "foo/h2c",
        "foo/ h2c",
        "foo h2c",
        "'h2c'",
        "\tfoo;h2c",
    ] {
        let lines = format!(
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
        );
        let response = weir.ask(get_with("/", &lines));
        assert!(matches!(response.status, 200 | 400), "{protocol}: {}", response.status);
        if response.status == 200 {
            let sent = upstream.last().all("upgrade").join(", ").to_ascii_lowercase();
            assert!(
                sent.is_empty() || sent == "websocket" || sent == "foo/1",
                "{protocol}: passed on as {sent}"
            );
        }
    }
}

#[test]
fn a_refused_upgrade_is_a_429() {
    let upstream = Upstream::scripted(mirror);
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let _open = tunnel(&weir);
    let mut client = weir.connect();
    let response = client.ask(UPGRADE);
    assert_eq!((response.status, response.error()), (429, "rate_limit_exceeded".into()));
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn a_tunnel_lives_through_the_drain_and_is_closed_after_it() {
    let upstream = Upstream::scripted(mirror);
    let mut weir = Weir::start(&Config::to(&upstream).open().server("drain = \"1s\""));
    let mut client = tunnel(&weir);
    weir.signal(Signal::TERM);
    crate::support::wait_until("new connections are turned away", || weir.refuses_connections());
    client.send("still there");
    assert_eq!(client.wire.take(11).unwrap(), b"still there");
    assert!(client.closes());
    weir.exit();
}

#[test]
fn http_1_0_has_no_upgrades() {
    let upstream = Upstream::replying(|_| ok("plain"));
    let weir = Weir::start(&Config::to(&upstream).open());
    let response = weir.ask(UPGRADE.replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!((response.status, response.text().as_str()), (200, "plain"));
    assert!(!upstream.last().has("upgrade"), "{}", upstream.last().raw);
    // One that switches all the same has no one to talk to.
    let eager = Upstream::scripted(mirror);
    let weir = Weir::start(&Config::to(&eager).open());
    assert_eq!(weir.ask(UPGRADE.replace("HTTP/1.1", "HTTP/1.0")).status, 502);
}

#[test]
fn switching_protocols_has_no_length() {
    for line in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.reply(SWITCH.replace("\r\n\r\n", &format!("\r\n{line}\r\n\r\nfirst")));
            let _ = exchange.wire.fill();
            After::Close
        });
        let weir = Weir::start(&Config::to(&upstream).open());
        let mut client = weir.connect();
        let response = client.ask(UPGRADE);
        assert_eq!(response.status, 101, "{line}");
        for name in ["content-length", "transfer-encoding"] {
            assert!(!response.has(name), "RFC 9110 section 8.6: {response:?}");
        }
        assert_eq!(client.wire.take(5).unwrap(), b"first", "{line}");
    }
}

/// Whether the one slot of [`concurrency_limit`] is free.
fn has_free_slot(weir: &Weir) -> bool {
    weir.ask(UPGRADE).status == 101
}

#[test]
fn upstream_that_closes_frees_the_slot_of_a_silent_client() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("{SWITCH}first"));
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).limit(&concurrency_limit(1)));
    let mut silent = tunnel(&weir);
    wait_until("the slot is free", || has_free_slot(&weir));
    assert!(silent.closes());
}

#[test]
fn silent_upstream_frees_the_slot_of_a_client_that_has_half_closed() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("{SWITCH}first"));
        loop {
            std::thread::park();
        }
    });
    let weir = Weir::start(&Config::to(&upstream).limit(&concurrency_limit(1)));
    let mut client = tunnel(&weir);
    client.wire.finish_writing();
    assert!(client.closes());
    wait_until("the slot is free", || has_free_slot(&weir));
}

#[test]
fn half_closed_client_gets_all_of_a_long_reply() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("{SWITCH}first"));
        while exchange.wire.fill().is_ok() {}
        for _ in 0..9 {
            // The pauses are what is tested: none is silence, all together are long.
            std::thread::sleep(Duration::from_millis(800));
            exchange.wire.write(b"more.");
        }
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = tunnel(&weir);
    client.wire.finish_writing();
    assert_eq!(client.wire.take(45).unwrap(), b"more.".repeat(9));
    assert!(client.closes());
}

#[test]
fn silent_tunnel_times_out_and_a_busy_one_does_not() {
    let (gone, notice) = mpsc::channel();
    let upstream = Upstream::scripted(move |exchange| {
        let after = mirror(exchange);
        let _ = gone.send(());
        after
    });
    let config = Config::to(&upstream).limit(&concurrency_limit(1));
    let weir = Weir::start(&config.server("tunnel_timeout = \"600ms\""));
    let mut client = tunnel(&weir);
    for _ in 0..10 {
        // The pace is what is tested: never silent for as long, and longer altogether.
        std::thread::sleep(Duration::from_millis(150));
        client.send("ping");
        assert_eq!(client.wire.take(4).unwrap(), b"ping");
    }
    assert!(client.closes());
    notice.recv_timeout(PATIENCE).expect("the upstream connection is let go");
    assert!(has_free_slot(&weir));
}

#[test]
fn last_bytes_of_an_upstream_reach_a_client_that_reads_late() {
    const SIZE: usize = 100_000;
    let (closed, closing) = mpsc::channel();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply(format!("{SWITCH}first"));
        exchange.wire.write(&[b'x'; SIZE]);
        let _ = exchange.wire.stream().shutdown(Shutdown::Both);
        let _ = closed.send(());
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    socket2::SockRef::from(client.wire.stream()).set_recv_buffer_size(4096).unwrap();
    client.send(UPGRADE);
    closing.recv_timeout(PATIENCE).unwrap();
    for _ in 0..3 {
        // Time for the upstream to refuse what it no longer reads.
        std::thread::sleep(Duration::from_millis(50));
        client.send("nobody reads this");
    }
    assert_eq!(client.response().status, 101);
    assert_eq!(client.wire.take(5 + SIZE).map(|it| it.len()), Ok(5 + SIZE));
    assert!(client.closes());
}
