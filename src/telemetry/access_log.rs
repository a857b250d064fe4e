//! One JSON line for each request.
//!
//! Off by default. When it is on, a request costs an entry on the heap; the line is made when the
//! answer has ended and handed over without waiting.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, request};
use serde::Serialize;

use super::line_writer::LineWriter;
use crate::clock;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What of a path is told in a line: with the number of lines that may wait for the disk, it bounds
/// the memory that a stalled one can take.
const MAX_PATH: usize = 2 * 1024;

/// What is known of a request before its answer has ended.
#[derive(Debug)]
pub struct AccessLogEntry {
    log: LineWriter,
    request_id: String,
    /// The caller's address, as far as it is known.
    pub client: String,
    method: String,
    host: String,
    path: String,
    /// The limit that refused, if one did.
    pub limit: Option<String>,
    /// What the answer's body calls the reason, if the gateway has answered itself.
    pub error: Option<&'static str>,
}

#[derive(Serialize)]
struct AccessLogLine<'a> {
    time: f64,
    request_id: &'a str,
    client: &'a str,
    method: &'a str,
    host: &'a str,
    path: &'a str,
    route: &'a str,
    status: u16,
    seconds: f64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl AccessLogEntry {
    /// Starts an entry and gives the request an id: its own, if that is harmless, or a new one.
    pub fn begin(log: &LineWriter, client: String, parts: &mut request::Parts) -> Box<Self> {
        let request_id = request_id(&parts.headers).map_or_else(new_id, str::to_owned);
        set_id(&mut parts.headers, &request_id);
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let path = parts.uri.path();
        Box::new(AccessLogEntry {
            log: log.clone(),
            request_id,
            client,
            method: parts.method.to_string(),
            host: host.unwrap_or_default().to_owned(),
            path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
            limit: None,
            error: None,
        })
    }

    /// An entry for a request that could not be read.
    pub fn unparsed(log: &LineWriter, client: String) -> Box<Self> {
        Box::new(AccessLogEntry {
            log: log.clone(),
            request_id: new_id(),
            client,
            method: String::new(),
            host: String::new(),
            path: String::new(),
            limit: None,
            error: None,
        })
    }

    /// Tells the client the request's id.
    pub fn tell_id(&self, headers: &mut HeaderMap) {
        set_id(headers, &self.request_id);
    }

    pub(super) fn write(&mut self, route: &str, status: StatusCode, seconds: f64, bytes: u64) {
        self.log.write(&AccessLogLine {
            time: clock::unix_time(),
            request_id: &self.request_id,
            client: &self.client,
            method: &self.method,
            host: &self.host,
            path: &self.path,
            route,
            status: status.as_u16(),
            seconds: (seconds * 1e6).round() / 1e6,
            bytes,
            limit: self.limit.as_deref(),
            error: self.error,
        });
    }
}

/// The id that a request has, if that is harmless.
pub fn request_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(&X_REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_harmless(id))
}

fn is_harmless(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=128).contains(&id.len()) && id.bytes().all(plain)
}

fn new_id() -> String {
    let mut bytes = [0; 16];
    // Without randomness the id is useless but harmless; the request is served all the same.
    let _ = getrandom::fill(&mut bytes);
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

fn set_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(value) = HeaderValue::from_str(id) {
        headers.insert(X_REQUEST_ID, value);
    }
}
