//! Heads and chunks, written into a buffer.

use http::{HeaderName, Method, StatusCode};

pub(crate) fn request_line(out: &mut Vec<u8>, method: &Method, target: &[u8]) {
    out.reserve(256);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

pub(crate) fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.reserve(512);
    match status {
        StatusCode::OK => return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        StatusCode::TOO_MANY_REQUESTS => {
            return out.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        }
        _ => {}
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let name = name.as_str();
    out.reserve(name.len() + value.len() + 4);
    field_name(out, name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The name of a field that is written often: `Name: ` in a buffer of fixed size, so that writing it
/// is one copy of a length that the compiler knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    text: [u8; Label::SIZE],
    length: usize,
}

impl Label {
    const SIZE: usize = 32;

    /// # Panics
    /// If the name is longer than 30 bytes. Labels are constants, so this fails at compile time.
    pub(crate) const fn new(name: &str) -> Self {
        let mut text = [0; Label::SIZE];
        text.split_at_mut(name.len()).0.copy_from_slice(name.as_bytes());
        text[name.len()] = b':';
        text[name.len() + 1] = b' ';
        Label { text, length: name.len() + 2 }
    }
}

pub(crate) fn labelled_field(out: &mut Vec<u8>, label: &Label, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&label.text);
    out.truncate(start + label.length);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn end_of_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// The line before a chunk of `length` bytes.
pub(crate) fn chunk_size(out: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let width = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..width).rev() {
        out.push(DIGITS[(length >> (place * 4)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

pub(crate) const CHUNK_END: &[u8] = b"\r\n";
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

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

/// Capitalises each word between dashes, eight bytes at a time: names are written twenty times a
/// request.
fn capitalize(name: &mut [u8]) {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    const DASHES: u64 = ONES * b'-' as u64;
    // Added to a byte of a name, which is below 128, these set its highest bit from `a` on, and
    // behind `z`.
    const FROM_A: u64 = ONES * (128 - b'a' as u64);
    const BEHIND_Z: u64 = ONES * (127 - b'z' as u64);
    let mut starts = 1;
    let (words, rest) = name.as_chunks_mut();
    for word in words {
        let bytes = u64::from_le_bytes(*word);
        // A byte of `zeroed` is zero where the name has a dash; the sum below finds zero bytes
        // and is exact for the bytes that names can have.
        let zeroed = bytes ^ DASHES;
        let dashes = (zeroed.wrapping_sub(ONES) & !zeroed & HIGH) >> 7;
        let small = ((bytes + FROM_A) & !(bytes + BEHIND_Z) & HIGH) >> 7;
        let first_letters = dashes << 8 | starts;
        *word = (bytes ^ (small & first_letters) << 5).to_le_bytes();
        starts = dashes >> 56;
    }
    let mut starts = starts != 0;
    for byte in rest {
        if starts {
            byte.make_ascii_uppercase();
        }
        starts = *byte == b'-';
    }
}

#[cfg(test)]
mod tests;
