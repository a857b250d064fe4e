//! The built-in upstream `echo`: it answers with the request it received.

use std::future::poll_fn;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName, Method, Response};
use serde_json::{Map, Value, json};

use super::headers::OutboundHeaders;
use crate::body::Body;
use crate::respond::{Content, Fault};

/// How much of a body is shown. All of it is read.
const SHOWN: usize = 64 * 1024;

/// Answers as an upstream would that received this request.
///
/// # Errors
/// If the request's body cannot be read.
pub(crate) async fn echo(
    method: &Method,
    target: &str,
    outbound: &OutboundHeaders<'_>,
    received: &HeaderMap,
    mut body: Body,
) -> Result<Response<Content>, Fault> {
    let (mut shown, mut length) = (Vec::new(), 0u64);
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data?;
        length += data.len() as u64;
        let room = (SHOWN - shown.len()).min(data.len());
        shown.extend_from_slice(&data[..room]);
    }
    let mut headers = Map::new();
    let mut show = |name: &HeaderName, value: &[u8]| {
        let value = String::from_utf8_lossy(value);
        match headers.get_mut(name.as_str()) {
            Some(Value::String(earlier)) => {
                earlier.push_str(", ");
                earlier.push_str(&value);
            }
            _ => {
                headers.insert(name.to_string(), Value::String(value.into_owned()));
            }
        }
    };
    outbound.write_to(received, &mut show);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let answer = json!({
        "method": method.as_str(),
        "path": path,
        "query": query,
        "headers": headers,
        "body": String::from_utf8_lossy(&shown),
        "body_bytes": length,
    });
    let mut text = serde_json::to_vec_pretty(&answer).unwrap_or_default();
    text.push(b'\n');
    let mut response = Response::new(Content::Body(Body::full(Bytes::from(text))));
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.headers_mut() = map;
    Ok(response)
}
