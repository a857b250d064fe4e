//! An upstream that refuses, hangs, dies or sends garbage: the client always sees a failure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::fields::{self, Bare};
use crate::support::ports::nobody;
use crate::support::upstream::ok;
use crate::support::wire::ReadError;
use crate::support::{After, Config, PATIENCE, Response, Upstream, Weir, get, post};

/// The error of the Proxy-Status field, which must be one that RFC 9209 registers.
#[track_caller]
pub(super) fn proxy_error(response: &Response) -> String {
    let members = fields::list(&response.all("proxy-status"));
    assert_eq!(members[0].bare, Bare::Token("weir".into()));
    let Some(Bare::Token(error)) = members[0].get("error") else {
        panic!("no error in {members:?}");
    };
    let registered = [
        "dns_timeout",
        "dns_error",
        "destination_not_found",
        "destination_unavailable",
        "destination_ip_unroutable",
        "connection_refused",
        "connection_terminated",
        "connection_timeout",
        "connection_read_timeout",
        "connection_write_timeout",
        "http_response_incomplete",
        "http_response_header_section_size",
        "http_response_header_size",
        "http_response_transfer_coding",
        "http_response_timeout",
        "http_upgrade_failed",
        "http_protocol_error",
        "tls_protocol_error",
        "tls_certificate_error",
        "tls_alert_received",
        "proxy_internal_error",
        "proxy_loop_detected",
    ];
    assert!(registered.contains(&error.as_str()), "{error} is not registered");
    error.clone()
}

#[test]
fn an_upstream_that_refuses_is_a_502() {
    let weir = Weir::start(&Config::to_servers(&[nobody()]).open());
    let mut client = weir.connect();
    for request in [get("/"), post("/", "hello")] {
        let response = client.ask(request);
        assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
        assert!(matches!(
            &*proxy_error(&response),
            "connection_refused" | "destination_unavailable"
        ));
    }
}

#[test]
fn an_upstream_that_hangs_is_a_504() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.request.target == "/half" {
            exchange.reply("HTTP/1.1 200 OK\r\nX-A: ");
        }
        let _ = over.lock().unwrap().recv_timeout(PATIENCE);
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open().upstream("response_timeout = \"200ms\""));
    for request in [get("/"), get("/half"), post("/", "hello")] {
        let response = weir.ask(request);
        assert_eq!((response.status, response.error()), (504, "upstream_timeout".into()));
        assert!(proxy_error(&response).ends_with("_timeout"));
    }
    assert_eq!(upstream.heads(), 3, "a timeout is not repeated");
    drop(end);
}

#[test]
fn a_route_may_have_its_own_timeout() {
    let upstream = Upstream::silent();
    let config = Config::to(&upstream).open().route("all", "/*", &[]);
    let weir = Weir::start(&config.route_lines("timeout = \"200ms\""));
    assert_eq!(weir.get("/").status, 504);
}

#[test]
fn an_upstream_that_dies_mid_body_is_visible() {
    let upstream = Upstream::scripted(|exchange| {
        let head = match exchange.request.target.as_str() {
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "/in-chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello",
            "/in-trailer" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n"
            }
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        };
        exchange.reply(head);
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for target in ["/length", "/chunked", "/in-chunk", "/in-trailer", "/last"] {
        let mut client = weir.connect();
        client.send(get(target));
        if let Ok(response) = client.try_response() {
            assert!(response.truncated || response.status == 502, "{target}: {response:#?}");
            assert!(response.truncated || response.error() == "upstream_unavailable");
        }
    }
    // An HTTP/1.0 client may be reset instead, before it has read what came.
    let mut client = weir.connect();
    client.send("GET /length HTTP/1.0\r\nHost: a\r\n\r\n");
    assert!(client.try_response().map_or_else(|stop| stop == ReadError::Closed, |it| it.truncated));
}

#[test]
fn bad_framing_from_upstream_is_a_502_and_a_closed_connection() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.read_body();
        let number: Option<usize> = exchange.request.target.trim_start_matches('/').parse().ok();
        exchange.reply(number.map_or_else(|| ok("fine"), |number| bad_answers()[number].clone()));
        After::Keep
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for (number, bad) in bad_answers().iter().enumerate() {
        let shown = bad[..bad.len().min(100)].escape_ascii().to_string();
        let mut client = weir.connect();
        let response = client.try_ask(get(&format!("/{number}")));
        let response = response.unwrap_or_else(|stop| panic!("{shown}: {stop:?}"));
        assert_eq!(response.status, 502, "{shown}: {}", response.text());
        assert_eq!(response.error(), "upstream_unavailable", "{shown}");
        proxy_error(&response);
        let spoilt = upstream.last().connection;
        assert_eq!(weir.get("/fine").text(), "fine", "after {shown}");
        assert_ne!(upstream.last().connection, spoilt, "reused after {shown}");
    }
}

fn bad_answers() -> Vec<Vec<u8>> {
    let huge =
        format!("HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 2\r\n\r\nok", "a".repeat(1 << 20));
    let many: String = (0..20_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let many = format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok");
    let rows: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-A: b\0\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nnocolon\r\nContent-Length: 2\r\n\r\nok",
        b"garbage\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
        b"ICY 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        huge.as_bytes(),
        many.as_bytes(),
    ];
    rows.iter().map(|row| row.to_vec()).collect()
}

#[test]
fn a_bad_chunk_from_upstream_is_visible_and_ends_the_connection() {
    const CHUNKS: [&str; 9] = [
        "G\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nnocolon\r\n\r\n",
    ];
    let upstream = Upstream::replying(|request| {
        let Some(number) = request.target.trim_start_matches('/').parse::<usize>().ok() else {
            return ok("fine");
        };
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", CHUNKS[number])
            .into_bytes()
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for (number, chunks) in CHUNKS.iter().enumerate() {
        let mut client = weir.connect();
        if let Ok(response) = client.try_ask(get(&format!("/{number}"))) {
            assert!(response.truncated || response.status == 502, "{chunks:?}: {response:#?}");
        }
        let spoilt = upstream.last().connection;
        assert_eq!(weir.get("/fine").text(), "fine", "after {chunks:?}");
        assert_ne!(upstream.last().connection, spoilt, "reused after {chunks:?}");
    }
}

#[test]
fn bytes_after_a_response_are_not_the_next_response() {
    let upstream = Upstream::replying(|request| match request.target.as_str() {
        "/extra" => [ok("first"), ok("poison")].concat(),
        _ => ok("fine"),
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    for _ in 0..5 {
        let response = client.ask(get("/extra"));
        assert!(response.text() == "first" || response.status == 502);
        assert_eq!(client.ask(get("/fine")).text(), "fine", "the extra answer was taken");
    }
}

#[test]
fn an_upstream_that_ends_before_its_head_is_a_502() {
    for part in ["", "HTTP/1.1", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"]
    {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.read_body();
            exchange.reply(part);
            After::Close
        });
        let weir = Weir::start(&Config::to(&upstream).open().upstream("retries = 1"));
        assert_eq!(weir.get("/").status, 502, "{part:?}");
        assert!(upstream.heads() <= 2, "{part:?}: repeated {} times", upstream.heads());
        let seen = upstream.heads();
        let response = weir.ask(post("/", "hello"));
        assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
        assert_eq!(upstream.heads(), seen + 1, "{part:?}: a POST was repeated");
    }
}

/// Answers the first request of each connection and dies at the second, as a server does that
/// closed an idle connection just when it was used again.
fn forgetful() -> Upstream {
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    Upstream::scripted(move |exchange| {
        exchange.read_body();
        let connection = exchange.request.connection;
        if last.swap(connection, Ordering::SeqCst) == connection {
            return After::Close;
        }
        exchange.reply(ok("ok"));
        After::Keep
    })
}

#[test]
fn stale_connection_fails_no_repeatable_request() {
    for method in ["GET", "HEAD", "OPTIONS"] {
        let upstream = forgetful();
        let weir = Weir::start(&Config::to(&upstream).open().server("workers = 1"));
        let mut client = weir.connect();
        for round in 0..4 {
            client.send(get("/").replace("GET", method));
            let response =
                if method == "HEAD" { client.head_response() } else { client.response() };
            assert_eq!(response.status, 200, "{method}, round {round}");
        }
        assert!(upstream.connections() > 1, "connections are reused");
    }
}

#[test]
fn a_post_is_never_sent_twice() {
    let upstream = forgetful();
    let weir = Weir::start(&Config::to(&upstream).open().server("workers = 1"));
    let mut client = weir.connect();
    for round in 0..4 {
        let target = format!("/{round}");
        let response = client.ask(post(&target, "hello"));
        assert!(matches!(response.status, 200 | 502), "{}", response.status);
        let sent = upstream.requests().iter().filter(|it| it.target == target).count();
        assert_eq!(sent, 1, "{target}");
    }
}

#[test]
fn connections_are_reused() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("workers = 1"));
    for _ in 0..10 {
        assert_eq!(weir.get("/").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn dead_server_is_skipped_for_a_live_one() {
    let upstream = Upstream::ok();
    let config = Config::to_servers(&[nobody(), upstream.address()]).open();
    let weir = Weir::start(&config.upstream("balance = \"round_robin\"\nretries = 1"));
    for n in 0..10 {
        // Nothing was sent to the dead one, so even a POST may go to the other.
        let request = if n % 2 == 0 { get("/") } else { post("/", "hello") };
        assert_eq!(weir.ask(request).status, 200, "request {n}");
    }
    assert_eq!(upstream.requests().iter().filter(|it| it.body == b"hello").count(), 5);
}

#[test]
fn several_servers_share_the_work() {
    for balance in ["round_robin", "least_requests", "random"] {
        let servers = [Upstream::ok(), Upstream::ok()];
        let config = Config::to_servers(&[servers[0].address(), servers[1].address()]).open();
        let weir = Weir::start(&config.upstream(&format!("balance = \"{balance}\"")));
        for _ in 0..40 {
            assert_eq!(weir.get("/").status, 200);
        }
        assert_eq!(servers[0].heads() + servers[1].heads(), 40);
        assert!(servers.iter().all(|it| it.heads() > 0), "{balance} uses one server only");
    }
}

#[test]
fn unreachable_server_is_logged_once() {
    let (gone, upstream) = (nobody(), Upstream::ok());
    let config = Config::to_servers(&[gone, upstream.address()]).open().server("workers = 1");
    let weir = Weir::start(&config.upstream("balance = \"round_robin\""));
    for _ in 0..10 {
        assert_eq!(weir.get("/").status, 200);
    }
    let only = Weir::start(&Config::to_servers(&[gone]).open().server("workers = 1"));
    for _ in 0..10 {
        assert_eq!(only.get("/").status, 502);
    }
    for weir in [weir, only] {
        let named = || weir.output().lines().filter(|it| it.contains(&gone.to_string())).count();
        crate::support::wait_until("it is named", || named() > 0);
        assert_eq!(named(), 1, "{}", weir.output());
    }
}
