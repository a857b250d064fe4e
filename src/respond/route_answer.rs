//! Answers that the configuration has for a route: a redirect, or a response that is always the same.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};

use super::Fault;
use crate::body::Body;
use crate::config::settings::{FixedResponse, Redirect};
use crate::forward::ForwardedResponse;

/// Leads the client to `location`. `headers` are replaced.
///
/// # Errors
/// If the location cannot be sent.
pub(crate) fn redirect(
    redirect: &Redirect,
    location: &str,
    headers: &mut HeaderMap,
) -> Result<ForwardedResponse, Fault> {
    headers.clear();
    headers.insert(LOCATION, HeaderValue::from_str(location).map_err(|_| Fault::Internal)?);
    Ok(ForwardedResponse { status: redirect.status, content: Body::empty().into() })
}

/// The response that a route has. `headers` are replaced.
pub(crate) fn fixed(fixed: &FixedResponse, headers: &mut HeaderMap) -> ForwardedResponse {
    headers.clear();
    if let Some(content_type) = &fixed.content_type {
        headers.insert(CONTENT_TYPE, content_type.clone());
    }
    ForwardedResponse { status: fixed.status, content: Body::full(fixed.body.clone()).into() }
}
