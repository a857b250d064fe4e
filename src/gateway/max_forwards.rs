//! OPTIONS that no upstream is asked: of the server as a whole, or with no hop left to go.

use http::header::{ALLOW, HeaderMap, HeaderValue, MAX_FORWARDS};
use http::{Method, Response, Uri};

use crate::body::Body;
use crate::respond::{Answer, Content};

/// What the gateway serves anywhere; a route may ask for less.
const ALLOWED: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The answer to an OPTIONS request that goes no further. One that does has one hop less to go:
/// RFC 9110 section 7.6.2. TRACE is never served, so there is nothing to count.
pub(super) fn answer(method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Option<Answer> {
    if *method != Method::OPTIONS {
        return None;
    }
    let left = if uri.path() == "*" { Some(0) } else { hops_left(headers) };
    match left {
        Some(0) => {
            let mut response = Response::new(Content::Body(Body::empty()));
            response.headers_mut().insert(ALLOW, ALLOWED);
            Some(response.into())
        }
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            None
        }
        None => None,
    }
}

/// What `Max-Forwards` says, if that is one number.
fn hops_left(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|it| it.is_ascii_digit()))?;
    digits.parse().ok()
}
