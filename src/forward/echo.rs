//! The built-in upstream `echo`: it answers with the request it received.

use std::future::poll_fn;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::ForwardedResponse;
use super::headers::OutboundHeaders;
use crate::body::Body;
use crate::respond::Fault;

/// How much of a body is shown. All of it is read.
const SHOWN: usize = 64 * 1024;

/// Answers as an upstream would that received this request. `headers` are replaced.
///
/// # Errors
/// If the request's body cannot be read.
pub(crate) async fn echo(
    method: &Method,
    target: &str,
    outbound: &OutboundHeaders<'_>,
    headers: &mut HeaderMap,
    mut body: Body,
) -> Result<ForwardedResponse, Fault> {
    let (mut shown, mut length) = (Vec::new(), 0u64);
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data?;
        length += data.len() as u64;
        let room = (SHOWN - shown.len()).min(data.len());
        shown.extend_from_slice(&data[..room]);
    }
    let mut received = Map::new();
    let mut show = |name: &HeaderName, value: &[u8]| {
        let value = String::from_utf8_lossy(value);
        match received.get_mut(name.as_str()) {
            Some(Value::String(earlier)) => {
                earlier.push_str(", ");
                earlier.push_str(&value);
            }
            _ => {
                received.insert(name.to_string(), Value::String(value.into_owned()));
            }
        }
    };
    outbound.write_to(headers, &mut show);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let answer = json!({
        "method": method.as_str(),
        "path": path,
        "query": query,
        "headers": received,
        "body": String::from_utf8_lossy(&shown),
        "body_bytes": length,
    });
    let mut text = serde_json::to_vec_pretty(&answer).unwrap_or_default();
    text.push(b'\n');
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(ForwardedResponse { status: StatusCode::OK, content: Body::full(Bytes::from(text)).into() })
}
