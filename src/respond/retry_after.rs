//! How long a refused request has to wait, as the body of its answer says it: once for people, once
//! for programs.

use crate::clock::Micros;

/// Ends a sentence on when to retry, and the string that it is in.
#[inline]
pub(super) fn end_sentence(seconds: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(seconds.as_bytes());
    out.extend_from_slice(if seconds == "1" { b" second.\"" } else { b" seconds.\"" });
}

/// The members for programs. The seconds may be more than the time until the request would pass.
#[inline]
pub(super) fn write_members(seconds: &str, until: Micros, now: Micros, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"retry_after\":");
    out.extend_from_slice(seconds.as_bytes());
    out.extend_from_slice(b",\"retry_after_ms\":");
    let millis = until.0.saturating_sub(now.0).div_ceil(1000);
    out.extend_from_slice(itoa::Buffer::new().format(millis).as_bytes());
}
