//! Every failure as a response. This is the one place that decides on status codes.

use std::io::ErrorKind;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{Method, Response, StatusCode};
use serde::Serialize;

use super::{Content, FieldName};
use crate::body::Body;
use crate::http1::{BodyError, FramingError, HeadError};
use crate::limit::key::KeyError;
use crate::limit::source::UnreadForm;
use crate::route::PathError;
use crate::store::StoreError;
use crate::upstream::{ConnectError, ExchangeError, TlsFailure};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Why a request gets an answer from Weir instead of one from its upstream.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the request is malformed: {0}")]
    Head(#[from] HeadError),
    #[error("the request is malformed: {0}")]
    Framing(#[from] FramingError),
    #[error("the request is malformed: {0}")]
    Path(#[from] PathError),
    #[error("the request is malformed: {0}")]
    Target(&'static str),
    #[error("no certificate of this gateway is for the host of the request")]
    UnknownHost,
    #[error("this port speaks HTTPS, and a plain HTTP request was sent to it")]
    PlainHttp,
    #[error("the request's body cannot be used: {0}")]
    Body(#[from] BodyError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("this caller is not let in")]
    Denied,
    #[error("the request carries no token that can be believed")]
    Unauthorized,
    #[error("the token could not be checked: too many came that do not verify")]
    Unchecked,
    #[error("the request did not arrive in time")]
    TooSlow,
    #[error("no route matches the request")]
    NoRoute,
    #[error("this method is not allowed here")]
    Method(Vec<Method>),
    #[error("the upstream cannot be reached: {0}")]
    Connect(ConnectError),
    /// With the time until another request may try.
    #[error("the upstream does not answer: the requests before this one have failed")]
    BreakerOpen(Duration),
    #[error("the gateway has no room for another connection")]
    Overloaded,
    #[error("the gateway has as many requests under way as it may")]
    TooManyRequests,
    #[error("the upstream failed: {0}")]
    Exchange(ExchangeError),
    #[error("the request came back to the gateway that forwarded it")]
    Loop,
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("the gateway failed while it handled the request")]
    Internal,
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Self {
        if error.is_ours() { Fault::Overloaded } else { Fault::Connect(error) }
    }
}

impl From<ExchangeError> for Fault {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Request(error) => Fault::Body(error),
            other => Fault::Exchange(other),
        }
    }
}

impl Fault {
    pub fn status(&self) -> StatusCode {
        match self {
            Fault::Head(HeadError::TooLarge | HeadError::TooManyFields) => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Fault::Head(HeadError::Version) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Fault::Head(_) | Fault::Framing(_) | Fault::Path(_) | Fault::Target(_) => {
                StatusCode::BAD_REQUEST
            }
            Fault::PlainHttp | Fault::UnknownHost => StatusCode::BAD_REQUEST,
            Fault::Body(BodyError::TooLarge) | Fault::Key(KeyError::Unseen(_)) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Fault::Body(BodyError::TimedOut | BodyError::TooSlow) | Fault::TooSlow => {
                StatusCode::REQUEST_TIMEOUT
            }
            Fault::Body(_) => StatusCode::BAD_REQUEST,
            Fault::Key(KeyError::Missing(_) | KeyError::UnknownTenant) | Fault::Denied => {
                StatusCode::FORBIDDEN
            }
            Fault::Unauthorized | Fault::Key(KeyError::UnknownKey) => StatusCode::UNAUTHORIZED,
            Fault::Key(KeyError::Unread(..)) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::Key(_) => StatusCode::BAD_REQUEST,
            Fault::NoRoute => StatusCode::NOT_FOUND,
            Fault::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Fault::Connect(ConnectError::TimedOut) | Fault::Exchange(ExchangeError::TimedOut) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Fault::Connect(ConnectError::Saturated) | Fault::BreakerOpen(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Fault::Connect(_) | Fault::Exchange(_) | Fault::Loop => StatusCode::BAD_GATEWAY,
            Fault::Store(_) | Fault::Unchecked => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Overloaded | Fault::TooManyRequests => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The name that clients may depend on.
    pub fn error(&self) -> &'static str {
        match self {
            Fault::Key(KeyError::Missing(_) | KeyError::UnknownTenant) => "missing_key",
            Fault::Key(KeyError::UnknownKey) => "unknown_key",
            Fault::Denied => "denied",
            Fault::Unauthorized => "unauthorized",
            Fault::Body(BodyError::TooLarge) | Fault::Key(KeyError::Unseen(_)) => "body_too_large",
            Fault::Head(_) | Fault::Framing(_) | Fault::Path(_) | Fault::Target(_) => "bad_request",
            Fault::PlainHttp | Fault::UnknownHost => "bad_request",
            Fault::Body(_) | Fault::TooSlow | Fault::Key(_) => "bad_request",
            Fault::NoRoute => "no_route",
            Fault::Method(_) => "method_not_allowed",
            Fault::Connect(ConnectError::TimedOut) | Fault::Exchange(ExchangeError::TimedOut) => {
                "upstream_timeout"
            }
            Fault::Connect(ConnectError::Saturated) => "overloaded",
            Fault::BreakerOpen(_) => "upstream_unavailable",
            Fault::Connect(_) | Fault::Exchange(_) | Fault::Loop => "upstream_unavailable",
            Fault::Store(_) => "store_unavailable",
            Fault::Unchecked | Fault::Overloaded | Fault::TooManyRequests => "overloaded",
            Fault::Internal => "internal_error",
        }
    }

    /// The error type of RFC 9209, for failures behind the gateway.
    fn proxy_status(&self) -> Option<&'static str> {
        Some(match self {
            Fault::Connect(ConnectError::Resolve(_)) => "weir; error=dns_error",
            Fault::Connect(ConnectError::Refused(error)) => match error.kind() {
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    "weir; error=destination_ip_unroutable"
                }
                _ => "weir; error=connection_refused",
            },
            Fault::Connect(ConnectError::TimedOut) => "weir; error=connection_timeout",
            Fault::Connect(ConnectError::Saturated) => "weir; error=connection_limit_reached",
            Fault::BreakerOpen(_) => "weir; error=destination_unavailable",
            Fault::Connect(ConnectError::Http2(_)) => "weir; error=http_protocol_error",
            Fault::Connect(ConnectError::Tls(failure, _)) => tls_status(*failure),
            Fault::Exchange(ExchangeError::TimedOut) => "weir; error=http_response_timeout",
            Fault::Exchange(ExchangeError::Truncated) => "weir; error=http_response_incomplete",
            // TLS 1.3 lets a client send before the server has looked at its certificate.
            Fault::Exchange(ExchangeError::Closed(Some(error))) => {
                tls_status(TlsFailure::of(error))
            }
            Fault::Exchange(
                ExchangeError::Closed(None) | ExchangeError::Reset(_) | ExchangeError::Unprocessed,
            ) => "weir; error=connection_terminated",
            Fault::Exchange(_) => "weir; error=http_protocol_error",
            Fault::Loop => "weir; error=proxy_loop_detected",
            _ => return None,
        })
    }

    /// Whether no server of the upstream could be asked, so that another upstream may be.
    pub fn is_unreached(&self) -> bool {
        matches!(self, Fault::Connect(_) | Fault::BreakerOpen(_))
    }

    pub fn into_response(self) -> Response<Content> {
        let status = self.status();
        let body = Problem {
            kind: match self {
                Fault::Store(_) => REDUCED_CAPACITY,
                _ => "about:blank",
            },
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            error: self.error(),
            error_description: sentence(&self.to_string()),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(Body::text(body.into()).into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(value) = self.proxy_status() {
            headers.insert(FieldName::ProxyStatus.header(), HeaderValue::from_static(value));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // Recovery is probed several times a second, connections and requests end all the time,
            // and each second has a new budget for signatures.
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Fault::Connect(ConnectError::Saturated) = self {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Fault::BreakerOpen(wait) = self {
            headers.insert(RETRY_AFTER, (wait.as_millis().div_ceil(1000).max(1) as u64).into());
        }
        if let Fault::Unauthorized = self {
            // RFC 6750 section 3.
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Fault::Key(KeyError::UnknownKey) = self {
            // RFC 9110 section 15.5.2 asks for a challenge, and no scheme is registered for keys.
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Key realm=\"weir\""));
        }
        // RFC 9110 section 15.5.16.
        match &self {
            Fault::Key(KeyError::Unread(_, UnreadForm::Encoded)) => {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            Fault::Key(KeyError::Unread(_, UnreadForm::Type)) => {
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                headers.insert(ACCEPT, form);
            }
            _ => {}
        }
        if let Fault::Method(allowed) = &self {
            let names: Vec<_> = allowed.iter().map(Method::as_str).collect();
            if let Ok(value) = HeaderValue::try_from(names.join(", ")) {
                headers.insert(ALLOW, value);
            }
        }
        response
    }
}

/// RFC 9209 section 2.3.
fn tls_status(failure: TlsFailure) -> &'static str {
    match failure {
        TlsFailure::Certificate => "weir; error=tls_certificate_error",
        TlsFailure::Alert => "weir; error=tls_alert_received",
        TlsFailure::Protocol => "weir; error=tls_protocol_error",
        TlsFailure::Closed => "weir; error=connection_terminated",
    }
}

/// RFC 9457, with the member that Weir's clients look at.
#[derive(Serialize)]
struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    error: &'static str,
    error_description: String,
}

/// An error's text as people read it: with a capital and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
