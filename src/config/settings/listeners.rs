//! `[server] listen` and `tls`: where requests come in, and by what.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;

use crate::tls::subject::{CertificateSubject, SubjectName};
use crate::tls::{
    CertificateFile, KeyFile, KeyPairError, RenewalError, RootsError, certified_key, provider,
    roots,
};

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub address: ListenAddress,
    /// `None`: in the clear. Never for a Unix socket.
    pub tls: Option<Arc<ServerTls>>,
    /// Connections from trusted proxies begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether HTTP/2 is offered in the handshake of TLS.
    pub http2: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix {
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https://" } else { "" };
        write!(f, "{scheme}{}", self.address)
    }
}

/// What a listener shows to clients that speak TLS, and what it asks of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// Never empty. The first is for clients that ask for none of the hosts of the others.
    pub certificates: Vec<ServerCertificate>,
    pub min_version: TlsVersion,
    /// `None`: clients need no certificate, and are asked for none.
    pub client_auth: Option<ClientAuth>,
}

impl ServerTls {
    /// Whether one of the certificates is for that host: a name in lower case, or an address without
    /// brackets.
    pub fn covers(&self, host: &str) -> bool {
        let above = host.split_once('.').map(|(_, above)| above);
        let fits = |name: &String| match name.strip_prefix("*.") {
            Some(rest) => above == Some(rest),
            None => name == host,
        };
        let ip: Option<IpAddr> = host.parse().ok();
        let mut all = self.certificates.iter();
        all.any(|it| it.hosts.iter().any(fits) || ip.is_some_and(|ip| it.ips.contains(&ip)))
    }

    /// Every file that it was made of.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pairs = self.certificates.iter().flat_map(|it| [&it.cert_file, &it.key_file]);
        pairs.chain(self.client_auth.iter().map(|it| &it.ca_file))
    }
}

/// A certificate, with its chain and its key.
#[derive(Clone)]
pub struct ServerCertificate {
    /// As the configuration calls it.
    pub name: String,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// The hosts that it is for, in lower case. They may begin with `*.`.
    pub hosts: Vec<String>,
    pub ips: Vec<IpAddr>,
    /// The last second of its time, since 1970.
    pub not_after: i64,
    pub pair: Arc<CertifiedKey>,
}

impl ServerCertificate {
    /// # Errors
    /// If the certificate is damaged, or the key is not its own.
    pub(crate) fn new(
        name: String,
        chain: CertificateFile,
        key: KeyFile,
    ) -> Result<Self, KeyPairError> {
        let own = chain.certificates.first().and_then(CertificateSubject::of);
        let subject = own.ok_or(KeyPairError::Certificate)?;
        let ips = subject.names.iter().filter_map(|it| match it {
            SubjectName::Ip(ip) => Some(*ip),
            _ => None,
        });
        Ok(ServerCertificate {
            name,
            cert_file: chain.path,
            key_file: key.path,
            ips: ips.collect(),
            hosts: subject.hosts().map(str::to_owned).collect(),
            not_after: subject.not_after,
            pair: Arc::new(certified_key(chain.certificates, key.key)?),
        })
    }

    /// The one that its files have now.
    ///
    /// # Errors
    /// If they cannot be read, or are no pair.
    pub(crate) fn read_again(&self) -> Result<Self, RenewalError> {
        let chain = CertificateFile::read(&self.cert_file)?;
        let key = KeyFile::read(&self.key_file)?;
        Ok(Self::new(self.name.clone(), chain, key)?)
    }
}

/// The key follows from the certificate.
impl PartialEq for ServerCertificate {
    fn eq(&self, other: &Self) -> bool {
        let paths = |it: &Self| (it.cert_file.clone(), it.key_file.clone());
        paths(self) == paths(other) && self.pair.cert == other.pair.cert
    }
}

impl Eq for ServerCertificate {}

/// Without the key.
impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerCertificate { cert_file, key_file, hosts, not_after, .. } = self;
        f.debug_struct("ServerCertificate")
            .field("cert_file", cert_file)
            .field("key_file", key_file)
            .field("hosts", hosts)
            .field("not_after", not_after)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// Whose certificates clients may show.
#[derive(Debug, Clone)]
pub struct ClientAuth {
    pub ca_file: PathBuf,
    pub authorities: Vec<CertificateDer<'static>>,
    /// Whether a client without a certificate is not served at all.
    pub required: bool,
    pub verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuth {
    /// # Errors
    /// If one of them cannot be an authority.
    pub(crate) fn new(file: CertificateFile, required: bool) -> Result<Self, RootsError> {
        let roots = Arc::new(roots(Some(&file.certificates))?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder.build().map_err(|it| RootsError::Unusable(it.to_string()))?;
        let CertificateFile { path: ca_file, certificates: authorities } = file;
        Ok(ClientAuth { ca_file, authorities, required, verifier })
    }

    /// The same by the authorities that its file has now.
    ///
    /// # Errors
    /// If they cannot be read or used.
    pub(crate) fn read_again(&self) -> Result<Self, RenewalError> {
        Ok(Self::new(CertificateFile::read(&self.ca_file)?, self.required)?)
    }
}

/// The verifier follows from the rest.
impl PartialEq for ClientAuth {
    fn eq(&self, other: &Self) -> bool {
        self.authorities == other.authorities
            && self.required == other.required
            && self.ca_file == other.ca_file
    }
}

impl Eq for ClientAuth {}

/// Where clients of plain listeners are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpsPort {
    /// To the first listener that has TLS.
    OfListener,
    Port(u16),
}
