//! Clients that speak TLS: which authority they trust, which host they ask for, what they show.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use super::PATIENCE;
use super::certificates::Certificates;
use super::client::Client;
use super::wire::{Transport, Wire};

/// One that may connect again and again, and resumes its sessions if the server lets it.
#[derive(Debug, Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    host: String,
}

impl TlsClient {
    /// Trusts the authority of these certificates, and asks for `localhost`.
    pub(crate) fn trusting(certificates: &Certificates) -> TlsClient {
        TlsClient::speaking(certificates, rustls::ALL_VERSIONS, None)
    }

    /// The same, with certain versions only.
    pub(crate) fn with_versions(
        certificates: &Certificates,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> TlsClient {
        TlsClient::speaking(certificates, versions, None)
    }

    /// The same, with the certificate of that name.
    pub(crate) fn showing(certificates: &Certificates, name: &str) -> TlsClient {
        TlsClient::speaking(certificates, rustls::ALL_VERSIONS, Some(name))
    }

    fn speaking(
        certificates: &Certificates,
        versions: &[&'static rustls::SupportedProtocolVersion],
        shown: Option<&str>,
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        for authority in pem(&certificates.path("ca.pem")) {
            roots.add(authority).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder =
            builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        let config = match shown {
            Some(name) => {
                let chain = pem(&certificates.path(&format!("{name}.pem")));
                let key = certificates.path(&format!("{name}.key"));
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        TlsClient { config: Arc::new(config), host: "localhost".to_owned() }
    }

    /// Asks for another host.
    pub(crate) fn host(mut self, host: &str) -> TlsClient {
        self.host = host.to_owned();
        self
    }

    /// Offers protocols above TLS.
    pub(crate) fn offering(mut self, protocols: &[&str]) -> TlsClient {
        let protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::make_mut(&mut self.config).alpn_protocols = protocols;
        self
    }

    #[track_caller]
    pub(crate) fn connect(&self, address: SocketAddr) -> Client {
        self.try_connect(address).unwrap_or_else(|error| panic!("no TLS with {address}: {error}"))
    }

    /// The same, or why there is no connection. With TLS 1.3 a server that refuses the client's
    /// certificate says so after this.
    pub(crate) fn try_connect(&self, address: SocketAddr) -> std::io::Result<Client> {
        self.over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Over a connection on which something was said already.
    pub(crate) fn over(&self, mut tcp: TcpStream) -> std::io::Result<Client> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let host = ServerName::try_from(self.host.clone()).unwrap();
        let mut connection = ClientConnection::new(self.config.clone(), host).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut tcp)?;
        }
        let stream = Box::new(StreamOwned::new(connection, tcp));
        Ok(Client { wire: Wire::over(Transport::Tls(stream)) })
    }
}

/// What a client over TLS has seen of the handshake.
impl Client {
    fn tls(&self) -> &ClientConnection {
        match self.wire.transport() {
            Transport::Tls(stream) => &stream.conn,
            _ => panic!("not over TLS"),
        }
    }

    /// The certificate that it was shown.
    pub(crate) fn shown(&self) -> CertificateDer<'static> {
        self.tls().peer_certificates().unwrap()[0].clone()
    }

    pub(crate) fn resumed(&self) -> bool {
        self.tls().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn protocol(&self) -> Option<String> {
        self.tls().alpn_protocol().map(|it| String::from_utf8_lossy(it).into_owned())
    }
}

/// The certificates of a file.
pub(crate) fn pem(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}
