//! Upstream connections that are used again, and what must not come with them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::upstream::ok;
use crate::support::{After, Config, Exchange, PATIENCE, Upstream, Weir, get, wait_until};

/// One worker, so that every request finds the connections of those before it.
fn gateway(upstream: &Upstream, more: &str) -> Weir {
    Weir::start(&Config::to(upstream).open().server("workers = 1").upstream(more))
}

/// Whether the gateway has sent more on a connection already.
fn has_more(exchange: &Exchange<'_>) -> bool {
    let stream = exchange.wire.stream();
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_stray_answer_that_came_in_time_answers_no_pipelined_request() {
    for writes in [1, 2] {
        // A next request that was under way before the stray bytes were has to take what comes.
        let overtaken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&overtaken);
        let upstream = Upstream::scripted(move |exchange| {
            if exchange.request.target != "/api/extra" {
                exchange.reply(ok("fine"));
            } else if writes == 1 {
                exchange.reply([ok("first"), ok("poison")].concat());
            } else {
                exchange.reply(ok("first"));
                exchange.wire.write(&ok("poison"));
                count.fetch_add(usize::from(has_more(exchange)), Ordering::SeqCst);
            }
            After::Keep
        });
        let routes = "[[routes]]\nname = \"api\"\npath = \"/api/*\"\nupstream = \"api\"";
        let config = Config::to(&upstream).open().server("workers = 1").routes(routes);
        let weir = Weir::start(&config);
        // The requests without a route keep the worker from looking at its sockets while the
        // stray bytes arrive.
        let pipeline = [
            get("/api/extra"),
            get("/nowhere").repeat(24),
            (1..7).map(|n| get(&format!("/api/{n}"))).collect(),
        ];
        let mut poisoned = 0;
        for _ in 0..20 {
            let mut client = weir.connect();
            client.send(pipeline.concat());
            assert_eq!(client.response().text(), "first");
            (0..24).for_each(|_| assert_eq!(client.response().status, 404));
            poisoned += (0..6).filter(|_| client.response().text() != "fine").count();
        }
        // One that was overtaken may spoil all that follow on its connection.
        let unavoidable = 6 * overtaken.load(Ordering::SeqCst);
        assert!(poisoned <= unavoidable, "{poisoned} of 120 poisoned in {writes} writes");
    }
}

#[test]
fn a_stray_answer_does_not_reach_another_client() {
    let (written, done) = mpsc::channel();
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.request.target == "/extra" {
            exchange.reply(ok("first"));
            exchange.wire.write(&ok("poison"));
            let _ = written.send(());
        } else {
            exchange.reply(ok("fine"));
        }
        After::Keep
    });
    let weir = gateway(&upstream, "");
    for _ in 0..20 {
        assert_eq!(weir.get("/extra").text(), "first");
        done.recv_timeout(PATIENCE).unwrap();
        let mut client = weir.connect();
        client.send(get("/").repeat(6));
        (0..6).for_each(|_| assert_eq!(client.response().text(), "fine"));
    }
}

const WARM: usize = 6;

/// Answers once `WARM` requests are there, so that each has a connection of its own. When told
/// to, reads requests and closes without a word.
fn mortal(dies: &Arc<AtomicBool>) -> Upstream {
    let (dies, waiting) = (Arc::clone(dies), AtomicUsize::new(0));
    Upstream::scripted(move |exchange| {
        exchange.read_body();
        if dies.load(Ordering::SeqCst) {
            return After::Close;
        }
        waiting.fetch_add(1, Ordering::SeqCst);
        wait_until("all are there", || waiting.load(Ordering::SeqCst) % WARM == 0);
        exchange.reply(ok("ok"));
        After::Keep
    })
}

#[test]
fn stale_connections_do_not_multiply_a_request() {
    for retries in [0, 1] {
        // How often each may be sent: on a stale connection, on a fresh one, and as retries.
        let rows = [
            ("GET", 2 + retries),
            ("HEAD", 2 + retries),
            ("PUT", 2 + retries),
            ("DELETE", 2 + retries),
            ("POST", 1),
            ("PATCH", 1),
        ];
        for (method, most) in rows {
            let dies = Arc::new(AtomicBool::new(false));
            let upstream = mortal(&dies);
            let weir = gateway(&upstream, &format!("retries = {retries}"));
            let mut warm: Vec<_> = (0..WARM).map(|_| weir.connect()).collect();
            warm.iter_mut().for_each(|client| client.send(get("/warm")));
            warm.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
            assert_eq!(upstream.connections(), WARM);
            dies.store(true, Ordering::SeqCst);
            for body in ["", "Content-Length: 5\r\n\r\nhello"] {
                let target = format!("/{}", body.len());
                let end = if body.is_empty() { "\r\n" } else { body };
                let mut client = weir.connect();
                client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{end}"));
                let response =
                    if method == "HEAD" { client.head_response() } else { client.response() };
                assert_eq!(response.status, 502, "{method} {target}");
                let mut sent = BTreeMap::<_, usize>::new();
                upstream.requests().into_iter().for_each(|it| {
                    *sent.entry(it.target).or_default() += 1;
                });
                let sent = sent[&target];
                assert!((1..=most).contains(&sent), "{method}, {body:?}: sent {sent} times");
                assert!(body.is_empty() || sent == 1, "{method} with a body: sent {sent} times");
            }
        }
    }
}

#[test]
fn a_connection_idle_for_too_long_is_not_used_again() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "keepalive_timeout = \"300ms\"");
    for round in 1..4 {
        assert_eq!(weir.get("/").status, 200);
        assert_eq!(weir.get("/").status, 200);
        assert_eq!(upstream.connections(), round, "used at once, it is used again");
        // It is the passing of time itself that counts here.
        std::thread::sleep(Duration::from_millis(320));
    }
}
