//! What is no message of HTTP/2, and what HTTP/1.1 would be refused for as well.

use crate::support::frames::{DATA, END_STREAM, FrameClient, block, literal, request};
use crate::support::{Config, Upstream, Weir, get_with};

/// PROTOCOL_ERROR of RFC 9113 section 7.
const PROTOCOL_ERROR: u32 = 1;

/// What comes of a request with these fields besides the usual ones: a status, or the code of a reset.
fn outcome(weir: &Weir, fields: &[(&str, &str)]) -> Result<u16, Option<u32>> {
    let mut all = request("GET", "/");
    all.extend_from_slice(fields);
    raw_outcome(weir, &block(&all))
}

fn raw_outcome(weir: &Weir, block: &[u8]) -> Result<u16, Option<u32>> {
    let mut client = FrameClient::connect(weir.address());
    let stream = client.open(block, END_STREAM);
    let outcome = client.outcome(stream);
    outcome.status.ok_or(outcome.reset)
}

#[test]
fn malformed_messages_reset_their_stream_and_nothing_is_forwarded() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    for fields in [
        [("connection", "close")],
        [("connection", "x-user-id")],
        [("keep-alive", "5")],
        [("proxy-connection", "close")],
        [("transfer-encoding", "chunked")],
        [("upgrade", "websocket")],
        [("te", "gzip")],
        [("host", "other.test")],
        [("x-user-id", " alice")],
        [("x-user-id", "alice ")],
        [("content-length", "5")],
        [("content-length", "+0")],
        [(":path", "/other")],
        [(":status", "200")],
    ] {
        assert_eq!(outcome(&weir, &fields), Err(Some(PROTOCOL_ERROR)), "{fields:?}");
    }
    assert_eq!(outcome(&weir, &[("te", "trailers"), ("host", "WEIR.test")]), Ok(200));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn bytes_that_no_field_may_have_end_the_connection() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    let bad: [(&[u8], &[u8]); 5] = [
        (b"x-a", b"b\r\nx-user-id: root"),
        (b"x-a", b"b\nc"),
        (b"x-a", b"b\0c"),
        (b"X-Upper", b"case"),
        (b"x a", b"b"),
    ];
    for (name, value) in bad {
        let mut block = block(&request("GET", "/"));
        literal(&mut block, name, value);
        assert!(raw_outcome(&weir, &block).is_err(), "{name:?}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn targets_and_hosts_are_held_to_the_rules_of_http1() {
    let weir = Weir::start(&Config::echo().open());
    let asked = |method: &str, authority: &str, scheme: &str, path: &str| {
        let fields =
            [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
        raw_outcome(&weir, &block(&fields))
    };
    assert_eq!(asked("GET", "a:80", "https", "/x?y"), Ok(200));
    assert_eq!(asked("OPTIONS", "a", "http", "*"), Ok(200));
    for (authority, scheme, path) in [
        ("u@a", "http", "/"),
        ("a..b", "http", "/"),
        ("a:99999", "http", "/"),
        ("a", "ftp", "/"),
        ("a", "http", "/é"),
        ("a", "http", "x"),
    ] {
        let refused = asked("GET", authority, scheme, path);
        assert!(
            matches!(refused, Ok(400) | Err(Some(PROTOCOL_ERROR))),
            "{authority} {path}: {refused:?}"
        );
    }
    let nowhere = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    assert_eq!(raw_outcome(&weir, &block(&nowhere)), Ok(400));
    assert_eq!(asked("TRACE", "a", "http", "/"), Ok(405));
    let connect = [(":method", "CONNECT"), (":authority", "a:443")];
    assert_eq!(raw_outcome(&weir, &block(&connect)), Ok(405));
    let websocket = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    assert_eq!(raw_outcome(&weir, &block(&websocket)), Err(Some(PROTOCOL_ERROR)));
}

#[test]
fn data_keeps_to_the_length_that_was_announced() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    for data in [&b"too long"[..], b"no"] {
        let mut client = FrameClient::connect(weir.address());
        let mut fields = request("POST", "/");
        fields.push(("content-length", "5"));
        let stream = client.open(&block(&fields), 0);
        client.send(DATA, END_STREAM, stream, data);
        assert_eq!(client.outcome(stream).reset, Some(PROTOCOL_ERROR), "{data:?}");
    }
    assert!(!upstream.requests().iter().any(|it| it.complete));
}

#[test]
fn length_is_one_number_as_in_http1() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    for lengths in [&["0", "0"][..], &[""]] {
        let fields: Vec<_> = lengths.iter().map(|it| ("content-length", *it)).collect();
        assert_eq!(outcome(&weir, &fields), Ok(400), "{lengths:?}");
    }
    assert_eq!(outcome(&weir, &[("content-length", "0")]), Ok(200));
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn crumbs_of_a_cookie_are_one_caller_over_both_protocols() {
    let upstream = Upstream::ok();
    let limit = "key = \"cookie:session\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let crumbs = [("cookie", "theme=dark"), ("cookie", "session=abc"), ("cookie", "x=1")];
    assert_eq!(outcome(&weir, &crumbs), Ok(200));
    assert_eq!(upstream.last().one("cookie"), "theme=dark; session=abc; x=1");
    assert_eq!(outcome(&weir, &crumbs), Ok(429));
    let again = weir.ask(get_with("/", "Cookie: session=abc\r\n"));
    assert_eq!(again.status, 429);
}

#[test]
fn identity_that_is_given_twice_is_refused() {
    let limit = "key = \"header:x-user-id\"\nrate = \"1/hour\"\nburst = 5";
    let weir = Weir::start(&Config::echo().limit(limit));
    let twice = [("x-user-id", "alice"), ("x-user-id", "bob")];
    assert_eq!(outcome(&weir, &twice), Ok(400));
}

#[test]
fn number_and_size_of_fields_are_bounded() {
    let weir = Weir::start(&Config::echo().open());
    let names: Vec<_> = (0..110).map(|n| format!("x-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(outcome(&weir, &many), Ok(431));
    assert_eq!(outcome(&weir, &many[..80]), Ok(200));
    let weir = Weir::start(&Config::echo().open().server("max_header_bytes = \"8KiB\""));
    let large = "x".repeat(2000);
    assert_eq!(outcome(&weir, &[("x-a", large.as_str()); 5]), Ok(431));
    assert_eq!(outcome(&weir, &[("x-a", large.as_str()); 3]), Ok(200));
}
