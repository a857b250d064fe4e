//! Requests whose length or syntax is in doubt: refused, and nothing behind them is a request.
//!
//! Each row is sent with a second request hidden behind it. Whatever the answer, upstream must
//! not see the hidden one, and the connection must end.

use super::gateway;
use crate::support::{Config, Response, Upstream, Weir};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: weir.test\r\n\r\n";

/// Sends `head` (without its empty line), a body and the hidden request.
#[track_caller]
fn refused(
    weir: &Weir,
    upstream: &Upstream,
    head: &[u8],
    body: &[u8],
    allowed: &[u16],
) -> Response {
    let shown = head.escape_ascii().to_string();
    let before = upstream.heads();
    let mut client = weir.connect();
    client.send([head, b"\r\n\r\n", body, HIDDEN.as_bytes()].concat());
    let response = client.try_response().unwrap_or_else(|stop| panic!("{shown}: {stop:?}"));
    assert!(allowed.contains(&response.status), "{shown}: {} {}", response.status, response.text());
    assert_eq!(response.error(), "bad_request", "{shown}");
    assert!(client.closes(), "{shown}: the connection goes on");
    assert_eq!(
        upstream.heads(),
        before,
        "{shown}: reached upstream: {:?}",
        upstream.requests().last()
    );
    response
}

#[track_caller]
fn still_serves(weir: &Weir) {
    assert_eq!(weir.get("/after").status, 200);
}

#[test]
fn length_and_transfer_coding_together_never_make_two_requests() {
    let (upstream, weir) = gateway();
    let rows = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "content-length: 5\r\ntransfer-encoding: CHUNKED",
        "Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 46",
        "Content-Length: 5\r\nTransfer-Encoding: identity",
        "Content-Length: 5\r\nTransfer-Encoding: xchunked",
        "Content-Length: 5\r\nTransfer-Encoding:",
    ];
    for row in rows {
        let head = format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{row}");
        refused(&weir, &upstream, head.as_bytes(), b"0\r\n\r\n", &[400, 501]);
    }
    still_serves(&weir);
}

#[test]
fn content_length_is_one_run_of_digits() {
    let (upstream, weir) = gateway();
    let values = [
        "+5",
        "-1",
        "-0",
        "0x5",
        "1_0",
        "",
        "18446744073709551616",
        "99999999999999999999999",
        "5 5",
        "5;",
        "5.0",
        "5e0",
        "five",
        "5,6",
        "5, 6",
        ",5",
        "5,",
        "\"5\"",
        "5\t5",
        "٥",
        "５",
        "0b1",
        "0o5",
        "NaN",
        "5\x0b",
        "(5)",
        "5 ;a",
    ];
    for value in values {
        let head = format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {value}");
        refused(&weir, &upstream, head.as_bytes(), b"hello", &[400]);
    }
    let pairs = [("5", "6"), ("6", "5"), ("0", "5"), ("5", "0"), ("5", "+5"), ("", "5"), ("5", "")];
    for (one, two) in pairs {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {one}\r\nContent-Length: {two}"
        );
        refused(&weir, &upstream, head.as_bytes(), b"hello", &[400]);
    }
    still_serves(&weir);
}

#[test]
fn an_unread_get_body_is_framed_like_any_other() {
    let (upstream, weir) = gateway();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "FOO"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 5x");
        let mut client = weir.connect();
        client.send(format!("{head}\r\n\r\n{HIDDEN}"));
        let response = client.head_response();
        assert_eq!(response.status, 400, "{method}");
    }
    // A good length on a GET is a body, not a second request.
    let length = HIDDEN.len();
    let mut client = weir.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{HIDDEN}");
    assert_eq!(client.ask(request).status, 200);
    assert!(client.stays_silent(), "the body was taken for a request");
    assert_eq!(upstream.heads(), 1);
    assert_eq!(upstream.last().body, HIDDEN.as_bytes());
}

#[test]
fn repeated_equal_content_length_is_refused_or_merged() {
    let (upstream, weir) = gateway();
    for lines in ["Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 5"] {
        let request = format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{lines}\r\n\r\nhello");
        let response = weir.ask(request);
        assert!(matches!(response.status, 200 | 400), "{lines:?}: {}", response.status);
        if response.status == 200 {
            assert_eq!(upstream.last().one("content-length"), "5");
        }
    }
}

#[test]
fn only_exactly_chunked_is_a_transfer_coding() {
    let (upstream, weir) = gateway();
    let values = [
        "chunked, chunked",
        "identity",
        "xchunked",
        "chunkedx",
        "gzip, chunked",
        "chunked, gzip",
        "gzip",
        "",
        ",",
        "chunked,",
        ",chunked",
        "chunked;q=1",
        "\"chunked\"",
        "chunked chunked",
        "chunk",
        "\x0bchunked",
        "chunked\x0b",
        "chunKed\x00",
        "identity, chunked",
        "chunked, identity",
        "deflate",
        "trailers",
        "x, chunked",
    ];
    for value in values {
        let head = format!("POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: {value}");
        refused(&weir, &upstream, head.as_bytes(), b"0\r\n\r\n", &[400, 501]);
    }
    let lines = [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: chunked\r\n , identity",
    ];
    for line in lines {
        let head = format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{line}");
        refused(&weir, &upstream, head.as_bytes(), b"0\r\n\r\n", &[400, 501]);
    }
    still_serves(&weir);
}

#[test]
fn http_1_0_has_no_transfer_coding() {
    let (upstream, weir) = gateway();
    for line in ["", "\r\nConnection: keep-alive", "\r\nContent-Length: 5"] {
        let head =
            format!("POST / HTTP/1.0\r\nHost: weir.test\r\nTransfer-Encoding: chunked{line}");
        refused(&weir, &upstream, head.as_bytes(), b"0\r\n\r\n", &[400]);
    }
}

#[test]
fn ambiguous_header_lines_are_refused() {
    let (upstream, weir) = gateway();
    let lines: &[&[u8]] = &[
        b"X-A : b",
        b"X-A\t: b",
        b" X-A: b",
        b"\tX-A: b",
        b": b",
        b" : b",
        b"X-A",
        b"X A: b",
        b"X-A: b\r\n c",
        b"X-A: b\r\n\tc",
        b"X-A:\r\n b",
        b"X-A: b\r\n ",
        b"X-A: b\r\n \r\nX-B: c",
        b"X-A: \0",
        b"X-A: b\0c",
        b"X-\0A: b",
        b"\0: b",
        b"X-A: b\rc",
        b"X-A: b\r",
        b"X-\rA: b",
        b"X-A: b\r\r\nX-B: c",
        b"\rX-A: b",
        b"X-A: b\nX-B: c",
        b"X-A: b\n",
        b"\nX-A: b",
        b"X-A: b\x01",
        b"X-A: b\x7f",
        b"X(A): b",
        b"X/A: b",
        b"X\"A: b",
        b"X@A: b",
        b"X[A]: b",
        b"X{A}: b",
        b"X,A: b",
        b"X;A: b",
        b"X=A: b",
        b"X\\A: b",
        b"X\xc3\xa9: b",
        b"\x7f: b",
    ];
    for line in lines {
        let head = [b"GET / HTTP/1.1\r\nHost: weir.test\r\n", *line, b"\r\nX-Z: z"].concat();
        refused(&weir, &upstream, &head, b"", &[400]);
        let first = [b"GET / HTTP/1.1\r\n", *line, b"\r\nHost: weir.test"].concat();
        refused(&weir, &upstream, &first, b"", &[400]);
    }
    still_serves(&weir);
}

#[test]
fn folded_header_is_refused_anywhere() {
    let (upstream, weir) = gateway();
    let heads = [
        "GET / HTTP/1.1\r\n Host: weir.test",
        "GET / HTTP/1.1\r\nHost:\r\n weir.test",
        "GET / HTTP/1.1\r\nHost: weir.test\r\n .evil",
        "GET / HTTP/1.1\r\nHost: weir.test\r\nContent-Length:\r\n 5",
        "GET / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 5\r\n 5",
        "GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: close,\r\n\tx",
    ];
    for head in heads {
        refused(&weir, &upstream, head.as_bytes(), b"hello", &[400]);
    }
}

#[test]
fn ambiguous_request_lines_are_refused() {
    let (upstream, weir) = gateway();
    let lines: &[&[u8]] = &[
        b"GET  / HTTP/1.1",
        b"GET /  HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET\t/ HTTP/1.1",
        b"GET /\tHTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET / HTTP/1.1 x",
        b"GET /",
        b"GET",
        b"GET / ",
        b"GET HTTP/1.1",
        b"GET / http/1.1",
        b"GET / HTTP/1.1\rX",
        b"GET / HTTP/1",
        b"GET / HTTP/1.11",
        b"GET / HTTP/01.1",
        b"GET / HTTP/1,1",
        b"GET / HTTPS/1.1",
        b"GET / HTTP /1.1",
        b"G@T / HTTP/1.1",
        b"G\0T / HTTP/1.1",
        b"GET /\0 HTTP/1.1",
        b"GET /a\0b HTTP/1.1",
        b"GET /a\rb HTTP/1.1",
        b"GET /a\nb HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
        b"GET /\x7f HTTP/1.1",
        b"GET(/) / HTTP/1.1",
        b"\"GET\" / HTTP/1.1",
    ];
    for line in lines {
        let head = [line, &b"\r\nHost: weir.test"[..]].concat();
        refused(&weir, &upstream, &head, b"", &[400, 505]);
    }
    for version in ["HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/1.2", "HTTP/9.9"] {
        let head = format!("GET / {version}\r\nHost: weir.test");
        let mut client = weir.connect();
        client.send(format!("{head}\r\n\r\n{HIDDEN}"));
        // A later minor version may be served as 1.1, but only as the requests they are.
        let response = client.response();
        assert!(matches!(response.status, 200 | 400 | 505), "{version}: {}", response.status);
        assert!(response.status != 200 || version == "HTTP/1.2", "{version}: served");
    }
    still_serves(&weir);
}

#[test]
fn a_target_is_a_path_or_a_uri() {
    let (upstream, weir) = gateway();
    let targets =
        ["x", "?a", "*", "*/", "weir.test", "weir.test:80", "/a#b", "#", "%2f", "..", "\\"];
    for target in targets {
        let response = weir.ask(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{target}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn empty_line_before_a_request_is_ignored() {
    let (_upstream, weir) = gateway();
    assert_eq!(weir.ask("\r\nGET / HTTP/1.1\r\nHost: weir.test\r\n\r\n").status, 200);
}

#[test]
fn bare_line_feeds_do_not_end_lines() {
    let (upstream, weir) = gateway();
    let heads = [
        "GET / HTTP/1.1\nHost: weir.test",
        "GET / HTTP/1.1\r\nHost: weir.test\nX-A: b",
        "POST / HTTP/1.1\r\nHost: weir.test\nContent-Length: 5",
        "GET / HTTP/1.1\r\nHost: weir.test\nTransfer-Encoding: chunked",
        "GET / HTTP/1.1\r\nHost: weir.test\r\nX-A: b\n\nGET /hidden HTTP/1.1\r\nHost: weir.test",
    ];
    for head in heads {
        refused(&weir, &upstream, head.as_bytes(), b"hello", &[400]);
    }
}

#[test]
fn oversized_head_is_refused_in_flat_memory() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().server("max_header_bytes = \"16KiB\"");
    let weir = Weir::start(&config);
    let before = weir.peak_memory();
    let long = "a".repeat(1 << 20);
    let many: String = (0..20_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let rows = [
        format!("GET /{long} HTTP/1.1\r\nHost: weir.test\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-A: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{long}: a\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{many}\r\n"),
        format!("{long} / HTTP/1.1\r\nHost: weir.test\r\n\r\n"),
    ];
    for row in &rows {
        let mut client = weir.connect();
        let response = client.try_ask(row).unwrap_or_else(|_| panic!("no answer: {}", &row[..40]));
        assert!(matches!(response.status, 400 | 414 | 431), "{}: {}", &row[..40], response.status);
        assert!(client.closes());
    }
    assert_eq!(upstream.heads(), 0);
    assert!(weir.peak_memory() < before + 16 * 1024, "the heads were kept");
    still_serves(&weir);
}

#[test]
fn head_sent_byte_by_byte_is_the_same_head() {
    let (upstream, weir) = gateway();
    let mut client = weir.connect();
    for byte in "POST /slow HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 5\r\n\r\nhello".bytes() {
        client.send([byte]);
    }
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.last().body, b"hello");
}
