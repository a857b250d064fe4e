//! What a configuration means: validated values, resolved references, no raw strings.
//!
//! Everything past `config/` works on these types. A route points at its limits and its upstream
//! by index, a duration is a [`Duration`], and whatever the file left out has its default.

mod credentials;
mod forwarded_identity;
mod http2;
mod listeners;
mod route;
mod telemetry;
mod upstream;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;

pub use credentials::{Client, JwksUrl, Jwt, JwtAlgorithm, JwtKeys};
pub use forwarded_identity::{ForwardedIdentity, IdentityName};
pub use http2::Http2;
pub use listeners::{
    ClientAuth, HttpsPort, ListenAddress, Listener, ServerCertificate, ServerTls, TlsVersion,
};
pub use route::{
    ConditionRank, EncodedSlash, FixedResponse, ForwardPath, HeaderEdits, HostPattern, PathPattern,
    Redirect, Route, Segment, Target,
};
pub use telemetry::{
    AccessLogFormat, AuditTargets, IdSource, LogTarget, OtlpEndpoint, Rotation, Telemetry, Traces,
};
pub use upstream::{Balance, Breaker, Ejection, HealthCheck, Origin, Upstream, UpstreamServer};

use crate::limit::guard::Guard;
use crate::limit::tenants::{TenantLimit, TenantTree};
use crate::limit::trust::TrustWeights;
use crate::limit::{Limit, OnError, Source};

/// A whole configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub server: Server,
    pub admin: Admin,
    pub store: Store,
    pub respond: Respond,
    pub identity: Identity,
    pub access: Access,
    pub telemetry: Telemetry,
    pub upstreams: Vec<Upstream>,
    pub limits: Vec<Limit>,
    pub guards: Vec<Guard>,
    pub trust: Trust,
    /// Shared, because there may be a hundred thousand of them.
    pub tenants: Arc<Tenants>,
    pub routes: Vec<Route>,
}

/// `[server]`: the data listeners and what one connection may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Never empty.
    pub listen: Vec<Listener>,
    /// Zero: one per usable core.
    pub workers: usize,
    pub drain: Duration,
    /// How long requests are still taken after a signal, while the gateway says it is not ready.
    pub drain_delay: Duration,
    /// The Unix socket at which a new process asks for the listening sockets.
    pub takeover: Option<PathBuf>,
    /// From the first byte of a request to the end of its header.
    pub header_timeout: Duration,
    /// How long a connection may sit between two requests.
    pub idle_timeout: Duration,
    /// How long a body may stand still in either direction.
    pub request_timeout: Duration,
    /// How long a tunnel may be silent in both directions.
    pub tunnel_timeout: Duration,
    pub max_header_bytes: usize,
    /// Fields of a request.
    pub max_request_headers: usize,
    /// `None`: as large as the upstream will take.
    pub max_body: Option<u64>,
    /// Zero: what the file descriptor limit leaves room for.
    pub max_connections: usize,
    /// Of one address, or one prefix of IPv6. Zero: as many as there may be of all.
    pub max_connections_per_ip: usize,
    /// Where requests to plain listeners are sent instead of being served.
    pub redirect_https: Option<HttpsPort>,
    /// Requests under way at a time; `None`: any number.
    pub max_requests: Option<usize>,
    /// How fast bodies have to come; `None`: as slowly as they like.
    pub min_body_rate: Option<MinBodyRate>,
    /// `None`: HTTP/1.1 only.
    pub http2: Option<Http2>,
}

/// How fast a body has to come, once its grace is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinBodyRate {
    pub bytes_per_second: u64,
    pub grace: Duration,
}

/// `[admin]`: where metrics, health and the API for operators are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    pub listen: SocketAddr,
    /// The bearer token that changes require.
    pub token: Option<Secret>,
    /// Names that it answers to besides its address, in lower case.
    pub hosts: Vec<String>,
}

impl Admin {
    /// Whether there is a `/v1`: not on an address that others can reach, unless there is a token.
    pub fn has_api(&self) -> bool {
        self.token.is_some() || self.listen.ip().is_loopback()
    }
}

/// `[store]`: where buckets live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub kind: StoreKind,
    pub max_keys: usize,
    /// What holds for limits that say nothing themselves; each [`Limit`] carries what does.
    pub on_error: OnError,
    /// Whether some limit enforces this gateway's share of it while the store fails.
    pub has_local_limits: bool,
    /// Where the buckets in memory outlive the process.
    pub snapshot: Option<Snapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub path: PathBuf,
    /// How often it is written while the gateway runs.
    pub interval: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    Memory,
    Redis(Box<Redis>),
    Hybrid(Box<Hybrid>),
}

impl StoreKind {
    /// The name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::Redis(_) => "redis",
            StoreKind::Hybrid(_) => "hybrid",
        }
    }

    /// What the keys of all buckets start with, where several gateways share them.
    pub fn key_prefix(&self) -> Option<&str> {
        match self {
            StoreKind::Memory => None,
            StoreKind::Redis(redis) => Some(&redis.prefix),
            StoreKind::Hybrid(hybrid) => Some(&hybrid.redis.prefix),
        }
    }
}

/// A store in Redis of which gateways take what hot keys need in advance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hybrid {
    pub redis: Redis,
    /// How long what was taken may lie idle at a gateway.
    pub sync_interval: Duration,
}

/// The Redis or Valkey that many gateways share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    pub servers: RedisServers,
    /// `None`: in the clear.
    pub tls: Option<RedisTls>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Zero for a cluster, which has no other.
    pub database: u32,
    /// What the names of all keys start with.
    pub prefix: String,
    /// What one decision may wait.
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisServers {
    Single(RedisAddress),
    /// The master by that name, as these sentinels know it. Never empty.
    Sentinel {
        master: String,
        nodes: Vec<Origin>,
        username: Option<String>,
        password: Option<Secret>,
    },
    /// Some of the cluster's nodes, which know the others. Never empty.
    Cluster(Vec<Origin>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    Tcp(Origin),
    Unix(PathBuf),
}

/// Certificates for `rediss://`, as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisTls {
    /// `None`: the system's authorities.
    pub ca: Option<Vec<u8>>,
    /// A certificate and its key, for servers that ask for one.
    pub client: Option<(Vec<u8>, Secret)>,
}

/// Something that is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `[respond]`: which rate headers an answer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Respond {
    /// `RateLimit` and `RateLimit-Policy`.
    pub draft: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x: bool,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy: bool,
    /// By how much `Retry-After` may be stretched, in thousandths: 0 to 500.
    pub retry_jitter: u16,
}

/// `[identity]`: how it is found who the caller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Those of the file and those of the environment, without doubles.
    pub trusted_proxies: Vec<IpNet>,
    /// The one header in which they say whom they speak for. `None`: both `X-Forwarded-For` and
    /// `Forwarded`, as long as they agree.
    pub address_header: Option<HeaderName>,
    /// Addresses that share this prefix are one caller: 1 to 128.
    pub ipv6_prefix: u8,
    /// Of each the first that a request has.
    pub user: Vec<Source>,
    pub client: Vec<Source>,
    pub tenant: Vec<Source>,
    pub plan: Vec<Source>,
    /// Which tokens are believed; `None`: none.
    pub jwt: Option<Jwt>,
    /// Clients by their API keys; `None`: whatever a request brings is the client.
    pub clients: Option<Vec<Client>>,
    /// The files that some of them are from.
    pub clients_files: Vec<PathBuf>,
    /// What upstreams are told of the caller.
    pub forward: ForwardedIdentity,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            trusted_proxies: Vec::new(),
            address_header: None,
            ipv6_prefix: 64,
            user: Vec::new(),
            client: Vec::new(),
            tenant: Vec::new(),
            plan: Vec::new(),
            jwt: None,
            clients: None,
            clients_files: Vec::new(),
            forward: ForwardedIdentity::default(),
        }
    }
}

/// `[trust]`: what scores are made of, by the names of a token's claims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// When the account was made: Unix seconds, or RFC 3339.
    pub account_created: Option<String>,
    pub email_verified: Option<String>,
    /// The score itself, in place of the formula.
    pub score: Option<String>,
    pub weights: TrustWeights,
}

/// `[tenants.NAME]`, also those in files, and `[limits.tenants]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tenants {
    /// Empty if there are none.
    pub tree: Arc<TenantTree>,
    /// The files that some of them are from.
    pub files: Vec<PathBuf>,
    /// How routes use the tree.
    pub limit: TenantLimit,
}

/// `[access]`: who is never limited, and who never gets in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    pub allow: AccessEntries,
    pub deny: AccessEntries,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessEntries {
    pub ip: Vec<IpNet>,
    pub user: Vec<String>,
    pub client: Vec<String>,
    /// Files with more of all three, one a line.
    pub files: Vec<PathBuf>,
}
