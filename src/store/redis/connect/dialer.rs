//! How one server of Redis is reached: address, TLS, name and password, database.

use std::fmt;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisError, TlsCertificates,
};

use super::failure::{Failure, Reason};
use super::known_nodes::KnownNodes;
use super::sentinels::Sentinels;
use super::server_clock::ServerClocks;
use crate::config::settings::{self, Origin, RedisAddress, RedisServers, RedisTls, Secret};

/// How long a connection may take to be ready.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Dialer {
    settings: settings::Redis,
    /// The nodes of a cluster, besides those that are configured.
    pub(crate) known: KnownNodes,
    /// What sentinels say, if there are any.
    sentinels: Option<Sentinels>,
    /// What is known of the clocks of a cluster's nodes.
    pub(crate) clocks: ServerClocks,
}

impl Dialer {
    pub(crate) fn new(settings: settings::Redis) -> Self {
        let sentinels = match &settings.servers {
            RedisServers::Sentinel { nodes, .. } => Some(Sentinels::new(nodes)),
            _ => None,
        };
        let (known, clocks) = (KnownNodes::default(), ServerClocks::default());
        Dialer { settings, known, sentinels, clocks }
    }

    /// The seeds of a cluster; `None` if there is one master.
    pub(crate) fn seeds(&self) -> Option<&[Origin]> {
        match &self.settings.servers {
            RedisServers::Cluster(seeds) => Some(seeds),
            _ => None,
        }
    }

    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        self.sentinels.as_ref()
    }

    /// The sentinels that are configured.
    pub(crate) fn sentinel_nodes(&self) -> Option<&[Origin]> {
        match &self.settings.servers {
            RedisServers::Sentinel { nodes, .. } => Some(nodes),
            _ => None,
        }
    }

    /// How to reach one of the sentinels.
    pub(crate) fn sentinel<'a>(&'a self, node: &Origin) -> Option<Sentinel<'a>> {
        let RedisServers::Sentinel { master, username, password, .. } = &self.settings.servers
        else {
            return None;
        };
        let login = login(username.as_deref(), password.as_ref().map(|it| it.0.as_str()));
        let tls = self.settings.tls.as_ref();
        Some(Sentinel { master, address: self.address(node), login, tls })
    }

    /// A connection to the one master there is, as the sentinels name it if there are any.
    pub(crate) async fn master(&self) -> Result<MultiplexedConnection, Failure> {
        match &self.settings.servers {
            RedisServers::Single(RedisAddress::Unix(path)) => {
                self.connect(ConnectionAddr::Unix(path.clone())).await
            }
            RedisServers::Single(RedisAddress::Tcp(origin)) => self.node(origin).await,
            RedisServers::Cluster(seeds) => self.node(&seeds[0]).await,
            RedisServers::Sentinel { .. } => match &self.sentinels {
                Some(sentinels) => self.node(&sentinels.master().await?).await,
                None => Err(Failure::not_asked()),
            },
        }
    }

    /// A connection to one server by its address.
    pub(crate) async fn node(&self, origin: &Origin) -> Result<MultiplexedConnection, Failure> {
        self.connect(self.address(origin)).await
    }

    fn address(&self, origin: &Origin) -> ConnectionAddr {
        let (host, port) = (origin.host.clone(), origin.port);
        match self.settings.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        }
    }

    async fn connect(&self, address: ConnectionAddr) -> Result<MultiplexedConnection, Failure> {
        let Secret(password) = self.settings.password.clone().unwrap_or_default();
        let username = self.settings.username.as_deref();
        let login = login(username, Some(password.as_str()).filter(|it| !it.is_empty()));
        let login = login.set_db(i64::from(self.settings.database));
        dial(address, login, self.settings.tls.as_ref()).await
    }
}

/// How one sentinel is reached.
pub(crate) struct Sentinel<'a> {
    /// What it calls the master.
    pub(crate) master: &'a str,
    address: ConnectionAddr,
    login: RedisConnectionInfo,
    tls: Option<&'a RedisTls>,
}

impl Sentinel<'_> {
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
        dial(self.address.clone(), self.login.clone(), self.tls).await
    }

    /// A connection that hears what the sentinel announces. It may take for ever.
    pub(crate) async fn events(&self) -> Result<PubSub, Failure> {
        let client = client(self.address.clone(), self.login.clone(), self.tls)?;
        client.get_async_pubsub().await.map_err(unreachable)
    }
}

fn login(username: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let login = RedisConnectionInfo::default().set_lib_name("weir", env!("CARGO_PKG_VERSION"));
    let login = match username {
        Some(username) => login.set_username(username),
        None => login,
    };
    match password {
        Some(password) => login.set_password(password),
        None => login,
    }
}

fn client(
    address: ConnectionAddr,
    login: RedisConnectionInfo,
    tls: Option<&RedisTls>,
) -> Result<Client, Failure> {
    let is_tls = matches!(address, ConnectionAddr::TcpTls { .. });
    // Decisions are small and wait for their answer: nothing is gained by holding them back.
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(login);
    Ok(match tls {
        Some(tls) if is_tls => Client::build_with_tls(info, certificates(tls))?,
        _ => Client::open::<ConnectionInfo>(info)?,
    })
}

async fn dial(
    address: ConnectionAddr,
    login: RedisConnectionInfo,
    tls: Option<&RedisTls>,
) -> Result<MultiplexedConnection, Failure> {
    let client = client(address, login, tls)?;
    // Each call has a deadline of its own.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(Some(CONNECT_TIMEOUT));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    match tokio::time::timeout(CONNECT_TIMEOUT, connection).await {
        Ok(connection) => Ok(connection.map_err(unreachable)?),
        Err(_) => Err(Failure::new(Reason::Connection, "no connection within a second")),
    }
}

/// A failure to connect that is no reply of the server.
fn unreachable(error: RedisError) -> Failure {
    let failure = Failure::from(error);
    match failure.reason {
        Reason::Timeout | Reason::Other => Failure::new(Reason::Connection, failure.to_string()),
        _ => failure,
    }
}

fn certificates(tls: &RedisTls) -> TlsCertificates {
    let client = tls.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone(),
        client_key: key.0.clone().into_bytes(),
    });
    TlsCertificates { client_tls: client, root_cert: tls.ca.clone() }
}

/// As messages name it; passwords are no part of it.
impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = |f: &mut fmt::Formatter<'_>, origins: &[Origin]| {
            for (index, origin) in origins.iter().enumerate() {
                write!(f, "{}{}", if index == 0 { "" } else { ", " }, DisplayOrigin(origin))?;
            }
            Ok(())
        };
        match &self.settings.servers {
            RedisServers::Single(RedisAddress::Tcp(origin)) => {
                write!(f, "{}", DisplayOrigin(origin))
            }
            RedisServers::Single(RedisAddress::Unix(path)) => write!(f, "{}", path.display()),
            RedisServers::Sentinel { master, nodes, .. } => {
                write!(f, "master {master}, as known to ")?;
                several(f, nodes)
            }
            RedisServers::Cluster(seeds) => {
                f.write_str("cluster of ")?;
                several(f, seeds)
            }
        }
    }
}

/// An address as messages have it.
pub(crate) struct DisplayOrigin<'a>(pub(crate) &'a Origin);

impl fmt::Display for DisplayOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { host, port } = self.0;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests;
