//! The answer to a caller that a guard has blocked.

use http::{HeaderMap, Response, StatusCode};

use super::rate_headers::seconds_until;
use super::{Answer, FieldName, Fields, Scratch, grpc, retry_after};
use crate::body::Body;
use crate::clock::Micros;

/// The word for it in answers and logs.
pub(crate) const ERROR: &str = "burst_blocked";
/// The same in a sentence.
const BLOCKED: &str = "Abnormal usage was detected.";

/// The texts of one guard's answers, made when the configuration is compiled.
#[derive(Debug, Clone)]
pub struct BlockedText {
    fields: Fields,
    /// The body up to the delay.
    opening: String,
    /// The member that names the guard.
    closing: String,
}

impl BlockedText {
    pub fn new(guard: &str) -> Self {
        // A guard's name has no character that would need escaping.
        let proxy_status =
            format!("weir; error=http_request_error; status-code=429; details=\"{guard} blocked\"");
        let mut fields = Fields::default();
        fields.add(FieldName::CacheControl, b"no-store");
        fields.add(FieldName::ContentType, b"application/problem+json");
        fields.add(FieldName::ProxyStatus, proxy_status.as_bytes());
        let opening = format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#abnormal-usage-detected\",\
             \"title\":\"Too Many Requests\",\"status\":429,\"error\":\"{ERROR}\",\
             \"error_description\":\"{BLOCKED} Please retry after "
        );
        BlockedText { fields, opening, closing: format!(",\"guard\":\"{guard}\"}}") }
    }

    /// The answer, with the map that held the request's headers for the next one.
    pub(crate) fn answer(
        &self,
        until: Micros,
        now: Micros,
        is_grpc: bool,
        mut headers: HeaderMap,
    ) -> Answer {
        headers.clear();
        let mut digits = itoa::Buffer::new();
        let seconds = digits.format(seconds_until(until, now).max(1));
        let mut fields = Fields::default();
        fields.add(FieldName::RetryAfter, seconds.as_bytes());
        fields.append(&self.fields);
        if is_grpc {
            let message = format!("{BLOCKED} Please retry after {seconds} seconds.");
            grpc::add(grpc::RESOURCE_EXHAUSTED, &message, &mut fields);
        }
        let mut text = Scratch::new();
        text.extend_from_slice(self.opening.as_bytes());
        retry_after::end_sentence(seconds, &mut text);
        retry_after::write_members(seconds, until, now, &mut text);
        text.extend_from_slice(self.closing.as_bytes());
        let mut response = Response::new(Body::text(text).into());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = headers;
        Answer { fields, ..Answer::from(response) }
    }
}
