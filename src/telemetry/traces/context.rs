//! `traceparent` and `tracestate`: the W3C's Trace Context, levels 1 and 2.

use http::header::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The caller may have recorded the trace, and wants it recorded.
pub(super) const SAMPLED: u8 = 1;
/// The right half of the trace id is random (level 2).
pub(super) const RANDOM: u8 = 2;

/// `00-` + 32 + `-` + 16 + `-` + 2.
const LENGTH: usize = 55;
/// What has to be passed on of a `tracestate`, section 3.3.1.5, and at most is.
const MAX_STATE_BYTES: usize = 512;
const MAX_STATE_MEMBERS: usize = 32;
/// Longer members go first.
const LONG_MEMBER: usize = 128;

/// A place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

impl TraceContext {
    /// What a request brings, if there is one `traceparent` and it is valid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let context = TraceContext::parse(values.next()?.as_bytes())?;
        values.next().is_none().then_some(context)
    }

    /// Section 3.2: lower case only, no id that is zero. Versions above 0 may have more behind what is
    /// known; 255 is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let known = text.get(..LENGTH)?;
        let version = hex(&known[..2])?;
        let rest_is_good = match version {
            0 => text.len() == LENGTH,
            0xff => false,
            _ => text.get(LENGTH).is_none_or(|it| *it == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if !rest_is_good || !dashes {
            return None;
        }
        let trace_id = hex(&known[3..35])?;
        let span_id = hex(&known[36..52])? as u64;
        let flags = hex(&known[53..55])? as u8;
        let context = TraceContext { trace_id, span_id, flags: flags & (SAMPLED | RANDOM) };
        (trace_id != 0 && span_id != 0).then_some(context)
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Writes it as the one `traceparent` of a request.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let mut put = |from: usize, digits: usize, mut number: u128| {
            for at in (from..from + digits).rev() {
                text[at] = DIGITS[(number & 15) as usize];
                number >>= 4;
            }
        };
        put(3, 32, self.trace_id);
        put(36, 16, self.span_id.into());
        put(53, 2, self.flags.into());
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

/// Without a trace its state means nothing: section 3.3.
pub(super) fn drop_tracestate(headers: &mut HeaderMap) {
    headers.remove(TRACESTATE);
}

/// One `tracestate` of what a request brings, in order and bounded. A list that is none is dropped.
pub(super) fn bound_tracestate(headers: &mut HeaderMap) {
    let Some(first) = headers.get(&TRACESTATE) else { return };
    let alone = headers.get_all(&TRACESTATE).iter().nth(1).is_none();
    if alone && is_short_list(first.as_bytes()) {
        return;
    }
    match combined(headers) {
        Some(state) => headers.insert(TRACESTATE, state),
        None => headers.remove(TRACESTATE),
    };
}

fn is_short_list(text: &[u8]) -> bool {
    let members = text.split(|byte| *byte == b',');
    text.len() <= MAX_STATE_BYTES
        && members.clone().count() <= MAX_STATE_MEMBERS
        && members.clone().all(is_member)
}

fn combined(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(&TRACESTATE).iter();
    let members = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut members: Vec<&[u8]> =
        members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty()).collect();
    if members.is_empty() || !members.iter().copied().all(is_member) {
        return None;
    }
    members.truncate(MAX_STATE_MEMBERS);
    let length = |members: &[&[u8]]| members.iter().map(|it| it.len() + 1).sum::<usize>() - 1;
    while members.len() > 1 && length(&members) > MAX_STATE_BYTES {
        let long = members.iter().rposition(|it| it.len() > LONG_MEMBER);
        members.remove(long.unwrap_or(members.len() - 1));
    }
    if length(&members) > MAX_STATE_BYTES {
        return None;
    }
    HeaderValue::from_bytes(&members.join(&b',')).ok()
}

/// `key=value`: what keys and values are made of is their owner's business.
fn is_member(member: &[u8]) -> bool {
    memchr::memchr(b'=', member.trim_ascii()).is_some_and(|at| at > 0)
}

/// Lower case only.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
#[path = "context/tests.rs"]
mod tests;
