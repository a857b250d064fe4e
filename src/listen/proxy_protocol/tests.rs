//! Headers, good and bad, whole and in part.

use super::*;

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = [V2, &[command, family]].concat();
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// 192.0.2.1 port 258 to 192.0.2.2 port 80.
const FOUR: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 1, 2, 0, 80];

fn six() -> Vec<u8> {
    let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    [&ip("2001:db8::1")[..], &ip("2001:db8::2"), &[1, 2, 0, 80]].concat()
}

/// The source a header names. It is the same however much follows, and every piece of it asks for
/// more.
#[track_caller]
fn source(bytes: &[u8]) -> String {
    for end in 0..bytes.len() {
        assert_eq!(parse(&bytes[..end]), Ok(None), "{end} bytes");
    }
    let followed = [bytes, b"GET / HTTP/1.1\r\n"].concat();
    let header = parse(&followed).unwrap().expect("a header");
    assert_eq!(header.length, bytes.len());
    assert_eq!(parse(bytes), Ok(Some(header)));
    header.source.map_or("none".to_owned(), |source| source.to_string())
}

#[test]
fn lines_name_their_source() {
    assert_eq!(source(b"PROXY TCP4 192.0.2.1 192.0.2.2 258 80\r\n"), "192.0.2.1:258");
    assert_eq!(source(b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n"), "[2001:db8::1]:0");
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let line = format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n");
    assert_eq!(source(line.as_bytes()), format!("[{longest}]:65535"));
    let line = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
    assert_eq!((source(line.as_bytes()), line.len()), ("none".into(), V1_MAX));
    assert_eq!(source(b"PROXY UNKNOWN\r\n"), "none");
}

#[test]
fn binary_headers_name_their_source() {
    assert_eq!(source(&v2(0x21, 0x11, &FOUR)), "192.0.2.1:258");
    assert_eq!(source(&v2(0x21, 0x12, &FOUR)), "192.0.2.1:258");
    assert_eq!(source(&v2(0x21, 0x21, &six())), "[2001:db8::1]:258");
    for (command, family, body) in [
        (0x20, 0x00, &[][..]),
        (0x20, 0x11, &FOUR),
        (0x20, 0xff, b"whatever it is"),
        (0x21, 0x00, b"whatever it is"),
        (0x21, 0x31, &[0; 216]),
    ] {
        assert_eq!(source(&v2(command, family, body)), "none", "{command:x} {family:x}");
    }
}

#[test]
fn extensions_are_passed_over() {
    let with = |extensions: &[u8]| v2(0x21, 0x11, &[&FOUR[..], extensions].concat());
    assert_eq!(source(&with(&[4, 0, 0])), "192.0.2.1:258");
    assert_eq!(source(&with(&[5, 0, 2, b'i', b'd', 0x20, 0, 1, 0])), "192.0.2.1:258");
    let mut longest = vec![0xe0, 0, 0];
    longest.resize(V2_MAX - FOUR.len(), 0);
    let length = (longest.len() - 3) as u16;
    longest[1..3].copy_from_slice(&length.to_be_bytes());
    assert_eq!(source(&with(&longest)), "192.0.2.1:258");
    for bad in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0, 0, 4], &[4, 255, 255, 0]] {
        assert!(matches!(parse(&with(bad)), Err(HeaderError::Malformed(_))), "{bad:?}");
    }
}

#[test]
fn what_cannot_become_a_header_is_refused_at_once() {
    for bytes in [&b"G"[..], b"POST", b"PROPFIND", b"PROXYTCP4", b"\r\n\r\nG", b"proxy ", b"\x16"] {
        assert_eq!(parse(bytes), Err(HeaderError::Absent), "{bytes:?}");
    }
    assert_eq!(parse(&[V1, &[b'x'; 200]].concat()), Err(HeaderError::TooLong));
    let unknown = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_MAX));
    assert_eq!(parse(unknown.as_bytes()), Err(HeaderError::TooLong));
    assert_eq!(parse(&[V2, &[0x21, 0x11, 0x10, 0x01]].concat()), Err(HeaderError::TooLong));
}

#[test]
fn lines_are_taken_to_the_letter() {
    for line in [
        "TCP4 192.0.2.1 192.0.2.2 258 80\n",
        "TCP4 192.0.2.1 192.0.2.2 258 80 \r\n",
        "TCP4 192.0.2.1 192.0.2.2 258 80 1\r\n",
        "TCP4 192.0.2.1 192.0.2.2 258\r\n",
        "TCP4  192.0.2.1 192.0.2.2 258 80\r\n",
        "TCP4 192.0.2.1\t192.0.2.2 258 80\r\n",
        "TCP4 192.0.2.01 192.0.2.2 258 80\r\n",
        "TCP4 192.0.2.1 192.0.2.2 +258 80\r\n",
        "TCP4 192.0.2.1 192.0.2.2 0258 80\r\n",
        "TCP4 192.0.2.1 192.0.2.2 65536 80\r\n",
        "TCP4 192.0.2.1 192.0.2.2 -1 80\r\n",
        "TCP4 192.0.2.1 192.0.2.2 258 http\r\n",
        "TCP4 2001:db8::1 2001:db8::2 258 80\r\n",
        "TCP6 192.0.2.1 192.0.2.2 258 80\r\n",
        "TCP6 [2001:db8::1] [2001:db8::2] 258 80\r\n",
        "TCP6 2001:db8::1 192.0.2.2 258 80\r\n",
        "TCP4 unknown 192.0.2.2 258 80\r\n",
        "tcp4 192.0.2.1 192.0.2.2 258 80\r\n",
        "UDP4 192.0.2.1 192.0.2.2 258 80\r\n",
        "UNKNOWNS\r\n",
        "\r\n",
        "TCP4 192.0.2.1 192.0.2.2 258 80\r\r\n",
    ] {
        let text = format!("PROXY {line}");
        assert!(matches!(parse(text.as_bytes()), Err(HeaderError::Malformed(_))), "{line:?}");
    }
    let strange = b"PROXY TCP4 192.0.2.1\xff 192.0.2.2 258 80\r\n";
    assert!(matches!(parse(strange), Err(HeaderError::Malformed(_))));
}

#[test]
fn binary_headers_are_taken_to_the_letter() {
    for (command, family, body) in [
        (0x11, 0x11, &FOUR[..]),
        (0x22, 0x11, &FOUR),
        (0x31, 0x11, &FOUR),
        (0x00, 0x00, &[]),
        (0x21, 0x11, &FOUR[..11]),
        (0x21, 0x21, &FOUR),
        (0x21, 0x31, &[0; 215]),
        (0x21, 0x10, &FOUR),
        (0x21, 0x13, &FOUR),
        (0x21, 0x41, &[0; 300]),
        (0x21, 0x01, &FOUR),
    ] {
        let bytes = v2(command, family, body);
        assert!(matches!(parse(&bytes), Err(HeaderError::Malformed(_))), "{command:x} {family:x}");
    }
}
