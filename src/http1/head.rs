//! The head of a message, parsed once, into a header map that is used again.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use std::mem::MaybeUninit;

use crate::field_class::{X_WEIR_DEGRADED, X_WEIR_WARNING};

/// There is room for this many fields without an allocation, and few messages have more.
pub(crate) const USUAL_FIELDS: usize = 100;
/// More names than this in `Connection` are refused.
const MAX_LISTED: u8 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusLine {
    pub status: StatusCode,
    pub http10: bool,
    pub flags: HeadFlags,
}

/// What a head says to the codec. Recorded while the fields are read, so that the map is searched only
/// for fields that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeadFlags {
    /// `Content-Length` or `Transfer-Encoding`.
    pub framing: bool,
    /// The options of `Connection`.
    pub close: bool,
    pub keep_alive: bool,
    /// How many other fields `Connection` lists.
    pub listed: u8,
    pub expect: bool,
    /// A field that belongs to one hop, other than `Connection`.
    pub hop: bool,
    /// A field that only a gateway may set.
    pub marks: bool,
}

impl HeadFlags {
    /// Whether the connection stays open after this message: RFC 9112 section 9.3.
    pub(crate) fn persists(self, http10: bool) -> bool {
        !self.close && (self.keep_alive || !http10)
    }

    /// Records a field, and says whether it has to be kept as well.
    fn record(&mut self, name: &HeaderName, value: &[u8]) -> bool {
        match *name {
            header::CONTENT_LENGTH | header::TRANSFER_ENCODING => self.framing = true,
            header::CONNECTION => return self.record_connection(value),
            header::EXPECT => self.expect = true,
            header::TE | header::TRAILER | header::UPGRADE => self.hop = true,
            _ => match name.as_str() {
                "keep-alive" | "proxy-connection" => self.hop = true,
                X_WEIR_WARNING | X_WEIR_DEGRADED => self.marks = true,
                _ => {}
            },
        }
        true
    }

    fn record_connection(&mut self, value: &[u8]) -> bool {
        let mut more = false;
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if !option.is_empty() {
                self.listed = self.listed.saturating_add(1);
                more = true;
            }
        }
        more
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestLine {
    pub method: Method,
    /// As sent: origin form, absolute form or an asterisk.
    pub target: Bytes,
    pub http10: bool,
    pub flags: HeadFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("a line does not end in CR LF")]
    LineEnd,
    #[error("the header is too large")]
    TooLarge,
    #[error("the header has too many fields")]
    TooManyFields,
    #[error("the first line is malformed")]
    FirstLine,
    #[error("the HTTP version is not supported")]
    Version,
    #[error("a header field is malformed")]
    Field,
}

/// Where the parser puts the fields of a head.
type FieldSlots<'s, 'h> = &'s mut [MaybeUninit<httparse::Header<'h>>];

/// Parses a request's head of up to `max_fields` fields, filling `headers`.
///
/// # Errors
/// If it is not exactly what RFC 9112 allows.
pub(crate) fn parse_request(
    head: &Bytes,
    headers: &mut HeaderMap,
    max_fields: usize,
) -> Result<RequestLine, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    match parse_request_into(&mut slots[..max_fields.min(USUAL_FIELDS)], head, headers) {
        Err(HeadError::TooManyFields) if max_fields > USUAL_FIELDS => {
            parse_long_request(head, headers, max_fields)
        }
        parsed => parsed,
    }
}

#[cold]
fn parse_long_request(
    head: &Bytes,
    headers: &mut HeaderMap,
    max_fields: usize,
) -> Result<RequestLine, HeadError> {
    parse_request_into(&mut vec![MaybeUninit::uninit(); max_fields], head, headers)
}

// Into `parse_request`, which every request goes through.
#[inline(always)]
fn parse_request_into<'h>(
    slots: FieldSlots<'_, 'h>,
    head: &'h Bytes,
    headers: &mut HeaderMap,
) -> Result<RequestLine, HeadError> {
    let mut request = httparse::Request::new(&mut []);
    match whole(request.parse_with_uninit_headers(head, slots)) {
        Err(HeadError::Version) if !names_a_version(head) => return Err(HeadError::FirstLine),
        parsed => parsed?,
    }
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(HeadError::FirstLine);
    };
    let flags = fill(head, request.headers, headers)?;
    Ok(RequestLine {
        flags,
        method: Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::FirstLine)?,
        target: head.slice_ref(target.as_bytes()),
        http10: version == 0,
    })
}

/// Parses a response's head of up to `max_fields` fields, filling `headers`.
///
/// # Errors
/// If it is not exactly what RFC 9112 allows.
pub(crate) fn parse_response(
    head: &Bytes,
    headers: &mut HeaderMap,
    max_fields: usize,
) -> Result<StatusLine, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    match parse_response_into(&mut slots[..max_fields.min(USUAL_FIELDS)], head, headers) {
        Err(HeadError::TooManyFields) if max_fields > USUAL_FIELDS => {
            parse_long_response(head, headers, max_fields)
        }
        parsed => parsed,
    }
}

#[cold]
fn parse_long_response(
    head: &Bytes,
    headers: &mut HeaderMap,
    max_fields: usize,
) -> Result<StatusLine, HeadError> {
    parse_response_into(&mut vec![MaybeUninit::uninit(); max_fields], head, headers)
}

#[inline(always)]
fn parse_response_into<'h>(
    slots: FieldSlots<'_, 'h>,
    head: &'h Bytes,
    headers: &mut HeaderMap,
) -> Result<StatusLine, HeadError> {
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    whole(config.parse_response_with_uninit_headers(&mut response, head, slots))?;
    let (Some(code), Some(version)) = (response.code, response.version) else {
        return Err(HeadError::FirstLine);
    };
    if !(100..=599).contains(&code) {
        return Err(HeadError::FirstLine);
    }
    let flags = fill(head, response.headers, headers)?;
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::FirstLine)?;
    Ok(StatusLine { status, http10: version == 0, flags })
}

/// Whether the first line is well formed, with a version that is not supported.
fn names_a_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let version = words.nth(2).and_then(|word| word.strip_prefix(b"HTTP/"));
    words.next().is_none() && matches!(version, Some([b'0'..=b'9', b'.', b'0'..=b'9']))
}

fn whole(parsed: httparse::Result<usize>) -> Result<(), HeadError> {
    match parsed {
        Ok(httparse::Status::Complete(_)) => Ok(()),
        Ok(httparse::Status::Partial) => Err(HeadError::Field),
        Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooManyFields),
        Err(httparse::Error::Version) => Err(HeadError::Version),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => Err(HeadError::Field),
        Err(_) => Err(HeadError::FirstLine),
    }
}

/// Values share the head's memory; nothing is copied.
fn fill(
    head: &Bytes,
    fields: &[httparse::Header<'_>],
    headers: &mut HeaderMap,
) -> Result<HeadFlags, HeadError> {
    // Clearing costs as much as the map is large, and most are empty already.
    if !headers.is_empty() {
        headers.clear();
    }
    let mut flags = HeadFlags::default();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Field)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value))
            .map_err(|_| HeadError::Field)?;
        if flags.record(&name, field.value) {
            headers.append(name, value);
        }
    }
    // Every field is compared with every name that is listed.
    if flags.listed > MAX_LISTED { Err(HeadError::TooManyFields) } else { Ok(flags) }
}

#[cfg(test)]
mod tests;
