//! The PROXY protocol: peers that state their client's address before the first request.

use std::net::Ipv6Addr;

use rustix::process::Signal;

use crate::support::{Config, Upstream, Weir, get, get_with, wait_until};

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The gateway, whose own address is trusted along with `more`; every caller is let in once.
fn speaking(upstream: &Upstream, more: &str) -> Config {
    Config::to(upstream)
        .server("proxy_protocol = true")
        .limit("key = \"ip\"\nrate = \"1/day\"\nburst = 1")
        .also(&format!("[identity]\ntrusted_proxies = [\"127.0.0.0/8\"{more}]"))
}

fn v1(source: &str) -> Vec<u8> {
    let family = if source.contains(':') { "TCP6" } else { "TCP4" };
    format!("PROXY {family} {source} {source} 4711 80\r\n").into_bytes()
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [V2, &[command, family], &length, body].concat()
}

fn v2_four(source: [u8; 4], extensions: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[&source[..], &[127, 0, 0, 1, 1, 2, 0, 80], extensions].concat())
}

fn v2_six(source: &str) -> Vec<u8> {
    let source = source.parse::<Ipv6Addr>().unwrap().octets();
    v2(0x21, 0x21, &[&source[..], &[0; 16], &[1, 2, 0, 80]].concat())
}

fn errors(weir: &Weir) -> f64 {
    weir.metrics().value("weir_proxy_header_errors_total", &[]).unwrap()
}

/// The status of one request behind a header, sent as one packet.
fn status(weir: &Weir, header: &[u8]) -> u16 {
    weir.connect().ask([header, &get("/").into_bytes()].concat()).status
}

#[test]
fn limits_count_by_the_address_in_the_header() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&speaking(&upstream, ""));
    let rows = [
        (v1("192.0.2.1"), 200),
        (v1("192.0.2.1"), 429),
        (v2_four([192, 0, 2, 1], &[]), 429),
        (v2_four([192, 0, 2, 1], &[4, 0, 2, 0, 0]), 429),
        (v1("::ffff:192.0.2.1"), 429),
        (v2_four([192, 0, 2, 2], &[]), 200),
        (v2_six("2001:db8::1"), 200),
        (v1("2001:db8::2"), 429),
        (v2_six("2001:db8:0:1::1"), 200),
    ];
    for (header, expected) in rows {
        let shown = header.escape_ascii().to_string();
        assert_eq!(status(&weir, &header), expected, "{shown}");
    }
    assert_eq!(errors(&weir), 0.0);
}

#[test]
fn local_command_keeps_the_peer_address() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&speaking(&upstream, ""));
    let headers = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN 192.0.2.1 192.0.2.1 1 2\r\n".to_vec(),
        v2(0x20, 0x00, &[]),
        v2(0x20, 0x11, &[192, 0, 2, 1, 127, 0, 0, 1, 1, 2, 0, 80]),
        v2(0x21, 0x00, &[]),
        v2(0x21, 0x31, &[0; 216]),
    ];
    for (index, header) in headers.iter().enumerate() {
        let expected = if index == 0 { 200 } else { 429 };
        assert_eq!(status(&weir, header), expected, "{}", header.escape_ascii());
    }
    assert_eq!(upstream.last().one("x-forwarded-for"), "127.0.0.1");
}

#[test]
fn proxied_address_applies_to_all_requests_of_the_connection() {
    let upstream = Upstream::ok();
    let weir = Weir::start(
        &speaking(&upstream, "")
            .limit("key = \"ip\"\nrate = \"1/day\"\nburst = 3")
            .also("[telemetry]\naccess_log = \"stdout\""),
    );
    let mut client = weir.connect();
    client.send(v1("2001:db8::1"));
    for expected in [200, 200, 200, 429] {
        assert_eq!(client.ask(get_with("/", "X-Forwarded-For: 6.6.6.6\r\n")).status, expected);
    }
    let seen = upstream.last();
    assert_eq!(seen.one("x-forwarded-for"), "2001:db8::1", "what came from there is not believed");
    assert!(seen.one("forwarded").starts_with("for=\"[2001:db8::1]\""), "{}", seen.raw);
    wait_until("the log names it", || weir.output().matches("\"2001:db8::1\"").count() >= 4);
    assert!(!weir.output().contains("6.6.6.6"));
}

#[test]
fn forwarding_headers_are_read_if_the_proxied_address_is_trusted() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&speaking(&upstream, ", \"10.0.0.0/8\""));
    let ask = |header: Vec<u8>, told: &str| {
        let request = get_with("/", &format!("X-Forwarded-For: {told}\r\n"));
        weir.connect().ask([header, request.into_bytes()].concat()).status
    };
    assert_eq!(ask(v1("10.0.0.1"), "192.0.2.1"), 200);
    assert_eq!(upstream.last().one("x-forwarded-for"), "192.0.2.1, 10.0.0.1");
    assert_eq!(ask(v1("10.0.0.2"), "192.0.2.1"), 429);
    assert_eq!(ask(v1("192.0.2.1"), "192.0.2.2"), 429, "not trusted: it speaks for itself");
    assert_eq!(ask(v1("192.0.2.2"), "192.0.2.1"), 200);
    assert_eq!(upstream.last().one("x-forwarded-for"), "192.0.2.2");
}

#[test]
fn a_header_may_come_in_pieces_and_requests_along_with_it() {
    let upstream = Upstream::ok();
    let config = speaking(&upstream, "").limit("key = \"ip\"\nrate = \"1/day\"\nburst = 2");
    let weir = Weir::start(&config);
    let longest = {
        let mut extension = vec![0xe0, 0x0f, 0xf1];
        extension.resize(4096 - 12, 0);
        v2_four([192, 0, 2, 3], &extension)
    };
    for header in [v1("192.0.2.1"), v2_six("2001:db8::1"), longest] {
        let request = get("/").into_bytes();
        let all = [&header[..], &request, &request, &request].concat();
        let mut client = weir.connect();
        // Down to single bytes where it matters: the header, and the seam behind it.
        let (slow, fast) = all.split_at(header.len().min(64));
        slow.iter().for_each(|byte| client.send([*byte]));
        let (rest, requests) = fast.split_at(header.len() - slow.len());
        rest.chunks(1000).for_each(|piece| client.send(piece));
        requests.chunks(7).for_each(|piece| client.send(piece));
        let statuses = [0; 3].map(|_| client.response().status);
        assert_eq!(statuses, [200, 200, 429], "{}", header[..20].escape_ascii());
    }
}

#[test]
fn trusted_peer_without_a_proxy_header_is_not_served() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&speaking(&upstream, ""));
    let request = get("/").into_bytes();
    let bad = [
        vec![],
        b"PROXY TCP4 192.0.2.1 127.0.0.1 4711\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\n".to_vec(),
        b"PROXY TCP4 unknown 127.0.0.1 4711 80\r\n".to_vec(),
        b"PROXY TCP5 192.0.2.1 127.0.0.1 4711 80\r\n".to_vec(),
        [b"PROXY UNKNOWN ", &[b'x'; 200][..], b"\r\n"].concat(),
        b"PROXY\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00".to_vec(),
        v2(0x31, 0x11, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x21, 0x11, &[0; 14]),
        v2(0x21, 0x51, &[0; 12]),
        v2(0x21, 0x00, &[0; 4097]),
    ];
    for (index, header) in bad.iter().enumerate() {
        let mut client = weir.connect();
        client.send([&header[..], &request].concat());
        assert!(client.closes(), "{}", header.escape_ascii());
        assert_eq!(errors(&weir), (index + 1) as f64);
    }
    assert_eq!(upstream.heads(), 0);
    // Two in a row: the second is no request.
    let twice = [v1("192.0.2.1"), v1("192.0.2.2")].concat();
    assert_eq!(status(&weir, &twice), 400);
    assert_eq!(status(&weir, &v1("192.0.2.1")), 200, "and nothing was spent");
}

#[test]
fn slow_proxy_header_times_out() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&speaking(&upstream, "").server("header_timeout = \"200ms\""));
    let mut silent = weir.connect();
    let mut slow = weir.connect();
    slow.send("PROXY TCP4 192.0.2.1");
    assert!(slow.closes() && silent.closes());
    assert_eq!(errors(&weir), 1.0, "who says nothing at all does no wrong");
    let mut cut = weir.connect();
    cut.send(&v2_six("2001:db8::1")[..30]);
    cut.wire.finish_writing();
    assert!(cut.closes());
    assert_eq!(errors(&weir), 2.0);
}

#[test]
fn proxy_header_from_an_untrusted_peer_is_a_bad_request() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1";
    let strangers = "[identity]\ntrusted_proxies = [\"10.0.0.0/8\"]";
    let on = Config::to(&upstream).server("proxy_protocol = true").limit(limit).also(strangers);
    let off =
        Config::to(&upstream).limit(limit).also("[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]");
    for config in [on, off] {
        let weir = Weir::start(&config);
        for header in [v1("192.0.2.1"), v2_four([192, 0, 2, 1], &[])] {
            assert_eq!(status(&weir, &header), 400, "{}", header.escape_ascii());
        }
        assert_eq!([weir.get("/").status, weir.get("/").status], [200, 429]);
        assert_eq!(errors(&weir), 0.0);
    }
}

#[test]
fn drain_does_not_wait_for_missing_proxy_headers() {
    let upstream = Upstream::ok();
    let mut weir = Weir::start(&speaking(&upstream, "").server("header_timeout = \"10m\""));
    let mut silent = weir.connect();
    let mut slow = weir.connect();
    slow.send("PROXY TCP4");
    assert_eq!(status(&weir, &v1("192.0.2.1")), 200);
    weir.signal(Signal::TERM);
    assert!(silent.closes() && slow.closes());
    assert!(weir.exit().success());
}
