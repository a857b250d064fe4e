//! TLS in front of a plain server of a test.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::certificates::Certificates;

/// What a front asks for and offers.
#[derive(Debug, Clone)]
pub(crate) struct FrontOptions<'a> {
    /// The name of its certificate and key among [`Certificates`].
    pub(crate) certificate: &'a str,
    pub(crate) alpn: &'a [&'a str],
    /// Whether clients have to show a certificate of the same authority.
    pub(crate) client_certificate: bool,
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
}

impl Default for FrontOptions<'_> {
    fn default() -> Self {
        FrontOptions {
            certificate: "server",
            alpn: &["h2", "http/1.1"],
            client_certificate: false,
            versions: rustls::ALL_VERSIONS,
        }
    }
}

/// What it has seen of its clients.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    full: AtomicUsize,
    resumed: AtomicUsize,
    tls12: AtomicUsize,
    named: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct TlsFront {
    address: SocketAddr,
    seen: Arc<Seen>,
    _end: oneshot::Sender<()>,
}

impl TlsFront {
    /// Forwards what it decrypts to `target`.
    pub(crate) fn start(
        target: SocketAddr,
        certificates: &Certificates,
        options: &FrontOptions<'_>,
    ) -> TlsFront {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(certificates, options)));
        let (end, over) = oneshot::channel();
        let (address, bound) = std::sync::mpsc::channel();
        let seen = Arc::new(Seen::default());
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                address.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(listener, acceptor, target, noted) => {}
                    _ = over => {}
                }
            });
        });
        TlsFront { address: bound.recv().unwrap(), seen, _end: end }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Handshakes that were made from scratch, and those that resumed a session.
    pub(crate) fn handshakes(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (read(&self.seen.full), read(&self.seen.resumed))
    }

    /// Handshakes in TLS 1.2.
    pub(crate) fn tls12(&self) -> usize {
        self.seen.tls12.load(Ordering::SeqCst)
    }

    /// Handshakes in which the client has named the host.
    pub(crate) fn named(&self) -> usize {
        self.seen.named.load(Ordering::SeqCst)
    }
}

fn server_config(certificates: &Certificates, options: &FrontOptions<'_>) -> ServerConfig {
    let pem = |name: String| fs::read(certificates.path(&name)).unwrap();
    let chain = pem(format!("{}.pem", options.certificate));
    let chain = CertificateDer::pem_slice_iter(&chain).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(&pem(format!("{}.key", options.certificate))).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_protocol_versions(options.versions).unwrap();
    let builder = if options.client_certificate {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(&pem("ca.pem".to_owned())).unwrap();
        roots.add(ca).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = options.alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    config
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, target: SocketAddr, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let Ok(mut client) = acceptor.accept(stream).await else { return };
            let count = |count: &AtomicUsize| count.fetch_add(1, Ordering::SeqCst);
            let (_, connection) = client.get_ref();
            match connection.handshake_kind() {
                Some(HandshakeKind::Resumed) => count(&seen.resumed),
                _ => count(&seen.full),
            };
            if connection.protocol_version() == Some(ProtocolVersion::TLSv1_2) {
                count(&seen.tls12);
            }
            if connection.server_name().is_some() {
                count(&seen.named);
            }
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
