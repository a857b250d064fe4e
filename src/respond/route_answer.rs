//! Answers that the configuration has for a route: a redirect, or a response that is always the same.

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::{HeaderMap, Response};

use super::{Content, Fault};
use crate::body::Body;
use crate::config::settings::{FixedResponse, Redirect};

/// Leads the client to `location`. `headers` is a map to use again.
///
/// # Errors
/// If the location cannot be sent.
pub(crate) fn redirect(
    redirect: &Redirect,
    location: &str,
    mut headers: HeaderMap,
) -> Result<Response<Content>, Fault> {
    headers.clear();
    headers.insert(LOCATION, HeaderValue::from_str(location).map_err(|_| Fault::Internal)?);
    let mut response = Response::new(Content::Body(Body::empty()));
    *response.status_mut() = redirect.status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// The response that a route has. `headers` is a map to use again.
pub(crate) fn fixed(fixed: &FixedResponse, mut headers: HeaderMap) -> Response<Content> {
    headers.clear();
    if let Some(content_type) = &fixed.content_type {
        headers.insert(CONTENT_TYPE, content_type.clone());
    }
    let mut response = Response::new(Content::Body(Body::full(fixed.body.clone())));
    *response.status_mut() = fixed.status;
    *response.headers_mut() = headers;
    response
}
