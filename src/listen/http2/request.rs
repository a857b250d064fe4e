//! The head of an HTTP/2 request, turned into a request for the gateway.
//!
//! The codec below refuses what makes a stream malformed by itself: upper case in names, fields of
//! HTTP/1.1 connections, doubled pseudo-fields, a length that the data does not keep to. What is left is
//! held here to the same rules as a request of HTTP/1.1, and gets the same form: a path with its query,
//! one `Host`, one `Cookie`.

use std::cell::Cell;
use std::rc::Rc;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use hyper::body::{Body as _, Incoming};

use crate::body::Body;
use crate::config::settings;
use crate::http1::{BodyLimits, Framing, HeadError};
use crate::http2::IncomingBody;
use crate::listen::host::{self, is_host};
use crate::listen::request::check_target_characters;
use crate::respond::Fault;

/// Why a request does not come to the gateway.
#[derive(Debug)]
pub(super) enum Rejection {
    /// It is no HTTP/2 message: RFC 9113 section 8.1.1. Its stream is reset.
    Malformed,
    /// It gets an error response.
    Fault(Fault),
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Rejection::Fault(fault)
    }
}

/// Takes over a request that the codec has read. `lingering` counts bodies that are read only to be
/// dropped.
///
/// # Errors
/// If it is malformed, or what HTTP/1.1 would be refused for as well.
pub(super) fn accept(
    request: Request<Incoming>,
    settings: &settings::Server,
    lingering: &Rc<Cell<usize>>,
) -> Result<Request<Body>, Rejection> {
    let (mut parts, incoming) = request.into_parts();
    check_values(&parts.headers)?;
    // Those that the codec lets through and HTTP/1.1 does not: none at all, and two that are the same.
    Framing::stated(&parts.headers, false).map_err(Fault::from)?;
    join_cookies(&mut parts.headers)?;
    if parts.headers.len() > settings.max_request_headers {
        return Err(Fault::Head(HeadError::TooManyFields).into());
    }
    set_host(&mut parts.headers, &parts.uri)?;
    if parts.method != Method::CONNECT {
        parts.uri = target(&parts.uri)?;
    }
    let body = match incoming.is_end_stream() {
        true => Body::empty(),
        false => {
            let limits = BodyLimits {
                max: settings.max_body,
                stall_timeout: settings.request_timeout,
                min_rate: settings.min_body_rate,
            };
            Body::http2(IncomingBody::of_request(incoming, limits, lingering))
        }
    };
    Ok(Request::from_parts(parts, body))
}

/// RFC 9113 section 8.2.1: no value begins or ends with white space. HTTP/1.1 would take it off, so that
/// one caller could have two spellings.
fn check_values(headers: &HeaderMap) -> Result<(), Rejection> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_padded = |value: &[u8]| is_blank(value.first()) || is_blank(value.last());
    match headers.values().any(|value| is_padded(value.as_bytes())) {
        true => Err(Rejection::Malformed),
        false => Ok(()),
    }
}

/// RFC 9113 section 8.2.3: crumbs of a cookie become one field before anything reads it.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Fault> {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return Ok(()) };
    let mut joined = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    let cookie = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined));
    headers.insert(header::COOKIE, cookie.map_err(|_| Fault::Head(HeadError::Field))?);
    Ok(())
}

/// Makes sure that there is exactly one usable host, and that it is in `Host`. One that differs from
/// `:authority` makes the request malformed: RFC 9113 section 8.3.1.
fn set_host(headers: &mut HeaderMap, uri: &Uri) -> Result<(), Rejection> {
    let stated = host::stated(headers)?;
    let Some(authority) = uri.authority() else {
        return match stated {
            Some(_) => Ok(()),
            None => Err(Fault::Target("the host is missing").into()),
        };
    };
    if stated
        .is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
    {
        return Err(Rejection::Malformed);
    }
    if !is_host(authority.as_str().as_bytes()) {
        return Err(Fault::Target("the host is malformed").into());
    }
    let value = HeaderValue::from_str(authority.as_str());
    headers.insert(header::HOST, value.map_err(|_| Fault::Head(HeadError::Field))?);
    Ok(())
}

/// Path and query alone. `:scheme` says nothing that the connection does not know better.
fn target(uri: &Uri) -> Result<Uri, Rejection> {
    if uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(Fault::Target("the scheme is neither http nor https").into());
    }
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    check_target_characters(target.as_bytes())?;
    match uri.path_and_query() {
        Some(it) if target.starts_with('/') || target == "*" => Ok(Uri::from(it.clone())),
        _ => Err(Fault::Target("the target is no path").into()),
    }
}

#[cfg(test)]
mod tests;
