//! A new connection to a server: its addresses in turn, and TLS if that is how it is spoken to.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::resolve::ServerAddress;
use crate::config::settings::{self, Origin};
use crate::stream::{Stream, enable_keepalive};
use crate::telemetry::Failure;
use crate::tls::TlsClient;

/// How a server is spoken to.
#[derive(Debug, Default)]
pub(crate) struct ServerProtocol {
    tls: Option<ServerTls>,
    /// Over TLS this is offered, and the server chooses.
    pub(super) http2: bool,
}

#[derive(Debug)]
struct ServerTls {
    client: TlsClient,
    /// The name that its certificate has to be for.
    name: ServerName<'static>,
}

impl ServerProtocol {
    pub(super) fn new(origin: &Origin, upstream: &settings::Upstream) -> Self {
        let tls = upstream.tls.as_ref().and_then(|client| {
            // The configuration has made sure that there is a name.
            let name = client.server_name(&origin.host)?;
            Some(ServerTls { client: client.clone(), name })
        });
        debug_assert_eq!(tls.is_some(), upstream.tls.is_some(), "a server without a name");
        ServerProtocol { tls, http2: upstream.http2 }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Makes a connection what the server expects. `only_http1`: HTTP/2 is not offered.
    ///
    /// # Errors
    /// If the handshake fails.
    async fn secure(&self, stream: TcpStream, only_http1: bool) -> Result<Stream, ConnectError> {
        let Some(tls) = &self.tls else { return Ok(stream.into()) };
        let connector = TlsConnector::from(tls.client.config(only_http1));
        match connector.connect(tls.name.clone(), stream).await {
            Ok(stream) => Ok(tokio_rustls::TlsStream::from(stream).into()),
            Err(error) => Err(ConnectError::Tls(TlsFailure::of(&error), error)),
        }
    }
}

/// What clients are told of it names nothing that is behind the gateway: see [`ConnectError::detail`].
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the name could not be resolved")]
    Resolve(#[source] io::Error),
    #[error("the connection was refused or failed")]
    Refused(#[source] io::Error),
    #[error("no TLS that can be believed")]
    Tls(TlsFailure, #[source] io::Error),
    #[error("no HTTP/2")]
    Http2(#[source] io::Error),
    #[error("no connection in time")]
    TimedOut,
    #[error("the server has as many connections as it may, and as many requests wait for one")]
    Saturated,
    /// The gateway has run out of something: no server has been asked.
    #[error("{0}")]
    Exhausted(#[source] io::Error),
}

impl ConnectError {
    /// All that is known of it, for the log.
    pub fn detail(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// What it counts as, if it was the upstream's fault.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            ConnectError::TimedOut => Some(Failure::Timeout),
            ConnectError::Saturated => Some(Failure::Saturated),
            ConnectError::Exhausted(_) => None,
            _ => Some(Failure::Unreachable),
        }
    }

    /// Whether the gateway is at fault, so that another server would not help.
    pub fn is_ours(&self) -> bool {
        matches!(self, ConnectError::Exhausted(_))
    }

    fn of_connecting(error: io::Error) -> Self {
        if is_exhaustion(&error) {
            ConnectError::Exhausted(error)
        } else {
            ConnectError::Refused(error)
        }
    }

    fn of_resolving(error: io::Error) -> Self {
        if is_exhaustion(&error) {
            ConnectError::Exhausted(error)
        } else {
            ConnectError::Resolve(error)
        }
    }
}

/// Why a handshake failed, or a connection right after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// The server's certificate is not to be believed.
    Certificate,
    /// The server has refused, and said why.
    Alert,
    /// What came is no TLS that both sides can speak.
    Protocol,
    /// The connection ended.
    Closed,
}

impl TlsFailure {
    pub fn of(error: &io::Error) -> Self {
        use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(InvalidCertificate(_) | NoCertificatesPresented) => TlsFailure::Certificate,
            Some(AlertReceived(_)) => TlsFailure::Alert,
            Some(_) => TlsFailure::Protocol,
            None => TlsFailure::Closed,
        }
    }
}

/// Whether this process or machine has run out of something: file descriptors, ports, memory.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    let ours = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    errno.is_some_and(|errno| ours.contains(&errno))
}

/// Opens connections to one server, for requests and for probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialer<'a> {
    pub(super) address: &'a ServerAddress,
    pub(super) protocol: &'a ServerProtocol,
    /// HTTP/2 is not offered.
    pub(super) only_http1: bool,
}

impl Dialer<'_> {
    /// Tries each of the server's addresses in turn.
    ///
    /// # Errors
    /// If none of them is ready to be spoken to within `patience`.
    pub(super) async fn connect(&self, patience: Duration) -> Result<Stream, ConnectError> {
        if let Some(path) = self.address.unix_path() {
            let connected = timeout(patience, connect_unix(path)).await;
            return connected.unwrap_or(Err(ConnectError::TimedOut));
        }
        let deadline = Instant::now() + patience;
        let lookup = timeout(patience, self.address.lookup()).await;
        let found =
            lookup.map_err(|_| ConnectError::TimedOut)?.map_err(ConnectError::of_resolving)?;
        if !found.stale {
            return self.connect_to(&found.addresses, patience).await;
        }
        // The server may have moved: keep half of the time for the answer that was just asked for.
        let last = match self.connect_to(&found.addresses, patience / 2).await {
            Ok(io) => return Ok(io),
            Err(error) => error,
        };
        match timeout_at(deadline, self.address.renewed()).await {
            Ok(Ok(addresses)) if addresses != found.addresses => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.connect_to(&addresses, left).await
            }
            _ => Err(last),
        }
    }

    async fn connect_to(
        &self,
        addresses: &[SocketAddr],
        patience: Duration,
    ) -> Result<Stream, ConnectError> {
        // An address that drops every packet must not use up the time of the others.
        let share = patience / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = ConnectError::TimedOut;
        for &address in addresses {
            match timeout(share, self.dial(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = ConnectError::TimedOut,
            }
        }
        Err(last)
    }

    async fn dial(&self, address: SocketAddr) -> Result<Stream, ConnectError> {
        let stream = TcpStream::connect(address).await.map_err(ConnectError::of_connecting)?;
        stream.set_nodelay(true).map_err(ConnectError::of_connecting)?;
        enable_keepalive(&stream);
        self.protocol.secure(stream, self.only_http1).await
    }
}

/// A connection to a server on this machine.
async fn connect_unix(path: &Path) -> Result<Stream, ConnectError> {
    let stream = UnixStream::connect(path).await.map_err(ConnectError::of_connecting)?;
    Ok(stream.into())
}
