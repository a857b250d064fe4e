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
    let name = name.as_str();
    out.reserve(name.len() + value.len() + 4);
    field_name(out, name);
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
    capitalize(written);
    // Words that have capitals of their own.
    match written {
        [b'R', b'a', b't', b'e', l @ b'l', ..] => *l = b'L',
        [b'X', b'-', b'R', b'a', b't', b'e', l @ b'l', ..] => *l = b'L',
        [b'E', t @ b't', b'a', b'g'] | [b'T', t @ b'e'] => t.make_ascii_uppercase(),
        [b'W', w1 @ b'w', w2 @ b'w', b'-', ..] => (*w1, *w2) = (b'W', b'W'),
        _ => {}
    }
}

/// Capitalises each word between dashes, looking at eight bytes at a time: names are written
/// twenty times a request.
fn capitalize(name: &mut [u8]) {
    const ONES: u64 = u64::MAX / 255;
    const DASHES: u64 = ONES * b'-' as u64;
    let mut starts = 1;
    for at in (0..name.len()).step_by(8) {
        let mut word = [0; 8];
        let end = name.len().min(at + 8);
        word[..end - at].copy_from_slice(&name[at..end]);
        // A byte of `zeroed` is zero where the name has a dash; the sum below finds zero bytes
        // and is exact for the bytes that names can have.
        let zeroed = u64::from_le_bytes(word) ^ DASHES;
        let dashes = (zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7)) >> 7;
        let mut first_letters = dashes << 8 | starts;
        starts = dashes >> 56;
        while first_letters != 0 {
            let letter = at + first_letters.trailing_zeros() as usize / 8;
            if let Some(letter) = name.get_mut(letter) {
                letter.make_ascii_uppercase();
            }
            first_letters &= first_letters - 1;
        }
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
