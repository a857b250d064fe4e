//! `[upstreams.NAME]`.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};

use crate::limit::Source;
use crate::tls::TlsClient;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: String,
    /// Never empty.
    pub servers: Vec<UpstreamServer>,
    pub balance: Balance,
    pub connect_timeout: Duration,
    /// From the end of the request to the head of the response.
    pub response_timeout: Duration,
    /// How often a request that is safe to repeat may be sent again.
    pub retries: u32,
    /// Idle connections kept for each server by each worker.
    pub keepalive: usize,
    pub keepalive_timeout: Duration,
    /// How old a connection may become; `None`: as old as it likes.
    pub max_age: Option<Duration>,
    /// How long an answer for a server's name is used before it is resolved again.
    pub resolve_interval: Duration,
    /// Connections that each server may have of this gateway, all workers together. Zero: as many as
    /// there are.
    pub max_connections: usize,
    /// Requests that may wait for one of them.
    pub max_pending: usize,
    /// How it is found out which servers are well; `None`: not at all.
    pub health: Option<HealthCheck>,
    pub breaker: Option<Breaker>,
    pub ejection: Ejection,
    /// Whether servers are spoken to in HTTP/2: over TLS those that choose it, else all.
    pub http2: bool,
    /// `None`: in the clear.
    pub tls: Option<TlsClient>,
    /// Fields of a response.
    pub max_response_headers: usize,
}

/// One server of an upstream, and its share of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamServer {
    pub origin: Origin,
    /// 1 to 1000.
    pub weight: u32,
}

/// A server by its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// A name, an IPv4 address, an IPv6 address without brackets, or the path of a Unix socket: that
    /// begins with a slash, as nothing else does.
    pub host: String,
    /// Zero for a Unix socket.
    pub port: u16,
}

impl Origin {
    /// A server behind a Unix socket at that path, which is absolute.
    pub fn unix(path: &str) -> Self {
        Origin { host: path.to_owned(), port: 0 }
    }

    /// The path, if it is a Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        self.host.starts_with('/').then(|| Path::new(&self.host))
    }

    /// What to ask for there when the client names no host.
    pub fn default_host(&self) -> String {
        match self.unix_path() {
            Some(_) => "localhost".to_owned(),
            None => self.authority(),
        }
    }

    /// As a `Host` has it; a Unix socket as a configuration has it.
    pub fn authority(&self) -> String {
        let Origin { host, port } = self;
        if self.unix_path().is_some() {
            return format!("unix:{host}");
        }
        // Only an IPv6 address has colons, and a port wants brackets around it.
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    RoundRobin,
    LeastRequests,
    Random,
    /// By what a request has there; [`Balance::LeastRequests`] if it has nothing.
    Hash(Source),
}

/// When servers that fail are left out, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    /// After so many requests in a row that got no response. Zero: never for that.
    pub failures: u32,
    /// For how long at first; twice as long each time that a trial fails.
    pub time: Duration,
    pub max_time: Duration,
    /// How many of an upstream's servers may be left out for requests that failed, in percent. Zero:
    /// none; anything else: one at least.
    pub max_percent: u32,
}

impl Ejection {
    /// What `failures` may be.
    pub(in crate::config) const FAILURES: RangeInclusive<u64> = 0..=1000;

    /// Whether servers are ever left out for requests that failed.
    pub fn is_on(&self) -> bool {
        self.failures > 0 && self.max_percent > 0
    }

    /// How many of so many servers may be left out.
    pub fn most_of(&self, servers: usize) -> usize {
        match self.max_percent as usize {
            0 => 0,
            percent => (servers * percent / 100).max(1),
        }
    }
}

impl Default for Ejection {
    fn default() -> Self {
        let (time, max_time) = (Duration::from_secs(1), Duration::from_secs(30));
        Ejection { failures: 5, time, max_time, max_percent: 50 }
    }
}

/// How servers are probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path, with its query, that is asked for.
    pub path: Uri,
    /// The host that is asked for; `None`: the server's own.
    pub host: Option<HeaderValue>,
    pub interval: Duration,
    pub timeout: Duration,
    /// Probes in a row that bring a server back.
    pub healthy: u32,
    /// Probes in a row that take it out.
    pub unhealthy: u32,
    /// Statuses that a healthy server answers with.
    pub status: Vec<RangeInclusive<u16>>,
}

impl HealthCheck {
    /// Whether a healthy server answers so.
    pub fn accepts(&self, status: StatusCode) -> bool {
        self.status.iter().any(|range| range.contains(&status.as_u16()))
    }
}

/// When an upstream that fails is not asked any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// After so many requests that failed in a row,
    pub failures: u32,
    /// all within this time.
    pub window: Duration,
    /// How long no request is sent, before one is let through to find out.
    pub open: Duration,
}

impl Breaker {
    pub(in crate::config) const USUAL_FAILURES: u64 = 20;
}
