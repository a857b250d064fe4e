//! Chunked request bodies: exactly the grammar, nothing near it.

use super::gateway;
use crate::support::{Client, Upstream, Weir, wait_until};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: weir.test\r\n\r\n";

fn begin(weir: &Weir) -> Client {
    let mut client = weir.connect();
    client.send("POST /chunked HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    client
}

/// The request may have begun upstream before its body went wrong; it must never be whole there,
/// never answered as if it were, and nothing behind it may be a request.
#[track_caller]
fn broken(weir: &Weir, upstream: &Upstream, body: &[u8]) {
    let shown = body[..body.len().min(60)].escape_ascii().to_string();
    let mut client = begin(weir);
    client.send([body, HIDDEN.as_bytes()].concat());
    if let Ok(response) = client.try_response() {
        assert_eq!(response.status, 400, "{shown}: {}", response.text());
        assert_eq!(response.error(), "bad_request", "{shown}");
        assert!(client.closes(), "{shown}: the connection goes on");
    }
    for request in upstream.requests() {
        assert_ne!(request.target, "/hidden", "{shown}: the tail became a request");
        assert!(!request.complete, "{shown}: passed on as whole: {:?}", request.body);
    }
}

#[test]
fn a_bad_chunk_is_an_error_and_no_desync() {
    let (upstream, weir) = gateway();
    let rows: &[&[u8]] = &[
        // Sizes.
        b"G\r\nhello\r\n0\r\n\r\n",
        b"-1\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"0X5\r\nhello\r\n0\r\n\r\n",
        b"5h\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b" \r\nhello\r\n0\r\n\r\n",
        b";a\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
        b"5.0\r\nhello\r\n0\r\n\r\n",
        b"5,5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"\t5\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b"00000000000000000000000000000000000000000000000000G\r\n\r\n",
        b"\0\r\nhello\r\n0\r\n\r\n",
        b"5\0\r\nhello\r\n0\r\n\r\n",
        b"\xd9\xa5\r\nhello\r\n0\r\n\r\n",
        // Line ends.
        b"5\nhello\n0\n\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"5\r\rhello\r\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\r\r\n0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\r\n",
        b"5\r\nhello\r\n0\r\nX",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\n\r\nhello\r\n0\r\n\r\n",
        b"5 \nhello\r\n0\r\n\r\n",
        // Extensions that hide a line.
        b"5;a\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
        b"5;\0\r\nhello\r\n0\r\n\r\n",
        b"0;a\nX\r\n\r\n",
        // Trailers that are no header lines.
        b"0\r\n: b\r\n\r\n",
        b"0\r\nX-A : b\r\n\r\n",
        b"0\r\nX-A: b\r\n c\r\n\r\n",
        b"0\r\nX-A: \0\r\n\r\n",
        b"0\r\nX-A: b\nX-B: c\r\n\r\n",
        b"0\r\nnocolon\r\n\r\n",
    ];
    for row in rows {
        broken(&weir, &upstream, row);
    }
    assert_eq!(weir.get("/after").status, 200);
}

#[test]
fn space_after_chunk_size_is_refused_or_harmless() {
    let (upstream, weir) = gateway();
    // RFC 9112 7.1.1 has a place for white space there, as bad practice.
    for body in
        ["5 ;a=b\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\t\r\nhello\r\n0\r\n\r\n"]
    {
        let mut client = begin(&weir);
        if let Ok(response) = client.try_ask(body) {
            assert!(matches!(response.status, 200 | 400), "{body:?}: {}", response.status);
            if response.status == 200 {
                assert_eq!(upstream.last().body, b"hello");
            }
        }
    }
}

#[test]
fn good_chunks_arrive_as_one_body() {
    let (upstream, weir) = gateway();
    let bodies = [
        "5\r\nhello\r\n0\r\n\r\n",
        "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0\r\n\r\n",
        "5;a=\"b c\";d\r\nhello\r\n0;last\r\n\r\n",
        "00000005\r\nhello\r\n000\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    ];
    let mut client = begin(&weir);
    for (count, body) in bodies.iter().enumerate() {
        assert_eq!(client.ask(body).status, 200, "{body:?}");
        let request = upstream.last();
        assert_eq!(request.body, b"hello", "{body:?}");
        assert!(request.complete && !request.has("x-sum"), "{}", request.raw);
        assert_eq!(upstream.heads(), count + 1);
        client.send("POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
}

#[test]
fn chunks_in_single_bytes_are_the_same_chunks() {
    let (upstream, weir) = gateway();
    let mut client = begin(&weir);
    for byte in b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.last().body, b"hello");
}

#[test]
fn a_body_cut_off_is_never_whole_upstream() {
    let (upstream, weir) = gateway();
    for body in ["5\r\nhel", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n0\r\nX: y\r\n"]
    {
        let before = upstream.heads();
        let mut client = begin(&weir);
        client.send(body);
        wait_until("it is under way", || upstream.heads() > before);
        drop(client);
    }
    let mut client = weir.connect();
    client.send("POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("it is under way", || upstream.heads() > 4);
    drop(client);
    assert_eq!(weir.get("/after").status, 200);
    let requests = upstream.requests();
    assert!(requests.iter().all(|it| it.target == "/after" || !it.complete), "{requests:#?}");
}

#[test]
fn a_megabyte_of_extensions_or_trailers_is_an_error_in_flat_memory() {
    let (upstream, weir) = gateway();
    assert_eq!(weir.get("/warm").status, 200);
    let before = weir.peak_memory();
    let long = "a".repeat(1 << 20);
    let many_trailers: String = (0..60_000).map(|n| format!("X-{n}: yyyyyyyy\r\n")).collect();
    let many_extensions = "1;abcdefgh\r\nx\r\n".repeat(100_000);
    let rows = [
        format!("5;{long}\r\nhello\r\n0\r\n\r\n"),
        format!("5;a=\"{long}\"\r\nhello\r\n0\r\n\r\n"),
        format!("5\r\nhello\r\n0;{long}\r\n\r\n"),
        format!("5\r\nhello\r\n0\r\nX-A: {long}\r\n\r\n"),
        format!("5\r\nhello\r\n0\r\n{long}: a\r\n\r\n"),
        format!("5\r\nhello\r\n0\r\n{many_trailers}\r\n"),
        format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(1 << 20)),
    ];
    for row in &rows {
        broken_after(&weir, &upstream, row);
    }
    // Many small ones add up: either an error, or passed by without being kept.
    let mut client = begin(&weir);
    client.send(format!("{many_extensions}0\r\n\r\n"));
    if let Ok(response) = client.try_response() {
        assert!(matches!(response.status, 200 | 400), "{}", response.status);
    }
    assert!(weir.peak_memory() < before + 16 * 1024, "kept in memory: {before} KiB before");
    assert_eq!(weir.get("/after").status, 200);
}

/// As `broken`, where earlier requests of the test were whole.
#[track_caller]
fn broken_after(weir: &Weir, upstream: &Upstream, body: &str) {
    let mut client = begin(weir);
    client.send(format!("{body}{HIDDEN}"));
    if let Ok(response) = client.try_response() {
        assert!(matches!(response.status, 400 | 413 | 431), "{}: {}", &body[..20], response.status);
        assert!(client.closes(), "{}: the connection goes on", &body[..20]);
    }
    let chunked = upstream.requests().into_iter().filter(|it| it.target != "/warm");
    assert!(
        chunked.into_iter().all(|it| it.target == "/chunked" && !it.complete),
        "{}",
        &body[..20]
    );
}
