//! `weir health`.
//!
//! Containers run it every few seconds, so it starts no runtime and has a short timeout. The state of
//! the gateway does not depend on its file, which may be being edited: only `admin.listen` is read.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::FAILED;
use crate::config::{self, AdminListenError};
use crate::http1::{Framing, HeadSearch, head};

/// What connecting, asking and hearing the answer may take together.
const TIMEOUT: Duration = Duration::from_secs(2);
/// What is longer is no answer of Weir.
const MAX_RESPONSE: usize = 64 << 10;

/// Ask a running gateway whether it takes traffic.
///
/// Asks /readyz of the admin listener and prints what it says. This is what the HEALTHCHECK of a
/// container runs: it takes 2 seconds at most, and what is wrong with the file meanwhile, or not
/// set in this environment, does not matter, as long as the file still says where to ask.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthCommand {
    /// The configuration whose admin.listen is asked; without it, the one that `weir run` would
    /// serve
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin listener, in place of what the configuration says
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    admin: Option<SocketAddr>,
    /// Print the answer as it came
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir health                          ask the gateway that serves config/config.toml
  weir health --admin 127.0.0.1:9191   ask another

In a Dockerfile:
  HEALTHCHECK --interval=10s --timeout=3s CMD [\"weir\", \"health\"]

Exit codes: 0 it takes traffic, if need be without its store; 1 it does not, or does not answer;
2 bad usage.";

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9090")
}

impl HealthCommand {
    pub(super) fn main(self) -> u8 {
        let (at, address) = self.target();
        let answer = match query_readyz(at) {
            Ok(answer) => answer,
            Err(why) => return unhealthy(&why.describe(&address)),
        };
        let said = Readiness::of(&answer);
        if self.json && said.is_some() {
            print(&String::from_utf8_lossy(&answer.body));
        }
        let code = answer.status.as_u16();
        match said {
            Some(Readiness::Ready(text)) => {
                if !self.json {
                    print(&text);
                }
                0
            }
            Some(Readiness::NotReady(word)) => {
                unhealthy(&format!("{address} answered {code} {word}"))
            }
            None => unhealthy(&HealthError::unexpected(answer.status).describe(&address)),
        }
    }

    /// Where to ask, and how messages call it.
    fn target(&self) -> (SocketAddr, String) {
        if let Some(admin) = self.admin {
            return (reachable(admin), admin.to_string());
        }
        let source = config::locate(self.config.clone());
        let why = match source.admin_listen() {
            Ok(Some(admin)) => {
                let asked = reachable(admin);
                return (asked, format!("{asked} (admin.listen of {source})"));
            }
            Ok(None) => format!("{source} names no admin.listen"),
            Err(AdminListenError::AdminListen) => {
                format!("admin.listen of {source} cannot be read")
            }
            Err(AdminListenError::File(error)) => format!("{source} cannot be read, {error}"),
        };
        (
            config::DEFAULT_ADMIN_LISTEN,
            format!("{} (the default: {why})", config::DEFAULT_ADMIN_LISTEN),
        )
    }
}

/// An address that stands for all of its family is listened on, and cannot be asked.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A closed pipe is not an error: the reader has read enough.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
}

/// The exit code counts, even if the line cannot be written.
fn unhealthy(why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "weir: {why}");
    FAILED
}

/// Why there is no answer of Weir.
enum HealthError {
    NoPort,
    Unreachable(io::Error),
    Broken(io::Error),
    Silent,
    NotWeir(String),
}

impl HealthError {
    fn describe(&self, address: &str) -> String {
        const ELSEWHERE: &str = "--admin ADDRESS asks elsewhere";
        match self {
            HealthError::NoPort => {
                format!("{address} is a new port at each start: tell it with --admin")
            }
            HealthError::Unreachable(error) => {
                format!("cannot connect to {address}: {error}; {ELSEWHERE}")
            }
            HealthError::Broken(error) => format!("{address} has not answered: {error}"),
            HealthError::Silent => {
                format!("{address} has not answered within {}s", TIMEOUT.as_secs())
            }
            HealthError::NotWeir(how) => {
                format!("{address} does not answer as Weir: {how}; {ELSEWHERE}")
            }
        }
    }

    fn not_weir(how: &str) -> Self {
        HealthError::NotWeir(how.to_owned())
    }

    fn unexpected(status: StatusCode) -> Self {
        HealthError::NotWeir(format!("its answer to /readyz is another, with {}", status.as_u16()))
    }
}

struct ReadyzResponse {
    status: StatusCode,
    body: Bytes,
}

/// What `/readyz` says, within [`TIMEOUT`].
fn query_readyz(address: SocketAddr) -> Result<ReadyzResponse, HealthError> {
    if address.port() == 0 {
        return Err(HealthError::NoPort);
    }
    let deadline = Instant::now() + TIMEOUT;
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).map_err(HealthError::Unreachable)?;
    let question = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).map_err(HealthError::Broken)?;
    let mut stream = stream.take(MAX_RESPONSE as u64);
    let (mut inbox, mut reading) = (BytesMut::new(), ResponseReader::default());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HealthError::Silent);
        }
        stream.get_ref().set_read_timeout(Some(left)).map_err(HealthError::Broken)?;
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) if stream.limit() == 0 => {
                return Err(HealthError::not_weir("its answer is longer than 64KiB"));
            }
            Ok(0) => return Err(HealthError::not_weir("its answer is cut off")),
            Ok(count) => inbox.extend_from_slice(&piece[..count]),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    return Err(HealthError::Silent);
                }
                _ => return Err(HealthError::Broken(error)),
            },
        }
        if let Some(answer) = reading.take(&mut inbox)? {
            return Ok(answer);
        }
    }
}

/// An answer that arrives in any number of pieces.
struct ResponseReader {
    search: HeadSearch,
    /// The status, and the length of the body.
    head: Option<(StatusCode, usize)>,
}

impl Default for ResponseReader {
    fn default() -> Self {
        ResponseReader { search: HeadSearch::immediate(), head: None }
    }
}

impl ResponseReader {
    /// The answer, once all of it is there.
    fn take(&mut self, inbox: &mut BytesMut) -> Result<Option<ReadyzResponse>, HealthError> {
        let not_http = |_| HealthError::not_weir("what it says is not HTTP/1.1");
        if self.head.is_none()
            && let Some(head) = self.search.take(inbox, MAX_RESPONSE).map_err(not_http)?
        {
            let mut headers = HeaderMap::new();
            let line = head::parse_response(&head, &mut headers).map_err(not_http)?;
            let stated = Framing::stated(&headers, line.http10);
            let Ok(Some(Framing::Length(length))) = stated else {
                return Err(HealthError::unexpected(line.status));
            };
            self.head = Some((line.status, usize::try_from(length).unwrap_or(usize::MAX)));
        }
        let Some((status, length)) = self.head.filter(|(_, length)| inbox.len() >= *length) else {
            return Ok(None);
        };
        Ok(Some(ReadyzResponse { status, body: inbox.split_to(length).freeze() }))
    }
}

/// What an answer means, if it is one of Weir.
enum Readiness {
    /// It takes traffic; how, as people read it.
    Ready(String),
    NotReady(&'static str),
}

impl Readiness {
    fn of(answer: &ReadyzResponse) -> Option<Self> {
        let said: Value = serde_json::from_slice(&answer.body).ok()?;
        let word = |key| said.get(key).and_then(Value::as_str);
        if answer.status == StatusCode::SERVICE_UNAVAILABLE && word("error") == Some("overloaded") {
            return Some(Readiness::NotReady("overloaded"));
        }
        let is_name = |it: &&str| it.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let store = word("store").filter(is_name)?;
        match (answer.status, word("status")?) {
            (StatusCode::OK, "ready") => Some(Readiness::Ready(format!("ready, store {store}"))),
            (StatusCode::OK, "degraded") => {
                let reason = word("reason").filter(is_name).map(|why| format!(" ({why})"));
                let reason = reason.unwrap_or_default();
                let how = format!("it fails{reason}, and on_error decides");
                Some(Readiness::Ready(format!("degraded, store {store}: {how}")))
            }
            (StatusCode::SERVICE_UNAVAILABLE, "draining") => Some(Readiness::NotReady("draining")),
            _ => None,
        }
    }
}
