//! The host that a request names: one, and well formed, whichever protocol it comes by.

use http::header::{self, HeaderMap, HeaderValue};

use crate::byte_set::letters_digits_and;
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
        (Some(host), None) if is_host(host.as_bytes()) => Ok(Some(host)),
        (Some(_), None) => Err(Fault::Target("the host is malformed")),
    }
}

/// A name or an address, with or without a port: RFC 3986 section 3.2.2 without its user part
/// and without percent-escapes, which no host has a use for.
pub(super) fn is_host(text: &[u8]) -> bool {
    let rest = match text.strip_prefix(b"[") {
        Some(rest) => after_ipv6(rest),
        None => after_name(text),
    };
    match rest {
        Some([]) => true,
        Some([b':', port @ ..]) => is_port(port),
        _ => false,
    }
}

/// What stands behind an address in brackets, if it is one.
fn after_ipv6(text: &[u8]) -> Option<&[u8]> {
    let (address, rest) = std::str::from_utf8(text).ok()?.split_once(']')?;
    address.parse::<std::net::Ipv6Addr>().ok().map(|_| rest.as_bytes())
}

/// What stands behind a name that is no longer than the DNS allows, and without empty labels but for
/// the root's.
fn after_name(text: &[u8]) -> Option<&[u8]> {
    let mut previous = b'.';
    let mut length = 0;
    for &byte in text {
        // Every request is checked by this, byte for byte.
        if !IN_NAMES[usize::from(byte)] {
            break;
        }
        if byte == b'.' && previous == b'.' {
            return None;
        }
        previous = byte;
        length += 1;
    }
    (1..=255).contains(&length).then(|| &text[length..])
}

/// The bytes that names are made of.
const IN_NAMES: [bool; 256] = letters_digits_and(b"-._~");

/// Digits, or nothing at all: RFC 3986 section 3.2.3.
fn is_port(text: &[u8]) -> bool {
    let is_number = |text: &str| text.is_empty() || text.parse::<u16>().is_ok();
    text.iter().all(u8::is_ascii_digit) && std::str::from_utf8(text).is_ok_and(is_number)
}
