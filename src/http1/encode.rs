//! Heads and chunks, written into a buffer.

use http::{HeaderName, Method, StatusCode};

pub fn request_line(out: &mut Vec<u8>, method: &Method, target: &[u8]) {
    out.reserve(256);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

pub fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.reserve(512);
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub fn field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.reserve(name.as_str().len() + value.len() + 4);
    field_name(out, name.as_str());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub fn end_of_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// The line before a chunk of `length` bytes.
pub fn chunk_size(out: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let width = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..width).rev() {
        out.push(DIGITS[(length >> (place * 4)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

pub const CHUNK_END: &[u8] = b"\r\n";
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Names are kept in lower case and written in the case people know them by: some peers and
/// many eyes expect `Content-Type`.
fn field_name(out: &mut Vec<u8>, name: &str) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    let written = &mut out[start..];
    let mut word = true;
    for byte in written.iter_mut() {
        if word {
            byte.make_ascii_uppercase();
        }
        word = *byte == b'-';
    }
    // Words that have capitals of their own.
    match written {
        [b'R', b'a', b't', b'e', l @ b'l', ..] => *l = b'L',
        [b'X', b'-', b'R', b'a', b't', b'e', l @ b'l', ..] => *l = b'L',
        [b'E', t @ b't', b'a', b'g'] | [b'T', t @ b'e'] => t.make_ascii_uppercase(),
        [b'W', w1 @ b'w', w2 @ b'w', b'-', ..] => (*w1, *w2) = (b'W', b'W'),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
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
    fn chunk_sizes_are_hexadecimal() {
        for length in [0usize, 1, 9, 15, 16, 255, 256, 65_536, 1_000_000] {
            let mut out = Vec::new();
            chunk_size(&mut out, length);
            assert_eq!(out, format!("{length:x}\r\n").as_bytes());
        }
    }
}
