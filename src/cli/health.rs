//! `weir health`.
//!
//! It is asked every few seconds for as long as a container lives, so it starts no runtime and
//! waits for nobody for long. Whether the gateway is well does not depend on its file, which
//! somebody may be editing: of that, only one line is looked at.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::FAILED;
use crate::config::{self, Unread};
use crate::http1::{Framing, Head, head};

/// What connecting, asking and hearing the answer may take together.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is longer is no answer of Weir.
const LARGEST: usize = 64 << 10;

/// Ask a running gateway whether it takes traffic.
///
/// Asks /readyz of the admin listener and prints what it says. This is what the HEALTHCHECK of a
/// container runs: it takes 2 seconds at most, and what is wrong with the file meanwhile, or not
/// set in this environment, does not matter, as long as the file still says where to ask.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Health {
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

impl Health {
    pub(super) fn main(self) -> u8 {
        let (at, place) = self.place();
        let answer = match ask(at) {
            Ok(answer) => answer,
            Err(why) => return unhealthy(&why.told(&place)),
        };
        let said = Said::of(&answer);
        if self.json && said.is_some() {
            print(&String::from_utf8_lossy(&answer.body));
        }
        let code = answer.status.as_u16();
        match said {
            Some(Said::Well(text)) => {
                if !self.json {
                    print(&text);
                }
                0
            }
            Some(Said::Not(word)) => unhealthy(&format!("{place} answered {code} {word}")),
            None => unhealthy(&Why::odd(answer.status).told(&place)),
        }
    }

    /// Where to ask, and how messages call it.
    fn place(&self) -> (SocketAddr, String) {
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
            Err(Unread::AdminListen) => format!("admin.listen of {source} cannot be read"),
            Err(Unread::File(error)) => format!("{source} cannot be read, {error}"),
        };
        (config::ADMIN, format!("{} (the default: {why})", config::ADMIN))
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

/// Whoever closes the pipe has read enough.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
}

/// Whatever becomes of the line, the exit code is what counts.
fn unhealthy(why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "weir: {why}");
    FAILED
}

/// Why there is no answer of Weir.
enum Why {
    NoPort,
    Unreachable(io::Error),
    Broken(io::Error),
    Silent,
    Stranger(String),
}

impl Why {
    fn told(&self, place: &str) -> String {
        const ELSEWHERE: &str = "--admin ADDRESS asks elsewhere";
        match self {
            Why::NoPort => format!("{place} is a new port at each start: tell it with --admin"),
            Why::Unreachable(error) => format!("cannot connect to {place}: {error}; {ELSEWHERE}"),
            Why::Broken(error) => format!("{place} has not answered: {error}"),
            Why::Silent => format!("{place} has not answered within {}s", PATIENCE.as_secs()),
            Why::Stranger(how) => format!("{place} does not answer as Weir: {how}; {ELSEWHERE}"),
        }
    }

    fn stranger(how: &str) -> Self {
        Why::Stranger(how.to_owned())
    }

    fn odd(status: StatusCode) -> Self {
        Why::Stranger(format!("its answer to /readyz is another, with {}", status.as_u16()))
    }
}

struct Answer {
    status: StatusCode,
    body: Bytes,
}

/// What `/readyz` says, within [`PATIENCE`].
fn ask(address: SocketAddr) -> Result<Answer, Why> {
    if address.port() == 0 {
        return Err(Why::NoPort);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(Why::Unreachable)?;
    let question = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).map_err(Why::Broken)?;
    let mut stream = stream.take(LARGEST as u64);
    let (mut inbox, mut reading) = (BytesMut::new(), Reading::default());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Why::Silent);
        }
        stream.get_ref().set_read_timeout(Some(left)).map_err(Why::Broken)?;
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) if stream.limit() == 0 => {
                return Err(Why::stranger("its answer is longer than 64KiB"));
            }
            Ok(0) => return Err(Why::stranger("its answer is cut off")),
            Ok(count) => inbox.extend_from_slice(&piece[..count]),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Why::Silent),
                _ => return Err(Why::Broken(error)),
            },
        }
        if let Some(answer) = reading.take(&mut inbox)? {
            return Ok(answer);
        }
    }
}

/// An answer that arrives in any number of pieces.
struct Reading {
    search: Head,
    /// The status, and the length of the body.
    head: Option<(StatusCode, usize)>,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { search: Head::at_once(), head: None }
    }
}

impl Reading {
    /// The answer, once all of it is there.
    fn take(&mut self, inbox: &mut BytesMut) -> Result<Option<Answer>, Why> {
        let not_http = |_| Why::stranger("what it says is not HTTP/1.1");
        if self.head.is_none()
            && let Some(head) = self.search.take(inbox, LARGEST).map_err(not_http)?
        {
            let mut headers = HeaderMap::new();
            let line = head::parse_response(&head, &mut headers).map_err(not_http)?;
            let stated = Framing::stated(&headers, line.http10);
            let Ok(Some(Framing::Length(length))) = stated else {
                return Err(Why::odd(line.status));
            };
            self.head = Some((line.status, usize::try_from(length).unwrap_or(usize::MAX)));
        }
        let Some((status, length)) = self.head.filter(|(_, length)| inbox.len() >= *length) else {
            return Ok(None);
        };
        Ok(Some(Answer { status, body: inbox.split_to(length).freeze() }))
    }
}

/// What an answer means, if it is one of Weir.
enum Said {
    /// It takes traffic; how, as people read it.
    Well(String),
    Not(&'static str),
}

impl Said {
    fn of(answer: &Answer) -> Option<Self> {
        let said: Value = serde_json::from_slice(&answer.body).ok()?;
        let word = |key| said.get(key).and_then(Value::as_str);
        if answer.status == StatusCode::SERVICE_UNAVAILABLE && word("error") == Some("overloaded") {
            return Some(Said::Not("overloaded"));
        }
        let is_name = |it: &&str| it.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let store = word("store").filter(is_name)?;
        match (answer.status, word("status")?) {
            (StatusCode::OK, "ready") => Some(Said::Well(format!("ready, store {store}"))),
            (StatusCode::OK, "degraded") => {
                let reason = word("reason").filter(is_name).map(|why| format!(" ({why})"));
                let reason = reason.unwrap_or_default();
                let how = format!("it fails{reason}, and on_error decides");
                Some(Said::Well(format!("degraded, store {store}: {how}")))
            }
            (StatusCode::SERVICE_UNAVAILABLE, "draining") => Some(Said::Not("draining")),
            _ => None,
        }
    }
}
