//! The answer to a request that one of its limits refused.

use bytes::{BufMut, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};

use super::fault::{NO_STORE, PROBLEM_JSON, PROXY_STATUS};
use super::rate_headers::{put_number, seconds_until};
use crate::body::Body;
use crate::clock::Micros;
use crate::limit::Limit;

/// How the refusals of one limit are written, made when the configuration is compiled.
#[derive(Debug)]
pub struct RefusalText {
    /// The limit's name; `None` if it is not to be told.
    name: Option<String>,
    proxy_status: HeaderValue,
}

impl RefusalText {
    #[must_use]
    pub fn new(limit: &Limit) -> Self {
        let name = limit.response_headers.then(|| limit.name.clone());
        let details = match &name {
            Some(name) => format!("{name} {} exceeded", limit.policy.algorithm()),
            None => "rate limit exceeded".to_owned(),
        };
        let status = "weir; error=http_request_error; status-code=429";
        let text = format!("{status}; details=\"{details}\"");
        // A limit's name has no character that would need escaping.
        let plain = HeaderValue::from_static("weir; error=http_request_error; status-code=429");
        let proxy_status = HeaderValue::try_from(text).unwrap_or(plain);
        RefusalText { name, proxy_status }
    }
}

/// A refusal, ready to be written.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The refusing limits, the one to blame first.
    pub limits: &'a [&'a RefusalText],
    pub now: Micros,
    /// When the request would pass; `None` if its cost is more than a limit ever holds.
    pub retry_at: Option<Micros>,
}

impl Refusal<'_> {
    /// Whole seconds, rounded up, at least one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_at.map(|at| seconds_until(at, self.now).max(1))
    }

    /// The answer, in the map that held the request's headers, with its text in `buffer`.
    #[must_use]
    pub fn into_response(self, mut headers: HeaderMap, buffer: &mut BytesMut) -> Response<Body> {
        headers.clear();
        if let Some(seconds) = self.retry_after() {
            put_number(buffer, seconds);
            if let Ok(value) = HeaderValue::from_maybe_shared(buffer.split().freeze()) {
                headers.insert(RETRY_AFTER, value);
            }
        }
        headers.insert(CACHE_CONTROL, NO_STORE);
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if let Some(first) = self.limits.first() {
            headers.insert(PROXY_STATUS, first.proxy_status.clone());
        }
        self.write_body(buffer);
        let mut response = Response::new(Body::full(buffer.split().freeze()));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = headers;
        response
    }

    /// Written by hand, not by a serializer: a flood of refusals must be cheap, and every string
    /// in here is a name or a number that needs no escaping.
    fn write_body(&self, out: &mut BytesMut) {
        out.put_slice(
            b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
              \"title\":\"Too Many Requests\",\"status\":429,",
        );
        if let (Some(at), Some(seconds)) = (self.retry_at, self.retry_after()) {
            out.put_slice(
                b"\"error\":\"rate_limit_exceeded\",\
                  \"error_description\":\"Too many requests. Please retry after ",
            );
            put_number(out, seconds);
            out.put_slice(b" seconds.\",\"retry_after\":");
            put_number(out, seconds);
            out.put_slice(b",\"retry_after_ms\":");
            put_number(out, at.0.saturating_sub(self.now.0).div_ceil(1000));
        } else {
            out.put_slice(
                b"\"error\":\"cost_exceeds_limit\",\
                  \"error_description\":\"This request costs more than the limit ever allows.\"",
            );
        }
        let mut names = self.limits.iter().filter_map(|limit| limit.name.as_deref());
        if let Some(first) = names.next() {
            out.put_slice(b",\"limit\":\"");
            out.put_slice(first.as_bytes());
            out.put_slice(b"\",\"violated-policies\":[\"");
            out.put_slice(first.as_bytes());
            out.put_u8(b'"');
            for name in names {
                out.put_slice(b",\"");
                out.put_slice(name.as_bytes());
                out.put_u8(b'"');
            }
            out.put_u8(b']');
        }
        out.put_u8(b'}');
    }
}
