//! `103 Early Hints` on their way through, and heads with many fields.

use crate::support::upstream::ok;
use crate::support::{After, Client, Config, Upstream, Weir, get};

/// An answer after a hint.
fn hinted(hint: &str) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 103 Early Hints\r\n{hint}\r\n\r\n").into_bytes();
    bytes.extend(ok("ok"));
    bytes
}

/// The head of the next 1xx, as it came.
fn interim(client: &mut Client) -> String {
    let head = client.wire.take_through(b"\r\n\r\n").unwrap();
    String::from_utf8(head).unwrap()
}

#[test]
fn hints_reach_the_client_before_the_answer_is_made() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        let _ = wait.lock().unwrap().recv();
        exchange.reply("HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n");
        exchange.reply(ok("ok"));
        After::Keep
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = weir.connect();
    for _ in 0..2 {
        client.send(get("/"));
        let head = interim(&mut client).to_lowercase();
        assert_eq!(head, "http/1.1 103 early hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
        go.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.status, response.interim.as_slice()), (200, &[103][..]));
        assert!(!response.has("link"), "{response:#?}");
    }
}

#[test]
fn hints_carry_nothing_that_only_the_gateway_may_say() {
    let hint = "Link: </a.css>\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 7\r\n\
                Keep-Alive: timeout=5\r\nX-Weir-Warning: g\r\nX-Inner: 1\r\nX-Frame: 1";
    let upstream = Upstream::replying(move |_| hinted(hint));
    let edits = "response_headers = { set = { x-frame = \"DENY\" }, remove = [\"x-inner\"] }";
    let config = Config::to(&upstream).open().route("all", "/*", &[]).route_lines(edits);
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    client.send(get("/"));
    let head = interim(&mut client).to_lowercase();
    assert_eq!(head, "http/1.1 103 early hints\r\nlink: </a.css>\r\n\r\n");
    assert_eq!(client.response().one("x-frame"), "DENY");
}

#[test]
fn a_client_of_http_1_0_gets_no_hints() {
    let upstream = Upstream::replying(|_| hinted("Link: </a.css>"));
    let weir = Weir::start(&Config::to(&upstream).open());
    let response = weir.ask("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n");
    assert_eq!((response.status, response.interim.len()), (200, 0));
}

#[test]
fn more_hints_than_are_reasonable_are_left_out_or_fail() {
    let upstream = Upstream::replying(|request| {
        let hint = match request.target.as_str() {
            "/large" => format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "a".repeat(20_000)),
            "/many" => "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n".repeat(100),
            _ => "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n".repeat(10),
        };
        [hint.as_bytes(), &ok("ok")].concat()
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for (path, status, interim) in [("/", 200, 10), ("/large", 200, 0)] {
        let response = weir.get(path);
        assert_eq!((response.status, response.interim.len()), (status, interim), "{path}");
    }
    assert_eq!(weir.get("/many").status, 502);
}

#[test]
fn heads_have_as_many_fields_as_the_configuration_says() {
    let upstream = Upstream::replying(|request| {
        let fields = "X-Many: 1\r\n".repeat(request.target[1..].parse().unwrap());
        format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let usual = Weir::start(&Config::to(&upstream).open());
    let wide = Config::to(&upstream).open().server("max_request_headers = 500");
    let wide = Weir::start(&wide.upstream("max_response_headers = 1000"));
    let request = |path: &str, fields: usize| {
        let fields = "X-Many: 1\r\n".repeat(fields);
        format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n")
    };
    for (weir, path, sent, status) in [
        (&usual, "/99", 99, 200),
        (&usual, "/100", 0, 502),
        (&usual, "/0", 100, 431),
        (&wide, "/999", 499, 200),
        (&wide, "/1000", 0, 502),
        (&wide, "/0", 500, 431),
    ] {
        let response = weir.ask(request(path, sent));
        assert_eq!(response.status, status, "{path} {sent}");
        if status == 200 {
            assert_eq!(response.all("x-many").len().to_string(), path[1..]);
            assert_eq!(upstream.last().all("x-many").len(), sent);
        }
    }
}
