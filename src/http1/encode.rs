//! Heads and chunks, written into a buffer.

use bytes::{BufMut, BytesMut};
use http::{HeaderName, Method, StatusCode};

pub fn request_line(out: &mut BytesMut, method: &Method, target: &[u8]) {
    out.reserve(256);
    out.put_slice(method.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(target);
    out.put_slice(b" HTTP/1.1\r\n");
}

pub fn status_line(out: &mut BytesMut, status: StatusCode) {
    out.reserve(512);
    if status == StatusCode::OK {
        out.put_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
}

pub fn field(out: &mut BytesMut, name: &HeaderName, value: &[u8]) {
    out.reserve(name.as_str().len() + value.len() + 4);
    field_name(out, name.as_str());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

pub fn content_length(out: &mut BytesMut, length: u64) {
    out.put_slice(b"Content-Length: ");
    out.put_slice(itoa::Buffer::new().format(length).as_bytes());
    out.put_slice(b"\r\n");
}

pub fn end_of_head(out: &mut BytesMut) {
    out.put_slice(b"\r\n");
}

/// The line before a chunk of `length` bytes.
pub fn chunk_size(out: &mut BytesMut, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let width = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..width).rev() {
        out.put_u8(DIGITS[(length >> (place * 4)) & 15]);
    }
    out.put_slice(b"\r\n");
}

pub const CHUNK_END: &[u8] = b"\r\n";
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Names are kept in lower case and written in the case people know them by: some peers and
/// many eyes expect `Content-Type`.
fn field_name(out: &mut BytesMut, name: &str) {
    for (known, rest) in
        [("ratelimit", "RateLimit"), ("x-ratelimit", "X-RateLimit"), ("www-", "WWW-")]
    {
        if let Some(tail) = name.strip_prefix(known) {
            out.put_slice(rest.as_bytes());
            return title_case(out, tail, tail.starts_with('-') || known.ends_with('-'));
        }
    }
    match name {
        "etag" => out.put_slice(b"ETag"),
        "te" => out.put_slice(b"TE"),
        _ => title_case(out, name, true),
    }
}

fn title_case(out: &mut BytesMut, name: &str, mut upper: bool) {
    for byte in name.bytes() {
        out.put_u8(if upper { byte.to_ascii_uppercase() } else { byte });
        upper = byte == b'-';
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
            let mut out = BytesMut::new();
            field_name(&mut out, &name.to_ascii_lowercase());
            assert_eq!(std::str::from_utf8(&out).unwrap(), name);
        }
    }

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for length in [0usize, 1, 9, 15, 16, 255, 256, 65_536, 1_000_000] {
            let mut out = BytesMut::new();
            chunk_size(&mut out, length);
            assert_eq!(out, format!("{length:x}\r\n").as_bytes());
        }
    }
}
