//! Asking the admin listener of a running gateway, for the commands that do.
//!
//! One request on one connection, without a runtime: commands start fast and end within a timeout.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::{HeaderMap, StatusCode};

use crate::config::{self, AdminListenError};
use crate::http1::head::USUAL_FIELDS;
use crate::http1::{Framing, HeadSearch, head};

/// Which gateway is asked.
#[derive(Debug, Args)]
pub(super) struct AdminTarget {
    /// The configuration whose admin.listen is asked; without it, the one that `weir run` would
    /// serve
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin listener, in place of what the configuration says
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    admin: Option<SocketAddr>,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct AdminRequest<'a> {
    /// Path and query.
    pub(super) path: &'a str,
    pub(super) token: Option<&'a str>,
    /// What connecting, asking and hearing the answer may take together.
    pub(super) timeout: Duration,
    /// What is longer is no answer of Weir.
    pub(super) most: usize,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9090")
}

impl AdminTarget {
    /// Where to ask, and how messages call it.
    pub(super) fn find(&self) -> (SocketAddr, String) {
        if let Some(admin) = self.admin {
            return (reachable(admin), admin.to_string());
        }
        let source = config::locate(self.config.clone());
        let listen = source.admin_listen();
        let source = match source.path() {
            Some(path) => path.display().to_string(),
            None => "the built-in configuration".to_owned(),
        };
        let why = match listen {
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

/// Why there is no answer of Weir.
#[derive(Debug)]
pub(super) enum AdminError {
    NoPort,
    Unreachable(io::Error),
    Broken(io::Error),
    Silent(Duration),
    NotWeir(String),
}

impl AdminError {
    pub(super) fn describe(&self, address: &str) -> String {
        const ELSEWHERE: &str = "--admin ADDRESS asks elsewhere";
        match self {
            AdminError::NoPort => {
                format!("{address} is a new port at each start: tell it with --admin")
            }
            AdminError::Unreachable(error) => {
                format!("cannot connect to {address}: {error}; {ELSEWHERE}")
            }
            AdminError::Broken(error) => format!("{address} has not answered: {error}"),
            AdminError::Silent(timeout) => {
                format!("{address} has not answered within {}s", timeout.as_secs())
            }
            AdminError::NotWeir(how) => {
                format!("{address} does not answer as Weir: {how}; {ELSEWHERE}")
            }
        }
    }

    fn not_weir(how: &str) -> Self {
        AdminError::NotWeir(how.to_owned())
    }

    /// Weir answers this otherwise.
    pub(super) fn unexpected(path: &str, status: StatusCode) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        AdminError::NotWeir(format!("its answer to {path} is another, with {}", status.as_u16()))
    }
}

impl AdminRequest<'_> {
    /// What is answered there.
    pub(super) fn send(&self, address: SocketAddr) -> Result<AdminAnswer, AdminError> {
        if address.port() == 0 {
            return Err(AdminError::NoPort);
        }
        let deadline = Instant::now() + self.timeout;
        let mut stream =
            TcpStream::connect_timeout(&address, self.timeout).map_err(AdminError::Unreachable)?;
        let token = self.token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let (path, token) = (self.path, token.unwrap_or_default());
        let question =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(question.as_bytes()).map_err(AdminError::Broken)?;
        let mut stream = stream.take(self.most as u64);
        let (mut inbox, mut reading) = (BytesMut::new(), ResponseReader::new(self));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(AdminError::Silent(self.timeout));
            }
            stream.get_ref().set_read_timeout(Some(left)).map_err(AdminError::Broken)?;
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) if stream.limit() == 0 => {
                    let how = format!("its answer is longer than {}KiB", self.most >> 10);
                    return Err(AdminError::NotWeir(how));
                }
                Ok(0) => return Err(AdminError::not_weir("its answer is cut off")),
                Ok(count) => inbox.extend_from_slice(&piece[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        return Err(AdminError::Silent(self.timeout));
                    }
                    _ => return Err(AdminError::Broken(error)),
                },
            }
            if let Some(answer) = reading.take(&mut inbox)? {
                return Ok(answer);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct AdminAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// An answer that arrives in any number of pieces.
struct ResponseReader<'a> {
    request: &'a AdminRequest<'a>,
    search: HeadSearch,
    /// The status, and the length of the body.
    head: Option<(StatusCode, usize)>,
}

impl<'a> ResponseReader<'a> {
    fn new(request: &'a AdminRequest<'a>) -> Self {
        ResponseReader { request, search: HeadSearch::immediate(), head: None }
    }

    /// The answer, once all of it is there.
    fn take(&mut self, inbox: &mut BytesMut) -> Result<Option<AdminAnswer>, AdminError> {
        let not_http = |_| AdminError::not_weir("what it says is not HTTP/1.1");
        if self.head.is_none()
            && let Some(head) = self.search.take(inbox, self.request.most).map_err(not_http)?
        {
            let mut headers = HeaderMap::new();
            let line = head::parse_response(&head, &mut headers, USUAL_FIELDS).map_err(not_http)?;
            let stated = Framing::stated(&headers, line.http10);
            let Ok(Some(Framing::Length(length))) = stated else {
                return Err(AdminError::unexpected(self.request.path, line.status));
            };
            self.head = Some((line.status, usize::try_from(length).unwrap_or(usize::MAX)));
        }
        let Some((status, length)) = self.head.filter(|(_, length)| inbox.len() >= *length) else {
            return Ok(None);
        };
        Ok(Some(AdminAnswer { status, body: inbox.split_to(length).freeze() }))
    }
}
