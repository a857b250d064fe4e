//! Callers named by a form field: the form is inspected, and forwarded byte for byte.

use crate::support::{Config, Upstream, Weir, get, wait_until};

/// As much of a body as is inspected.
const INSPECTED: usize = 64 * 1024;

/// Each client once a day. Those that name themselves nowhere are not limited, so that it shows.
fn gateway(upstream: &Upstream) -> Weir {
    let limit = "key = \"client\"\nmissing = \"skip\"\nrate = \"1/day\"\nburst = 1";
    let identity = "[identity]\nclient = \"form:client_id\"";
    Weir::start(&Config::to(upstream).limit(limit).also(identity))
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

fn whole(lines: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{lines}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn chunked(lines: &str, body: &[u8], size: usize) -> Vec<u8> {
    let head =
        format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{lines}Transfer-Encoding: chunked\r\n\r\n");
    let mut bytes = head.into_bytes();
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A form that begins with the client's name and is so long.
fn long(client: &str, length: usize) -> Vec<u8> {
    let mut body = format!("client_id={client}&rest=").into_bytes();
    let start = body.len();
    body.extend((start..length).map(|at| b'a' + (at % 26) as u8));
    body
}

#[test]
fn a_form_names_its_client_and_arrives_byte_for_byte() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    let odd = b"x=%zz&&=&client_id=od%64+1&\x00\x01\r\n\r\n=%&+".to_vec();
    let bodies = [
        b"client_id=short".to_vec(),
        odd,
        long("half", INSPECTED / 2),
        long("full", INSPECTED - 100),
    ];
    for (number, body) in bodies.iter().enumerate() {
        // As a whole, in chunks, and in very small ones, each from a client of its own.
        let name = |way: &str| {
            let at = body.windows(10).position(|it| it == b"client_id=").unwrap() + 10;
            [&body[..at], way.as_bytes(), &body[at..]].concat()
        };
        for way in ["whole", "coarse", "fine"] {
            let body = name(way);
            let request = match way {
                "whole" => whole(FORM, &body),
                "coarse" => chunked(FORM, &body, 10_000),
                _ => chunked(FORM, &body, 7),
            };
            assert_eq!(weir.ask(&request).status, 200, "{number} {way}");
            let arrived = upstream.last();
            assert!(arrived.complete && arrived.body == body, "{number} {way}");
            let framing = [arrived.has("content-length"), arrived.has("transfer-encoding")];
            assert_eq!(framing, [way == "whole", way != "whole"], "{number} {way}");
            assert_eq!(arrived.one("content-type"), "application/x-www-form-urlencoded");
            assert_eq!(weir.ask(whole(FORM, &body)).status, 429, "{number} {way} again");
        }
    }
}

#[test]
fn form_is_recognised_with_any_content_type_parameters() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    assert_eq!(weir.ask(whole(FORM, b"client_id=a")).status, 200);
    let types = [
        "application/x-www-form-urlencoded; charset=utf-8",
        "Application/X-WWW-Form-Urlencoded",
        "application/x-www-form-urlencoded;charset=utf-8",
        "application/x-www-form-urlencoded ; x=y",
    ];
    for kind in types {
        let lines = format!("Content-Type: {kind}\r\n");
        assert_eq!(weir.ask(whole(&lines, b"client_id=a")).status, 429, "{kind}");
    }
    for body in ["client_id=%61", "%63lient_id=a", "x=y&client_id=a", "x;y&client_id=a"] {
        assert_eq!(weir.ask(whole(FORM, body.as_bytes())).status, 429, "{body}");
    }
    // What is no form is not looked into.
    for kind in ["application/json", "text/plain"] {
        let lines = format!("Content-Type: {kind}\r\n");
        assert_eq!(weir.ask(whole(&lines, b"client_id=a")).status, 200, "{kind}");
    }
}

#[test]
fn duplicate_or_semicolon_separated_field_is_refused() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    for body in [
        "client_id=b&client_id=c",
        "client_id=a&client_id=a",
        "client_id=a&client_id=",
        "x=1;client_id=a",
        "client_id=fresh;client_id=a",
        "client_id=a;x=1",
        "x;%63lient_id=a",
    ] {
        let response = weir.ask(whole(FORM, body.as_bytes()));
        assert_eq!((response.status, response.error()), (400, "bad_request".into()), "{body}");
    }
    assert_eq!(upstream.heads(), 0);
}

/// An upstream may read what Weir does not, so the request could count as another caller.
#[test]
fn body_that_may_hide_a_form_is_refused_where_a_field_is_needed() {
    let upstream = Upstream::ok();
    let limit = "key = \"client\"\nmissing = \"skip\"\nrate = \"1/day\"\nburst = 100";
    let identity = "[identity]\nclient = [\"header:x-api-key\", \"form:client_id\"]";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(identity));
    let is_unread = |lines: &str, body: &[u8], accepts: (&str, &str)| {
        for request in [whole(lines, body), chunked(lines, body, 5)] {
            let response = weir.ask(&request);
            assert_eq!((response.status, response.error()), (415, "bad_request".into()), "{lines}");
            assert_eq!(response.one(accepts.0), accepts.1, "{lines}");
        }
    };
    let zipped = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    for coding in ["gzip", "x-gzip", "deflate", "br", "identity, gzip", "aes128gcm"] {
        let lines = format!("{FORM}Content-Encoding: {coding}\r\n");
        is_unread(&lines, zipped, ("accept-encoding", "identity"));
    }
    let urlencoded = "application/x-www-form-urlencoded";
    let types = [
        format!("{urlencoded},x"),
        format!("{urlencoded}, text/plain"),
        format!("text/plain, {urlencoded}"),
        format!("{urlencoded} x"),
        format!("{urlencoded}; charset=utf-7"),
        format!("{urlencoded}; charset=ibm037"),
        format!("{urlencoded}; charset=\"utf-16\""),
        format!("{urlencoded}; charset=utf-8; charset=utf-7"),
        "application/x-url-encoded".to_owned(),
        "multipart/form-data; boundary=x".to_owned(),
        "Multipart/Form-Data".to_owned(),
        String::new(),
    ];
    for kind in &types {
        let lines = format!("Content-Type: {kind}\r\n");
        is_unread(&lines, b"client_id=a", ("accept", urlencoded));
    }
    is_unread("", b"client_id=a", ("accept", urlencoded));
    is_unread(
        &format!("Content-Type: text/plain\r\n{FORM}"),
        b"client_id=a",
        ("accept", urlencoded),
    );
    assert_eq!(upstream.heads(), 0, "none has reached the upstream");
    // Nothing is asked of a request without a body, nor of one that names its client otherwise.
    for lines in ["", "Content-Type: multipart/form-data\r\nContent-Length: 0\r\n"] {
        let request = format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{lines}\r\n");
        assert_eq!(weir.ask(request).status, 200, "{lines}");
    }
    let named = "X-Api-Key: k\r\nContent-Type: multipart/form-data; boundary=x\r\n";
    assert_eq!(weir.ask(whole(named, b"--x--")).status, 200);
}

#[test]
fn bytes_that_are_not_text_hide_no_field() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    assert_eq!(weir.ask(whole(FORM, b"client_id=a")).status, 200);
    for body in [&b"client_id=a&x=\xff"[..], b"\xc3=\x80&client_id=a", b"client_id=a&\xe2\x82"] {
        let status = weir.ask(whole(FORM, body)).status;
        assert_eq!(status, 429, "{}", body.escape_ascii());
    }
    let latin: &[u8] = b"client_id=\xe9";
    assert_eq!(weir.ask(whole(FORM, latin)).status, 200, "a name in Latin-1 is one as well");
    assert_eq!(weir.ask(whole(FORM, latin)).status, 429);
    assert_eq!(upstream.last().body, latin);
}

/// What comes behind the inspected part might name another client, and the upstream believe that one.
#[test]
fn form_beyond_the_inspection_bound_is_refused() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    for length in [INSPECTED, INSPECTED + 1, 5 * INSPECTED + 77] {
        let mut body = long("fresh", length);
        body.extend_from_slice(b"&client_id=victim");
        for request in [whole(FORM, &body), chunked(FORM, &body, 9_999)] {
            let response = weir.ask(request);
            assert_eq!((response.status, response.error()), (413, "body_too_large".into()));
        }
    }
}

#[test]
fn client_that_expects_100_continue_gets_it_for_its_form() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    for (length, statuses) in [(30, [200, 429]), (INSPECTED / 2, [200, 429])] {
        let body = long(&format!("patient-{length}"), length);
        let lines = format!("{FORM}Expect: 100-continue\r\n");
        let request = whole(&lines, &body);
        let head = request.len() - body.len();
        for status in statuses {
            let mut client = weir.connect();
            client.send(&request[..head]);
            let interim = client.wire.take_through(b"\r\n\r\n").unwrap();
            assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", interim.escape_ascii());
            client.send(&request[head..]);
            let response = client.response();
            assert_eq!(response.status, status, "{length}");
            assert!(response.interim.is_empty(), "asked twice");
        }
        assert_eq!(upstream.last().body, body);
    }
    assert_eq!(upstream.heads(), 2);
}

#[test]
fn a_connection_goes_on_after_a_form_that_was_refused() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    let mut client = weir.connect();
    let body = b"client_id=a&GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let requests =
        [(whole(FORM, body), 200), (chunked(FORM, body, 5), 429), (whole(FORM, body), 429)];
    for (request, status) in requests {
        assert_eq!(client.ask(&request).status, status);
        assert_eq!(client.ask(get("/after")).status, 200);
        assert_eq!(upstream.last().target, "/after");
    }
    assert_eq!(upstream.heads(), 4);
    assert!(upstream.requests().iter().all(|it| it.target != "/smuggled"));
}

#[test]
fn unfinished_form_does_not_reach_upstream() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    let request = whole(FORM, b"client_id=a&rest=of-it");
    let mut client = weir.connect();
    client.send(&request[..request.len() - 3]);
    assert!(client.stays_silent());
    drop(client);
    wait_until("others are served", || weir.get("/").status == 200);
    assert!(upstream.requests().iter().all(|it| it.method == "GET"), "it was never sent on");
    assert_eq!(weir.ask(&request).status, 200, "and charged nobody");
}

/// To CGI `_` and `-` are the same, so a second type could make a form of what is none to Weir.
#[test]
fn look_alike_of_a_content_header_does_not_arrive() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream);
    let json = "Content-Type: application/json\r\n";
    let form = "application/x-www-form-urlencoded";
    for (name, value) in [("Content_Type", form), ("Content_Encoding", "gzip")] {
        let request = whole(&format!("{json}{name}: {value}\r\n"), b"client_id=a");
        assert_eq!(weir.ask(request).status, 200, "{name}");
        assert!(!upstream.last().has(name), "{name} went through");
        assert_eq!(upstream.last().one("content-type"), "application/json");
    }
}
