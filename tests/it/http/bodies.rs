//! Bodies on their way through: streamed, never kept, never longer than they say.

use std::io::Write;
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::support::upstream::ok;
use crate::support::wire::ReadError;
use crate::support::{After, Config, PATIENCE, Upstream, Weir, get, get_with, post};

const LARGE: usize = 32 << 20;

fn open(upstream: &Upstream) -> Weir {
    Weir::start(&Config::to(upstream).open())
}

#[test]
fn large_bodies_stream_both_ways_in_flat_memory() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.read_body();
        let request = &exchange.request;
        let head = if request.target == "/chunked" {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        } else {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len())
        };
        let body = request.body.clone();
        let chunked = request.target == "/chunked";
        exchange.reply(head);
        for piece in body.chunks(100_000) {
            if chunked {
                exchange.wire.write(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            exchange.wire.write(piece);
            exchange.wire.write(if chunked { b"\r\n" } else { b"" });
        }
        exchange.wire.write(if chunked { b"0\r\n\r\n" } else { b"" });
        After::Keep
    });
    let weir = open(&upstream);
    assert_eq!(weir.ask(post("/warm", &"w".repeat(1 << 20))).status, 200);
    let before = weir.peak_memory();
    let body: Vec<u8> = (0..LARGE).map(|n| (n % 251) as u8).collect();
    for target in ["/length", "/chunked"] {
        let mut client = weir.connect();
        if target == "/chunked" {
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            ));
            for piece in body.chunks(70_000) {
                client.send(format!("{:x}\r\n", piece.len()));
                client.send([piece, b"\r\n"].concat());
            }
            client.send("0\r\n\r\n");
        } else {
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"
            ));
            client.send(&body);
        }
        let response = client.response();
        assert_eq!(response.status, 200);
        assert!(response.body == body, "{target}: the body came back changed");
        assert!(upstream.last().body == body);
    }
    let grown = weir.peak_memory().saturating_sub(before);
    assert!(grown < 8 * 1024, "grew by {grown} KiB over {LARGE} bytes");
}

#[test]
fn client_that_does_not_read_is_not_buffered_for() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"));
        for _ in 0..LARGE / 65_536 {
            if !exchange.wire.write(&[b'x'; 65_536]) {
                return After::Close;
            }
        }
        After::Keep
    });
    let weir = open(&upstream);
    assert_eq!(weir.get("/warm").body.len(), LARGE);
    let before = weir.peak_memory();
    let mut waiting: Vec<_> = (0..4)
        .map(|_| {
            let mut client = weir.connect();
            client.send(get("/"));
            client
        })
        .collect();
    // Others are served meanwhile, and those that waited get all of it in the end.
    assert_eq!(weir.get("/").body.len(), LARGE);
    for client in &mut waiting {
        assert_eq!(client.response().body.len(), LARGE);
    }
    let grown = weir.peak_memory().saturating_sub(before);
    assert!(grown < 16 * 1024, "grew by {grown} KiB");
}

#[test]
fn each_piece_arrives_before_the_next_is_sent() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in ["5\r\nfirst\r\n", "6\r\nsecond\r\n", "0\r\n\r\n"] {
            exchange.wire.write(piece.as_bytes());
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
        After::Keep
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    client.send(get("/"));
    client.wire.take_through(b"first").unwrap();
    go.send(()).unwrap();
    client.wire.take_through(b"second").unwrap();
    go.send(()).unwrap();
    client.wire.take_through(b"0\r\n\r\n").unwrap();
    go.send(()).unwrap();
}

#[test]
fn an_upload_arrives_piece_by_piece() {
    let (told, tell) = mpsc::channel::<Vec<u8>>();
    let upstream = Upstream::scripted(move |exchange| {
        if let Ok(first) = exchange.wire.take(5) {
            let _ = told.send(first);
        }
        let _ = exchange.wire.take(5);
        exchange.reply(ok("ok"));
        After::Close
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(tell.recv_timeout(PATIENCE).unwrap(), b"hello");
    client.send("world");
    assert_eq!(client.response().status, 200);
}

#[test]
fn answers_without_a_body_leave_the_connection_usable() {
    let upstream =
        Upstream::replying(|request| match (request.method.as_str(), request.target.as_str()) {
            ("HEAD", _) => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n".to_vec(),
            (_, "/204") => b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n".to_vec(),
            (_, "/304") => {
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n".to_vec()
            }
            (_, "/304-bare") => b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_vec(),
            (_, "/empty") => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok("whole"),
        });
    let weir = open(&upstream);
    let mut client = weir.connect();
    client.send(get("/").replace("GET", "HEAD"));
    let head = client.head_response();
    assert_eq!((head.status, head.one("content-length"), head.one("x-a")), (200, "5", "b"));
    for (target, status) in [("/204", 204), ("/304", 304), ("/304-bare", 304), ("/empty", 200)] {
        let response = client.ask(get(target));
        assert_eq!((response.status, response.body.len()), (status, 0), "{target}");
        assert_eq!(client.ask(get("/")).text(), "whole", "after {target}");
    }
    assert!(client.stays_silent());
    // The answers to HEAD and `/304` speak of a body that is not sent: until the server was seen to
    // keep silent after one, others have connections of their own.
    assert!(upstream.connections() <= 3, "{}", upstream.connections());
}

#[test]
fn late_body_where_none_is_allowed_poisons_no_other_response() {
    let upstream = Upstream::replying(|request| match request.target.as_str() {
        "/204" => b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n".to_vec(),
        _ => ok("whole"),
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    let response = client.ask(get("/204"));
    assert_eq!(response.status, 204);
    assert!(response.all("content-length").is_empty(), "RFC 9110 section 8.6");
    assert_eq!(client.ask(get("/")).text(), "whole");
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_head_to_a_chunked_answer_has_no_body() {
    let upstream = Upstream::replying(|request| match request.method.as_str() {
        "HEAD" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        _ => ok("whole"),
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    client.send(get("/").replace("GET", "HEAD"));
    assert_eq!(client.head_response().status, 200);
    assert_eq!(client.ask(get("/")).text(), "whole");
}

#[test]
fn http_1_0_clients_get_what_they_can_read() {
    let upstream = Upstream::replying(|request| match request.target.as_str() {
        "/chunked" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                .to_vec()
        }
        _ => ok("abcde"),
    });
    let weir = open(&upstream);
    for target in ["/length", "/chunked"] {
        for lines in ["", "Connection: close\r\n", "Connection: keep-alive\r\n"] {
            let mut client = weir.connect();
            let request = format!("GET {target} HTTP/1.0\r\nHost: a\r\n{lines}\r\n");
            let response = client.ask(&request);
            assert_eq!(response.text(), "abcde", "{request:?}");
            assert!(!response.has("transfer-encoding"), "{request:?}");
            let kept =
                response.all("connection").iter().any(|it| it.eq_ignore_ascii_case("keep-alive"));
            if lines.contains("keep-alive") && target == "/length" {
                assert!(kept, "{response:#?}");
                assert_eq!(client.ask(&request).text(), "abcde");
            } else {
                assert!(!kept && client.closes(), "{request:?}: {response:#?}");
            }
        }
    }
}

#[test]
fn connection_close_is_honoured() {
    let upstream = Upstream::ok();
    let weir = open(&upstream);
    let mut client = weir.connect();
    for _ in 0..3 {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    let response = client.ask(get_with("/", "Connection: close\r\n"));
    assert_eq!((response.status, response.one("connection")), (200, "close"));
    assert!(client.closes());
    assert_eq!(upstream.connections(), 1, "a client's close is not passed on");
}

#[test]
fn response_that_ends_with_the_connection_is_complete() {
    let upstream = Upstream::scripted(|exchange| {
        let version = exchange.request.target.trim_start_matches('/').to_owned();
        exchange.reply(format!("HTTP/{version} 200 OK\r\nX-A: b\r\n\r\nabcde"));
        After::Close
    });
    let weir = open(&upstream);
    for version in ["1.0", "1.1"] {
        let response = weir.get(&format!("/{version}"));
        assert_eq!((response.text(), response.truncated), ("abcde".into(), false));
        assert!(!response.until_close, "an HTTP/1.1 client is told where it ends");
    }
}

#[test]
fn an_allowed_expectation_is_met_before_the_body() {
    let upstream = Upstream::ok();
    let weir = open(&upstream);
    let mut client = weir.connect();
    for chunked in [false, true] {
        let length = if chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 5" };
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{length}\r\n\r\n"
        ));
        let interim = client.wire.take_through(b"\r\n\r\n").unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", interim.escape_ascii());
        client.send(if chunked { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" });
        let response = client.response();
        assert_eq!((response.status, response.interim.len()), (200, 0));
        assert_eq!(upstream.last().body, b"hello");
    }
}

#[test]
fn a_refused_expectation_gets_no_100() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    assert_eq!(weir.get("/").status, 200);
    for length in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{length}\r\n\r\n");
        let mut client = weir.connect();
        let response = client.ask(request);
        assert_eq!((response.status, response.interim.as_slice()), (429, &[][..]));
        // Without the 100 the client may go on with another request or with the body: the two
        // can only be told apart if the connection ends.
        client.send("hello");
        match client.try_response() {
            Ok(next) => assert!(matches!(next.status, 400 | 429), "{}", next.status),
            Err(stop) => assert_eq!(stop, ReadError::Closed),
        }
    }
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn interim_answers_never_become_headers_of_the_final_one() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n\
          HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Interim: 2\r\n\r\n\
          HTTP/1.1 102 Processing\r\n\r\n\
          HTTP/1.1 200 OK\r\nX-Final: 1\r\nContent-Length: 2\r\n\r\nok"
            .to_vec()
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    for request in [get("/"), post("/", "hello")] {
        let response = client.ask(request);
        assert_eq!((response.status, response.text().as_str()), (200, "ok"));
        assert!(!response.has("x-interim") && !response.has("link"), "{response:#?}");
        assert_eq!(response.one("x-final"), "1");
        assert!(!response.interim.contains(&100), "nobody asked for a 100");
    }
}

#[test]
fn trailers_never_become_headers() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
          2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 99\r\nSet-Cookie: a=b\r\nRateLimit: \"x\";r=1\r\n\r\n"
            .to_vec()
    });
    let weir = open(&upstream);
    let mut client = weir.connect();
    for _ in 0..2 {
        let response = client.ask(get("/"));
        assert_eq!(response.text(), "ok");
        for name in ["x-sum", "set-cookie", "content-length", "ratelimit"] {
            assert!(!response.has(name), "{name} became a header");
        }
        let bad = |line: &String| line.to_ascii_lowercase().starts_with("content-length");
        assert!(
            !response.trailers.iter().any(bad),
            "framing in a trailer: {:?}",
            response.trailers
        );
    }
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-User\r\n\r\n\
                   2\r\nok\r\n0\r\nX-User: evil\r\nHost: evil\r\nTransfer-Encoding: x\r\n\r\n";
    let response = weir.ask(request);
    assert!(matches!(response.status, 200 | 400));
    assert!(!upstream.last().raw.contains("evil"), "{}", upstream.last().raw);
    let lines = upstream.last().trailers;
    assert!(lines.iter().all(|it| !it.to_ascii_lowercase().starts_with("host")), "{lines:?}");
}

#[test]
fn a_body_above_its_bound_is_a_413() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().server("max_body = \"1KiB\"");
    let weir = Weir::start(&config);
    assert_eq!(weir.ask(post("/", &"a".repeat(1024))).status, 200);
    let seen = upstream.heads();
    for size in [1025, 1 << 20] {
        let response = weir.ask(post("/", &"a".repeat(size)));
        assert_eq!((response.status, response.error()), (413, "body_too_large".into()));
    }
    assert_eq!(upstream.heads(), seen, "a length says it beforehand");
    let chunk = format!("400\r\n{}\r\n", "a".repeat(1024));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = weir.connect();
    let response = client.ask(format!("{head}{chunk}{chunk}0\r\n\r\n"));
    assert_eq!((response.status, response.error()), (413, "body_too_large".into()));
    assert!(client.closes());
    assert!(upstream.requests()[seen..].iter().all(|it| !it.complete));
    assert_eq!(weir.ask(format!("{head}{chunk}0\r\n\r\n")).status, 200);
}

#[test]
fn an_answer_before_the_end_of_the_body_reaches_the_client() {
    let upstream = Upstream::scripted(|exchange| {
        exchange
            .reply("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        // What is left is read, so that the close is no reset.
        let _ = exchange.wire.stream().shutdown(std::net::Shutdown::Write);
        while exchange.wire.fill().is_ok() {
            exchange.wire.take_rest();
        }
        After::Close
    });
    let weir = open(&upstream);
    let client = weir.connect();
    let mut writer = client.wire.stream().try_clone().unwrap();
    let mut client = client;
    let sending = thread::spawn(move || {
        let _ = writer.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33554432\r\n\r\n");
        let _ = writer.write_all(&vec![b'a'; LARGE]);
    });
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (403, "no"));
    drop(client);
    sending.join().unwrap();
}
