//! Fetches a JWK set: one GET over a connection of its own, answered with 200 or not at all.
//!
//! Redirects are not followed: keys come from the configured server only.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::key_set::LARGEST;
use crate::config::settings::JwksUrl;
use crate::tls::{TlsClient, TlsClientError, TlsClientFiles, TlsClientSpec};

/// From the look-up of the name to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no connection: {0}")]
    Connection(#[from] io::Error),
    #[error("no certificates to trust: {0}")]
    Authorities(#[from] TlsClientError),
    #[error("no name that TLS can check")]
    Name,
    #[error("no HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("answered with {0}")]
    Status(StatusCode),
    #[error("larger than 1MiB")]
    TooLarge,
    #[error("broke off: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within 5 seconds")]
    Timeout,
}

pub(super) async fn fetch(url: &JwksUrl) -> Result<Vec<u8>, FetchError> {
    let fetched = async {
        let stream = TcpStream::connect((url.origin.host.as_str(), url.origin.port)).await?;
        if url.tls {
            let name = ServerName::try_from(url.origin.host.clone());
            let name = name.map_err(|_| FetchError::Name)?;
            let connector = TlsConnector::from(tls(url.ca.clone()).await?);
            exchange(url, connector.connect(name, stream).await?).await
        } else {
            exchange(url, stream).await
        }
    };
    tokio::time::timeout(PATIENCE, fetched).await.unwrap_or(Err(FetchError::Timeout))
}

async fn exchange(
    url: &JwksUrl,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<Vec<u8>, FetchError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let asked = async {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = url.path.clone().into();
        let headers = request.headers_mut();
        // Names and addresses that were parsed are valid header values.
        if let Ok(host) = url.authority().parse() {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("weir"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        match Limited::new(response.into_body(), LARGEST).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
            Err(error) => Err(FetchError::Body(error)),
        }
    };
    tokio::pin!(asked);
    tokio::select! {
        done = &mut asked => done,
        // What it has read before it ended is still to be had.
        _ = connection => asked.await,
    }
}

/// Read anew each time, so that renewed authorities count without a restart.
async fn tls(ca: Option<Vec<u8>>) -> Result<Arc<ClientConfig>, FetchError> {
    // The configuration has made sure that they are there.
    let parse = |pem: Vec<u8>| CertificateDer::pem_slice_iter(&pem).flatten().collect();
    let spec = TlsClientSpec { ca: ca.map(parse), ..TlsClientSpec::default() };
    let new = move || TlsClient::new(spec, TlsClientFiles::default());
    let client = tokio::task::spawn_blocking(new).await;
    Ok(client.map_err(io::Error::other)??.config(true))
}
