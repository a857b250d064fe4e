//! Weir as a client: whom it trusts, who it says it is, which versions of HTTP it offers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor};
use rustls::sign::SingleCertAndKey;

use super::no_verification::NoVerification;
use super::{
    CertificateFile, KeyFile, KeyPairError, RenewalError, RootsError, certified_key, provider,
    roots,
};

/// What a configuration says of TLS to a server.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct TlsClientSpec {
    /// The authorities to trust; `None`: the system's.
    pub ca: Option<Vec<CertificateDer<'static>>>,
    pub identity: Option<ClientIdentity>,
    /// The name to ask for and to verify, if it is not the server's host.
    pub server_name: Option<ServerName<'static>>,
    /// Whether to believe any certificate.
    pub unverified: bool,
    /// Whether to offer HTTP/2.
    pub http2: bool,
}

/// A certificate and its key, for servers that ask for one.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Its own, then those up to the authority.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// The files that it was read from, to read them again when they change.
#[derive(Debug, Clone, Default)]
pub struct TlsClientFiles {
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl TlsClientFiles {
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let pair = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        self.ca.iter().chain(pair)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TlsClientError {
    #[error("{0}")]
    Authorities(#[from] RootsError),
    #[error("{0}")]
    Identity(#[from] KeyPairError),
    #[error("{0}")]
    Versions(rustls::Error),
}

/// One for all workers, which so share the sessions that servers let them resume.
#[derive(Clone)]
pub struct TlsClient(Arc<Inner>);

struct Inner {
    spec: TlsClientSpec,
    files: TlsClientFiles,
    /// Those of the system may change between two readings of the same file.
    roots: Vec<TrustAnchor<'static>>,
    /// Offers HTTP/1.1 and, if that is asked for, HTTP/2 before it.
    config: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only.
    http1: Arc<ClientConfig>,
}

impl TlsClient {
    /// # Errors
    /// If the certificates cannot be used.
    pub fn new(spec: TlsClientSpec, files: TlsClientFiles) -> Result<Self, TlsClientError> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsClientError::Versions)?;
        let (builder, roots) = if spec.unverified {
            let verifier = Arc::new(NoVerification(provider));
            (builder.dangerous().with_custom_certificate_verifier(verifier), Vec::new())
        } else {
            let store = roots(spec.ca.as_deref())?;
            let roots = store.roots.clone();
            (builder.with_root_certificates(store), roots)
        };
        let mut http1 = match &spec.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let pair = certified_key(identity.chain.clone(), identity.key.clone_key())?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
            }
        };
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(http1);
        let config = if spec.http2 {
            // A clone has the same sessions.
            let mut both = ClientConfig::clone(&http1);
            both.alpn_protocols.insert(0, b"h2".to_vec());
            Arc::new(both)
        } else {
            http1.clone()
        };
        Ok(TlsClient(Arc::new(Inner { spec, files, roots, config, http1 })))
    }

    pub fn files(&self) -> &TlsClientFiles {
        &self.0.files
    }

    /// The authorities that it was told to trust, if not the system's.
    pub fn authorities(&self) -> &[CertificateDer<'static>] {
        self.0.spec.ca.as_deref().unwrap_or_default()
    }

    /// Its own certificate, with those up to the authority.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.0.spec.identity.as_ref().map(|it| it.chain.as_slice()).unwrap_or_default()
    }

    /// The same with the authorities that their file has now.
    ///
    /// # Errors
    /// If they cannot be read or used.
    pub fn read_authorities_again(&self) -> Result<Self, RenewalError> {
        let file = self.0.files.ca.as_deref().map(CertificateFile::read).transpose()?;
        let ca = file.map(|it| it.certificates);
        Ok(TlsClient::new(TlsClientSpec { ca, ..self.copied_spec() }, self.0.files.clone())?)
    }

    /// The same with the certificate and the key that their files have now.
    ///
    /// # Errors
    /// If they cannot be read, or are no pair.
    pub fn read_identity_again(&self) -> Result<Self, RenewalError> {
        let read = |(cert, key): &(PathBuf, PathBuf)| {
            let (cert, key) = (CertificateFile::read(cert)?, KeyFile::read(key)?);
            Ok::<_, RenewalError>(ClientIdentity { chain: cert.certificates, key: key.key })
        };
        let identity = self.0.files.identity.as_ref().map(read).transpose()?;
        Ok(TlsClient::new(TlsClientSpec { identity, ..self.copied_spec() }, self.0.files.clone())?)
    }

    fn copied_spec(&self) -> TlsClientSpec {
        let TlsClientSpec { ca, identity, server_name, unverified, http2 } = &self.0.spec;
        let identity = identity.as_ref();
        TlsClientSpec {
            ca: ca.clone(),
            identity: identity
                .map(|it| ClientIdentity { chain: it.chain.clone(), key: it.key.clone_key() }),
            server_name: server_name.clone(),
            unverified: *unverified,
            http2: *http2,
        }
    }

    /// What it was made of.
    pub(crate) fn spec(&self) -> &TlsClientSpec {
        &self.0.spec
    }

    /// The name by which a server at that host is verified.
    pub fn server_name(&self, host: &str) -> Option<ServerName<'static>> {
        let named = self.0.spec.server_name.clone();
        named.or_else(|| ServerName::try_from(host.to_owned()).ok())
    }

    /// What a handshake offers.
    pub fn config(&self, only_http1: bool) -> Arc<ClientConfig> {
        if only_http1 { self.0.http1.clone() } else { self.0.config.clone() }
    }
}

/// Wherever it was read from.
impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.spec == other.0.spec && self.0.roots == other.0.roots)
    }
}

impl Eq for TlsClient {}

impl Hash for TlsClient {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Few differ in anything else.
        let TlsClientSpec { server_name, unverified, http2, .. } = &self.0.spec;
        (server_name, unverified, http2).hash(state);
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsClient").field(&self.0.spec).finish()
    }
}
