//! Several requests on one connection, and refusals while a body is still on its way.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::{Config, SetOnDrop, Upstream, Weir, get, post, wait_until};

#[test]
fn twenty_pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::replying(|request| crate::support::upstream::ok(&request.target));
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 5";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = weir.connect();
    client.send((0..20).map(|n| get(&format!("/{n}"))).collect::<String>());
    for n in 0..20 {
        let response = client.response();
        if n < 5 {
            assert_eq!((response.status, response.text()), (200, format!("/{n}")));
        } else {
            assert_eq!(response.status, 429, "request {n}");
        }
    }
    assert_eq!(upstream.heads(), 5);
    assert!(client.stays_silent());
}

#[test]
fn pipelining_is_unbounded() {
    let upstream = Upstream::replying(|request| crate::support::upstream::ok(&request.target));
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    client.send((0..3000).map(|n| get(&format!("/{n}"))).collect::<String>());
    for n in 0..3000 {
        assert_eq!(client.response().text(), format!("/{n}"));
    }
}

#[test]
fn pipelined_bodies_stay_with_their_requests() {
    let upstream = Upstream::replying(|request| {
        crate::support::upstream::ok(&format!("{} {}", request.target, request.body.len()))
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    let chunked =
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    client.send(format!("{}{}{chunked}{}", post("/a", "12345"), get("/b"), post("/d", "1")));
    for expected in ["/a 5", "/b 0", "/c 3", "/d 1"] {
        assert_eq!(client.response().text(), expected);
    }
}

#[test]
fn a_refusal_can_be_read_while_a_large_body_is_unread() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    assert_eq!(weir.get("/").status, 200);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: weir.test\r\n\r\n";
    for megabytes in [1, 10] {
        let body = hidden.repeat((megabytes << 20) / hidden.len());
        for request in [post("/large", &body), chunked(&body)] {
            let mut client = weir.connect();
            client.send(&request);
            let response = client.response();
            assert_eq!((response.status, response.error()), (429, "rate_limit_exceeded".into()));
            // Either the rest was read and thrown away, or the connection is over.
            if let Ok(next) = client.try_ask(get("/next")) {
                assert_eq!(next.status, 429);
                assert!(
                    client.stays_silent() || client.closes(),
                    "the tail was taken for requests"
                );
            }
        }
    }
    assert_eq!(upstream.heads(), 1);
}

fn chunked(body: &str) -> String {
    let size = body.len();
    format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"
    )
}

#[test]
fn unread_small_body_is_not_parsed_as_a_request() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    let hidden = get("/hidden");
    client.send(post("/refused", &hidden));
    assert_eq!(client.response().status, 429);
    if let Ok(next) = client.try_ask(get("/next")) {
        assert_eq!(next.status, 429);
        assert!(client.stays_silent() || client.closes());
    }
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn a_flood_on_one_connection_starves_no_other() {
    let weir = Weir::start(&Config::echo().open().server("workers = 1"));
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut flood = weir.connect();
    let mut sending = flood.wire.stream().try_clone().unwrap();
    thread::scope(|scope| {
        let end = SetOnDrop(&over);
        scope.spawn(|| {
            let block = get("/").repeat(1000);
            while !over.load(Ordering::Relaxed) {
                sending.write_all(block.as_bytes()).unwrap();
            }
            let _ = sending.shutdown(Shutdown::Both);
        });
        let (over, answers) = (&over, &answers);
        scope.spawn(move || {
            while flood.try_response().is_ok_and(|it| it.status == 200) {
                answers.fetch_add(1, Ordering::Relaxed);
            }
            assert!(over.load(Ordering::Relaxed), "the flood ends when it is told to");
        });
        wait_until("it is under way", || answers.load(Ordering::Relaxed) > 100);
        // An answer there is proof that the flood went on between one here and the next.
        let mut client = weir.connect();
        for _ in 0..20 {
            let seen = answers.load(Ordering::Relaxed);
            assert_eq!(client.ask(get("/")).status, 200);
            wait_until("the flood goes on", || answers.load(Ordering::Relaxed) > seen);
        }
        drop(end);
    });
}
