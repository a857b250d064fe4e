//! One question to one server: a GET over a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use crate::config::settings::{self, HealthCheck, Origin};
use crate::upstream::ConnectError;
use crate::upstream::connect::{Dialer, ServerProtocol};
use crate::upstream::resolve::ServerAddress;

/// How much of an answer is read, so that a server need not log that it could not be sent.
const READ: usize = 64 * 1024;
/// How long that may take.
const READ_TIME: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("{}", .0.detail())]
    Connect(#[from] ConnectError),
    #[error("no HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("answered with {0}")]
    Status(StatusCode),
    #[error("no answer in time")]
    TimedOut,
}

impl ProbeError {
    /// Whether the gateway is at fault, and the server was not asked.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, ProbeError::Connect(error) if error.is_ours())
    }
}

#[derive(Debug)]
pub(super) struct Probe {
    address: ServerAddress,
    health: HealthCheck,
    host: Option<HeaderValue>,
    protocol: ServerProtocol,
}

impl Probe {
    pub(super) fn new(
        upstream: &settings::Upstream,
        health: &HealthCheck,
        origin: &Origin,
        address: ServerAddress,
    ) -> Self {
        let own = || HeaderValue::try_from(origin.default_host()).ok();
        let host = health.host.clone().or_else(own);
        let protocol = ServerProtocol::new(origin, upstream);
        Probe { address, health: health.clone(), host, protocol }
    }

    /// # Errors
    /// If the answer is not what is expected of a healthy server, or does not come in time.
    pub(super) async fn run(&self) -> Result<(), ProbeError> {
        let asked = timeout(self.health.timeout, self.ask()).await;
        let status = asked.unwrap_or(Err(ProbeError::TimedOut))?;
        if self.health.accepts(status) { Ok(()) } else { Err(ProbeError::Status(status)) }
    }

    async fn ask(&self) -> Result<StatusCode, ProbeError> {
        let dialer = Dialer { address: &self.address, protocol: &self.protocol, only_http1: false };
        let stream = dialer.connect(self.health.timeout).await?;
        let is_http2 = self.protocol.http2 && !stream.has_declined_http2();
        let io = TokioIo::new(stream);
        if is_http2 {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            exchange(sender.send_request(self.request(Version::HTTP_2)), connection).await
        } else {
            let (mut sender, connection) = http1::handshake(io).await?;
            exchange(sender.send_request(self.request(Version::HTTP_11)), connection).await
        }
    }

    fn request(&self, version: Version) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.version_mut() = version;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("weir-health"));
        if version == Version::HTTP_2 {
            *request.uri_mut() = self.absolute_uri().unwrap_or_else(|| self.health.path.clone());
        } else {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            headers.extend(self.host.clone().map(|host| (header::HOST, host)));
            *request.uri_mut() = self.health.path.clone();
        }
        request
    }

    /// HTTP/2 has the host in the target.
    fn absolute_uri(&self) -> Option<Uri> {
        let scheme = if self.protocol.is_tls() { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(self.host.as_ref()?.as_bytes());
        uri.path_and_query(self.health.path.path_and_query()?.clone()).build().ok()
    }
}

/// The status of an answer, while the connection that it comes on is driven.
async fn exchange(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    connection: impl Future,
) -> Result<StatusCode, ProbeError> {
    let asked = async {
        let response = response.await?;
        let status = response.status();
        // Whether it can be read to its end says nothing of the server's health.
        let _ = timeout(READ_TIME, Limited::new(response.into_body(), READ).collect()).await;
        Ok(status)
    };
    tokio::pin!(asked);
    tokio::select! {
        done = &mut asked => done,
        // What it has read before it ended is still to be had.
        _ = connection => asked.await,
    }
}
