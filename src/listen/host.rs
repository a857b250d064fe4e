//! The host that a request names: one, and well formed, whichever protocol it comes by.

use http::header::{self, HeaderMap, HeaderValue};

use crate::respond::Fault;

/// What `Host` says, if it is there.
///
/// # Errors
/// If there are two of it, or it is malformed.
pub(super) fn stated(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Fault> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Fault::Target("the host is doubled")),
        (Some(host), None) if host.to_str().is_ok_and(is_host) => Ok(Some(host)),
        (Some(_), None) => Err(Fault::Target("the host is malformed")),
    }
}

/// A name or an address, with or without a port: RFC 3986 section 3.2.2 without its user part
/// and without percent-escapes, which no host has a use for.
pub(super) fn is_host(text: &str) -> bool {
    let (good_name, rest) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').unwrap_or_default();
            (address.parse::<std::net::Ipv6Addr>().is_ok(), rest)
        }
        None => {
            let length = name_length(text.as_bytes());
            (length > 0, &text[length..])
        }
    };
    good_name && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// The length of the name a text starts with: no longer than the DNS allows, and without empty
/// labels but for the root's. Zero if there is none.
fn name_length(text: &[u8]) -> usize {
    let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
    let name = &text[..end];
    let mut previous = b'.';
    let good = name.iter().all(|&byte| {
        let good = IN_NAMES[usize::from(byte)] && !(byte == b'.' && previous == b'.');
        previous = byte;
        good
    });
    if good && end <= 255 { end } else { 0 }
}

/// The bytes that names are made of: every request is checked against this.
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let it = byte as u8;
        table[byte] = it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// Digits, or nothing at all: RFC 3986 section 3.2.3.
fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text.is_empty() || text.parse::<u16>().is_ok())
}
