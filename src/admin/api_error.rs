//! The errors of `/v1` and of the admin listener's own checks, as JSON.

use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::{AdminResponse, answer};
use crate::overrides::TableFull;
use crate::respond::fault::sentence;

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: &'static str,
    description: String,
    /// A header that the response must have.
    header: Option<(HeaderName, &'static str)>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        error: &'static str,
        description: impl Into<String>,
    ) -> Self {
        ApiError { status, error, description: description.into(), header: None }
    }

    pub(super) fn unauthorized(description: &str) -> Self {
        let error = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", description);
        ApiError { header: Some((header::WWW_AUTHENTICATE, "Bearer")), ..error }
    }

    pub(super) fn bad_request(description: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", description)
    }

    pub(super) fn not_found() -> Self {
        ApiError::new(StatusCode::NOT_FOUND, "no_route", "There is nothing here.")
    }
}

pub(super) fn not_allowed(allowed: &'static str) -> ApiError {
    let why = "This method is not allowed here.";
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why);
    ApiError { header: Some((header::ALLOW, allowed)), ..error }
}

/// The response to a body that is larger than any request needs.
pub(super) fn too_large() -> AdminResponse {
    let why = "The body has more than 64 KiB.";
    error_response(&ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", why))
}

/// The response to a change whose body did not come in time.
pub(super) fn no_body() -> AdminResponse {
    let why = "The body did not come in time. Nothing was changed.";
    error_response(&ApiError::new(StatusCode::REQUEST_TIMEOUT, "bad_request", why))
}

/// The response to one question too many.
pub(super) fn too_many() -> AdminResponse {
    error_response(&overloaded("Too many questions are asked at a time. Nothing was changed."))
}

/// The response to a question for much while others do not read what they have asked for.
pub(super) fn too_many_unread() -> AdminResponse {
    error_response(&overloaded("Too much is asked for and not read: smaller pages need less."))
}

/// The response to a question for which there is no connection. It is the last on this one.
pub(super) fn too_many_connections() -> AdminResponse {
    let mut answer = too_many();
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The response to a question that takes too long.
pub(super) fn not_read_in_time() -> AdminResponse {
    error_response(&overloaded("It takes too long to find out."))
}

/// The response after a panic.
pub(super) fn internal() -> AdminResponse {
    let why = "This failed by a fault of the gateway: its log says more.";
    error_response(&ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", why))
}

/// Why a change is not made that has waited for too long.
pub(super) fn not_begun() -> ApiError {
    overloaded("This change could not be begun in time. Nothing was changed.")
}

fn overloaded(why: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", format!("{why} Ask again."))
}

pub(super) fn full(full: TableFull) -> ApiError {
    let why = sentence(&full.to_string());
    ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "overloaded", why)
}

pub(super) fn unavailable(why: String) -> ApiError {
    let why =
        format!("The store has not confirmed it: {why}. Look whether it holds, and ask again.");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why)
}

pub(super) fn error_response(error: &ApiError) -> AdminResponse {
    #[derive(Serialize)]
    struct ErrorBody<'a> {
        error: &'a str,
        error_description: &'a str,
    }
    let body = ErrorBody { error: error.error, error_description: &error.description };
    let mut answer = answer(error.status, "application/json", super::api::json(&body).into());
    if let Some((name, value)) = &error.header {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
