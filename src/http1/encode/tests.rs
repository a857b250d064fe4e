use super::*;

#[test]
fn names_are_written_as_people_know_them() {
    for name in [
        "Content-Type",
        "RateLimit",
        "RateLimit-Policy",
        "X-RateLimit-Reset",
        "ETag",
        "TE",
        "WWW-Authenticate",
        "X-Forwarded-For",
    ] {
        let mut out = Vec::new();
        field_name(&mut out, &name.to_ascii_lowercase());
        assert_eq!(std::str::from_utf8(&out).unwrap(), name);
    }
}

#[test]
fn a_labelled_field_is_written_whole() {
    let mut out = b"a".to_vec();
    labelled_field(&mut out, &const { Label::new("X-RateLimit-Remaining") }, b"12");
    assert_eq!(out, b"aX-RateLimit-Remaining: 12\r\n");
}

#[test]
fn common_status_lines_are_those_of_the_registry() {
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::NOT_FOUND] {
        let mut out = Vec::new();
        status_line(&mut out, status);
        let reason = status.canonical_reason().unwrap();
        assert_eq!(out, format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
    }
}

#[test]
fn every_word_is_capitalised_wherever_it_begins() {
    // All that may be in a name: RFC 9110 section 5.6.2.
    let bytes: Vec<u8> =
        (b'!'..=b'~').filter(|byte| !b"\"(),/:;<=>?@[\\]{}".contains(byte)).collect();
    let small: Vec<u8> = bytes.iter().map(u8::to_ascii_lowercase).collect();
    for length in 1..30 {
        for (first, dash) in (0..small.len()).flat_map(|it| (0..length).map(move |at| (it, at))) {
            let mut name: Vec<u8> =
                small.iter().cycle().skip(first).take(length).copied().collect();
            name[dash] = b'-';
            let mut expected = name.clone();
            for at in 0..length {
                if at == 0 || name[at - 1] == b'-' {
                    expected[at].make_ascii_uppercase();
                }
            }
            capitalize(&mut name);
            assert_eq!(name, expected);
        }
    }
}

#[test]
fn chunk_sizes_are_hexadecimal() {
    for length in [0usize, 1, 9, 15, 16, 255, 256, 65_536, 1_000_000] {
        let mut out = Vec::new();
        chunk_size(&mut out, length);
        assert_eq!(out, format!("{length:x}\r\n").as_bytes());
    }
}
