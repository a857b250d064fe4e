//! One line for each request, as JSON or in the combined format.
//!
//! Off by default. When it is on, a request costs an entry on the heap; the line is made when the
//! answer has ended and handed over without waiting.

use http::header::{self, HeaderName, HeaderValue};
use http::{StatusCode, Version, request};
use serde::Serialize;

use super::combined_format::CombinedLine;
use super::line_writer::LineWriter;
use super::request_id::{new_id, request_id};
use crate::clock;
use crate::config::settings::AccessLogFormat;

/// What of a path is told in a line: with the number of lines that may wait for the disk, it bounds
/// the memory that a stalled one can take.
const MAX_PATH: usize = 2 * 1024;
/// The same of a referer or a user agent.
const MAX_FIELD: usize = 1024;

/// Where lines go, and how they are written.
#[derive(Debug, Clone)]
pub(super) struct AccessLog {
    pub(super) lines: LineWriter,
    pub(super) format: AccessLogFormat,
}

/// What is known of a request before its answer has ended.
#[derive(Debug)]
pub(super) struct AccessLogEntry {
    log: LineWriter,
    request_id: String,
    /// What only the combined format has.
    combined: Option<CombinedFields>,
    /// The caller's address, as far as it is known.
    pub(super) client: String,
    method: String,
    host: String,
    path: String,
    /// The limit that refused, if one did.
    pub(super) limit: Option<String>,
    /// What the answer's body calls the reason, if the gateway has answered itself.
    pub(super) error: Option<&'static str>,
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

#[derive(Debug, Default)]
struct CombinedFields {
    protocol: &'static str,
    referer: Vec<u8>,
    user_agent: Vec<u8>,
}

impl AccessLogEntry {
    /// Starts an entry. `id` is the one that the request was given, if it was.
    pub(super) fn begin(
        log: &AccessLog,
        client: String,
        id: Option<&HeaderValue>,
        parts: &request::Parts,
    ) -> Self {
        let id = id.and_then(|id| id.to_str().ok()).or_else(|| request_id(&parts.headers));
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let path = parts.uri.path();
        let field = |name: HeaderName| {
            let value = parts.headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
            value[..value.len().min(MAX_FIELD)].to_vec()
        };
        let combined = || CombinedFields {
            protocol: protocol(parts.version),
            referer: field(header::REFERER),
            user_agent: field(header::USER_AGENT),
        };
        AccessLogEntry {
            log: log.lines.clone(),
            request_id: id.map_or_else(new_id_text, str::to_owned),
            combined: (log.format == AccessLogFormat::Combined).then(combined),
            client,
            method: parts.method.to_string(),
            host: host.unwrap_or_default().to_owned(),
            path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
            limit: None,
            error: None,
        }
    }

    /// An entry for a request that could not be read.
    pub(super) fn unparsed(log: &AccessLog, client: String) -> Self {
        let combined = log.format == AccessLogFormat::Combined;
        AccessLogEntry {
            log: log.lines.clone(),
            request_id: new_id_text(),
            combined: combined.then(CombinedFields::default),
            client,
            method: String::new(),
            host: String::new(),
            path: String::new(),
            limit: None,
            error: None,
        }
    }

    pub(super) fn write(mut self, route: &str, status: StatusCode, seconds: f64, bytes: u64) {
        if let Some(combined) = &self.combined {
            let line = CombinedLine {
                time: clock::unix_time() as i64,
                client: &self.client,
                method: &self.method,
                path: &self.path,
                protocol: combined.protocol,
                status,
                bytes,
                referer: &combined.referer,
                user_agent: &combined.user_agent,
            };
            self.log.write_line(&line.text());
            return;
        }
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

fn new_id_text() -> String {
    new_id().to_str().unwrap_or_default().to_owned()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}
