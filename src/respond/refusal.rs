//! The answer to a request that one of its limits refused.

use http::{HeaderMap, Response, StatusCode};

use super::rate_headers::seconds_until;
use super::{Answer, Fields, Scratch};
use crate::body::Body;
use crate::clock::Micros;
use crate::limit::Limit;

/// How the refusals of one limit are written, made when the configuration is compiled.
#[derive(Debug)]
pub struct RefusalText {
    /// The limit's name; `None` if it is not to be told.
    name: Option<String>,
    /// The fields that are always the same.
    fields: Fields,
    /// The members of the body that name the limit, up to where further names would follow.
    blame: String,
    status: StatusCode,
    /// The body up to its error.
    opening: String,
    /// What it says in place of the usual sentence, as a JSON string.
    message: Option<String>,
}

impl RefusalText {
    #[must_use]
    pub fn new(limit: &Limit) -> Self {
        let name = limit.response_headers.then(|| limit.name.clone());
        let details = match &name {
            Some(name) => format!("{name} {} exceeded", limit.policy.algorithm()),
            None => "rate limit exceeded".to_owned(),
        };
        // A limit's name has no character that would need escaping.
        let status = limit.refusal.status;
        let proxy_status = format!(
            "weir; error=http_request_error; status-code={}; details=\"{details}\"",
            status.as_u16()
        );
        let mut fields = Fields::default();
        fields.add("Cache-Control", b"no-store");
        fields.add("Content-Type", b"application/problem+json");
        fields.add("Proxy-Status", proxy_status.as_bytes());
        let blame = name.as_ref().map_or_else(String::new, |name| {
            format!(",\"limit\":\"{name}\",\"violated-policies\":[\"{name}\"")
        });
        let opening = format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"{}\",\"status\":{},",
            status.canonical_reason().unwrap_or("Refused"),
            status.as_u16()
        );
        let message = limit.refusal.message.as_ref();
        let message = message.map(|text| serde_json::Value::from(text.as_str()).to_string());
        RefusalText { name, fields, blame, status, opening, message }
    }
}

/// What a refusal is called, by when the request would pass.
#[must_use]
pub fn error(retry_at: Option<Micros>) -> &'static str {
    match retry_at {
        Some(_) => "rate_limit_exceeded",
        None => "cost_exceeds_limit",
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
    /// When it is told to come again: then, or later.
    pub told_at: Option<Micros>,
}

impl Refusal<'_> {
    /// Whole seconds, rounded up, at least one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.told_at.map(|at| seconds_until(at, self.now).max(1))
    }

    /// The answer, with the map that held the request's headers for the next one.
    #[must_use]
    pub fn into_answer(self, mut headers: HeaderMap) -> Answer {
        headers.clear();
        let mut fields = Fields::default();
        if let Some(seconds) = self.retry_after() {
            fields.add_number("Retry-After", seconds);
        }
        let mut text = Scratch::new();
        let mut status = StatusCode::TOO_MANY_REQUESTS;
        if let Some(first) = self.limits.first() {
            fields.append(&first.fields);
            status = first.status;
            self.write_body(first, &mut text);
        }
        let mut response = Response::new(Body::text(text));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Answer { response, fields }
    }

    /// Written by hand, not by a serializer: a flood of refusals must be cheap, and every string
    /// in here is a name or a number that needs no escaping, or has been escaped before.
    fn write_body(&self, first: &RefusalText, out: &mut Vec<u8>) {
        out.extend_from_slice(first.opening.as_bytes());
        let retry = self.retry_at.zip(self.retry_after());
        out.extend_from_slice(b"\"error\":\"");
        out.extend_from_slice(error(self.retry_at).as_bytes());
        out.extend_from_slice(b"\",\"error_description\":");
        match (&first.message, retry) {
            (Some(message), _) => out.extend_from_slice(message.as_bytes()),
            (None, Some((_, seconds))) => {
                out.extend_from_slice(b"\"Too many requests. Please retry after ");
                put_number(out, seconds);
                out.extend_from_slice(if seconds == 1 { b" second.\"" } else { b" seconds.\"" });
            }
            (None, None) => {
                out.extend_from_slice(b"\"This request costs more than the limit ever allows.\"")
            }
        }
        if let Some((at, seconds)) = retry {
            out.extend_from_slice(b",\"retry_after\":");
            put_number(out, seconds);
            out.extend_from_slice(b",\"retry_after_ms\":");
            put_number(out, at.0.saturating_sub(self.now.0).div_ceil(1000));
        }
        let mut named = self.limits.iter().filter(|limit| limit.name.is_some());
        if let Some(first) = named.next() {
            out.extend_from_slice(first.blame.as_bytes());
            for name in named.filter_map(|limit| limit.name.as_ref()) {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(name.as_bytes());
                out.push(b'"');
            }
            out.push(b']');
        }
        out.push(b'}');
    }
}

fn put_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
