//! The answer to a request that one of its limits refused.

use http::StatusCode;

use super::rate_headers::{PolicyText, seconds_until};
use super::{Answer, FieldName, Fields, Scratch, grpc, retry_after};
use crate::body::Body;
use crate::clock::Micros;
use crate::limit::Limit;

/// The texts of one limit's refusals, made when the configuration is compiled.
#[derive(Debug, Clone)]
pub struct RefusalText {
    /// The fields that are always the same.
    fields: Fields,
    /// `Proxy-Status` up to its details.
    proxy_status: String,
    named: NamedText,
    status: StatusCode,
    /// The body of a request that may be retried, up to its delay, or past its description if that
    /// is the limit's own.
    retryable: String,
    /// The same of a request that costs more than the limit ever holds, past its description.
    too_costly: String,
    /// The limit's own description, which names no delay.
    message: Option<String>,
}

/// What is said of a limit under its own name. Buckets of tenants have names of their own.
#[derive(Debug, Clone)]
struct NamedText {
    name: String,
    /// All fields that do not depend on when the request would pass.
    fields: Fields,
    /// The members of the body that name it, up to where other names may follow.
    members: Vec<u8>,
}

impl RefusalText {
    pub fn new(limit: &Limit) -> Self {
        let refusal = &limit.refusal;
        let status = refusal.status;
        let proxy_status =
            format!("weir; error=http_request_error; status-code={}; details=\"", status.as_u16());
        let mut fields = Fields::default();
        fields.add(FieldName::CacheControl, b"no-store");
        fields.add(FieldName::ContentType, b"application/problem+json");
        let opening = format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"{}\",\"status\":{},",
            status.canonical_reason().unwrap_or("Refused"),
            status.as_u16()
        );
        let message = refusal.message.as_ref();
        let message = message.map(|text| serde_json::Value::from(text.as_str()).to_string());
        let body = |error: &str, description: &str| {
            let description = message.as_deref().unwrap_or(description);
            format!("{opening}\"error\":\"{error}\",\"error_description\":{description}")
        };
        let policy_text = PolicyText::new(limit);
        let visible_name = policy_text.visible_name();
        let mut named =
            NamedText { name: limit.name.clone(), fields: fields.clone(), members: Vec::new() };
        let algorithm = limit.policy.algorithm();
        write_proxy_status(&proxy_status, visible_name, algorithm, &mut named.fields);
        write_name(visible_name.unwrap_or_default(), &mut named.members);
        RefusalText {
            retryable: body(RETRYABLE, &format!("\"{RETRYABLE_TEXT}")),
            too_costly: body(TOO_COSTLY, &format!("\"{TOO_COSTLY_TEXT}\"")),
            message: refusal.message.clone(),
            fields,
            proxy_status,
            named,
            status,
        }
    }
}

impl RefusalText {
    /// The same for clients of gRPC.
    fn describe_to_grpc(&self, seconds: Option<&str>, fields: &mut Fields) {
        let message = match (&self.message, seconds) {
            (Some(message), _) => message.clone(),
            (None, None) => TOO_COSTLY_TEXT.to_owned(),
            (None, Some("1")) => format!("{RETRYABLE_TEXT}1 second."),
            (None, Some(seconds)) => format!("{RETRYABLE_TEXT}{seconds} seconds."),
        };
        grpc::add(grpc::RESOURCE_EXHAUSTED, &message, fields);
    }
}

/// A limit that refuses a request: how it words that, and by which numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusingLimit<'a> {
    pub text: &'a RefusalText,
    pub policy_text: &'a PolicyText,
    pub algorithm: &'static str,
}

impl<'a> RefusingLimit<'a> {
    /// Its text with its own name, if it is called by that. All numbers of one name have one algorithm.
    fn named_text(&self) -> Option<&'a NamedText> {
        Some(&self.text.named).filter(|named| named.name == self.policy_text.name())
    }

    /// Writes the fields that do not depend on when the request would pass.
    fn write_fields(&self, fields: &mut Fields) {
        match self.named_text() {
            Some(named) => fields.append(&named.fields),
            None => {
                fields.append(&self.text.fields);
                let name = self.policy_text.visible_name();
                write_proxy_status(&self.text.proxy_status, name, self.algorithm, fields);
            }
        }
    }

    /// Writes the members that name it, up to where other names may follow.
    fn write_members(&self, out: &mut Vec<u8>) {
        match self.named_text() {
            Some(named) => out.extend_from_slice(&named.members),
            None => write_name(self.policy_text.name(), out),
        }
    }
}

/// A name has no character that would need escaping. Without one, clients must not see it.
fn write_proxy_status(start: &str, name: Option<&str>, algorithm: &str, fields: &mut Fields) {
    fields.add_with(FieldName::ProxyStatus, |value| {
        value.text(start.as_bytes());
        match name {
            Some(name) => value.text(name.as_bytes()).text(b" ").text(algorithm.as_bytes()),
            None => value.text(b"rate limit"),
        };
        value.text(b" exceeded\"");
    });
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"limit\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",\"violated-policies\":[\"");
    out.extend_from_slice(name.as_bytes());
}

const RETRYABLE: &str = "rate_limit_exceeded";
const TOO_COSTLY: &str = "cost_exceeds_limit";
/// The same in sentences, of which the first ends with a delay.
const RETRYABLE_TEXT: &str = "Too many requests. Please retry after ";
const TOO_COSTLY_TEXT: &str = "This request costs more than the limit ever allows.";

/// What a refusal is called, by when the request would pass.
pub(crate) fn error(retry_at: Option<Micros>) -> &'static str {
    match retry_at {
        Some(_) => RETRYABLE,
        None => TOO_COSTLY,
    }
}

/// A refusal, ready to be written.
#[derive(Debug)]
pub(crate) struct Refusal<I> {
    /// The refusing limits, the one that decides the answer first.
    pub limits: I,
    pub now: Micros,
    /// When the request would pass; `None` if its cost is more than a limit ever holds.
    pub retry_at: Option<Micros>,
    /// When the client is asked to retry: then, or later by some jitter.
    pub advertised_at: Option<Micros>,
    /// Whether the client looks for a status of gRPC's before that of HTTP.
    pub is_grpc: bool,
}

impl<'a, I: Iterator<Item = RefusingLimit<'a>> + Clone> Refusal<I> {
    /// Whole seconds, rounded up, at least one.
    fn retry_after(&self) -> Option<u64> {
        self.advertised_at.map(|at| seconds_until(at, self.now).max(1))
    }

    /// Becomes the answer, which has nothing in it yet.
    pub(crate) fn write_to(self, answer: &mut Answer) {
        let Answer { response, fields, .. } = answer;
        let mut digits = itoa::Buffer::new();
        let seconds = self.retry_after().map(|seconds| digits.format(seconds));
        if let Some(seconds) = seconds {
            fields.add(FieldName::RetryAfter, seconds.as_bytes());
        }
        let mut text = Scratch::new();
        let mut status = StatusCode::TOO_MANY_REQUESTS;
        if let Some(first) = self.limits.clone().next() {
            first.write_fields(fields);
            status = first.text.status;
            self.write_body(first.text, seconds, &mut text);
            if self.is_grpc {
                first.text.describe_to_grpc(seconds, fields);
            }
        }
        *response.status_mut() = status;
        *response.body_mut() = Body::text(text).into();
    }

    /// Written by hand, not by a serializer: a flood of refusals must be cheap, and every string
    /// in here is a name or a number that needs no escaping, or has been escaped before.
    fn write_body(&self, first: &RefusalText, seconds: Option<&str>, out: &mut Vec<u8>) {
        match self.retry_at.zip(seconds) {
            None => out.extend_from_slice(first.too_costly.as_bytes()),
            Some((at, seconds)) => {
                out.extend_from_slice(first.retryable.as_bytes());
                if first.message.is_none() {
                    retry_after::end_sentence(seconds, out);
                }
                retry_after::write_members(seconds, at, self.now, out);
            }
        }
        let mut visible = self.limits.clone().filter(|limit| limit.policy_text.is_visible());
        if let Some(first) = visible.next() {
            first.write_members(out);
            for limit in visible {
                out.extend_from_slice(b"\",\"");
                out.extend_from_slice(limit.policy_text.name().as_bytes());
            }
            out.extend_from_slice(b"\"]");
        }
        out.push(b'}');
    }
}
