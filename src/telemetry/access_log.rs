//! One JSON line for each request, written by a thread of its own.
//!
//! Off by default. When it is on, a request costs an entry on the heap; the line is made when the
//! answer has ended and handed over without waiting. If the disk cannot keep up, lines are
//! dropped and the gateway is not.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, request};
use serde::Serialize;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::caller::Peer;
use crate::config::settings;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Lines that may wait for the disk, and what of a path is told in each: together they bound the
/// memory that a stalled disk can take.
const WAITING_LINES: usize = 16 * 1024;
const MAX_PATH: usize = 2 * 1024;

/// Where entries go.
#[derive(Debug, Clone)]
pub struct AccessLog {
    writer: NonBlocking,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Opens the log; `None` if it is off. The guard writes out what is left when it is dropped,
    /// and nothing is written after that.
    ///
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open(log: &settings::AccessLog) -> io::Result<Option<(AccessLog, WorkerGuard)>> {
        let reopen = Arc::new(AtomicBool::new(false));
        let target: Box<dyn Write + Send> = match log {
            settings::AccessLog::Off => return Ok(None),
            settings::AccessLog::Stdout => Box::new(io::stdout()),
            settings::AccessLog::Stderr => Box::new(io::stderr()),
            settings::AccessLog::File(path) => Box::new(LogFile {
                file: append(path)?,
                path: path.clone(),
                reopen: reopen.clone(),
            }),
        };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES);
        let (writer, guard) = builder.finish(target);
        Ok(Some((AccessLog { writer, reopen }, guard)))
    }

    /// Has the file opened anew before the next line: the old one may have been moved away.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }
}

/// A file that can be replaced while it is written to.
struct LogFile {
    file: File,
    path: PathBuf,
    reopen: Arc<AtomicBool>,
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Ordering::AcqRel) {
            match append(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => tracing::error!(%error, "cannot reopen {}", self.path.display()),
            }
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// What is known of a request before its answer has ended.
#[derive(Debug)]
pub struct Entry {
    log: AccessLog,
    request_id: String,
    /// The caller's address, as far as it is known.
    pub client: String,
    method: String,
    host: String,
    path: String,
    /// The limit that refused, if one did.
    pub limit: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
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
}

impl Entry {
    /// Starts an entry and gives the request an id: its own, if that is harmless, or a new one.
    #[must_use]
    pub fn begin(log: &AccessLog, peer: &Peer, parts: &mut request::Parts) -> Box<Self> {
        let said = parts.headers.get(&X_REQUEST_ID).and_then(|id| id.to_str().ok());
        let request_id = said.filter(|id| is_harmless(id)).map_or_else(new_id, str::to_owned);
        set_id(&mut parts.headers, &request_id);
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let path = parts.uri.path();
        Box::new(Entry {
            log: log.clone(),
            request_id,
            client: peer.text.clone(),
            method: parts.method.to_string(),
            host: host.unwrap_or_default().to_owned(),
            path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
            limit: None,
        })
    }

    /// An entry for a request that could not be read.
    #[must_use]
    pub fn unread(log: &AccessLog, peer: &Peer) -> Box<Self> {
        Box::new(Entry {
            log: log.clone(),
            request_id: new_id(),
            client: peer.text.clone(),
            method: String::new(),
            host: String::new(),
            path: String::new(),
            limit: None,
        })
    }

    /// Tells the client the request's id.
    pub fn tell_id(&self, headers: &mut HeaderMap) {
        set_id(headers, &self.request_id);
    }

    pub(super) fn write(&mut self, route: &str, status: StatusCode, seconds: f64, bytes: u64) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = Line {
            time: (time.as_secs_f64() * 1e3).round() / 1e3,
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
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            // Lossy on purpose: a full disk must not hold up traffic.
            let _ = self.log.writer.write(&text);
        }
    }
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
