//! What callers prove who they are with: signed tokens and API keys.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::{Origin, Secret};

/// `[identity.jwt]`: which tokens are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    pub keys: JwtKeys,
    /// Never empty. A key is used with those that fit it, and with no others.
    pub algorithms: Vec<JwtAlgorithm>,
    /// One of these must have issued a token; `None`: anybody who has a key.
    pub issuer: Option<Vec<String>>,
    /// A token must be meant for one of these; `None`: for anybody.
    pub audience: Option<Vec<String>>,
    /// By how much the issuer's clock may differ.
    pub leeway: Duration,
    /// Whether a request without a token that verifies is answered with 401.
    pub required: bool,
}

/// Where the keys are that tokens are verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// Shared with the issuer, for HMAC.
    Secret(Secret),
    /// Public keys or certificates.
    Pem(Vec<u8>),
    /// A JWK set, read again when it changes.
    JwksFile(PathBuf),
    /// A JWK set, fetched again now and then.
    JwksUrl(Box<JwksUrl>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwksUrl {
    /// Whether it is `https`.
    pub tls: bool,
    pub origin: Origin,
    pub path: PathAndQuery,
    /// Authorities to trust, as PEM; `None`: the system's.
    pub ca: Option<Vec<u8>>,
    pub refresh: Duration,
}

/// As messages name it: without its query, which may hold a secret.
impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path.path())
    }
}

impl JwksUrl {
    /// Host and port as a `Host` header has them, without the scheme's own port.
    pub fn authority(&self) -> String {
        let Origin { host, port } = &self.origin;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == if self.tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
    }
}

/// As RFC 7518 section 3.1 and RFC 8037 section 3.1 name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JwtAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl JwtAlgorithm {
    /// All of them, by their names in a token's header.
    pub const NAMES: [(&'static str, JwtAlgorithm); 12] = [
        ("HS256", JwtAlgorithm::Hs256),
        ("HS384", JwtAlgorithm::Hs384),
        ("HS512", JwtAlgorithm::Hs512),
        ("RS256", JwtAlgorithm::Rs256),
        ("RS384", JwtAlgorithm::Rs384),
        ("RS512", JwtAlgorithm::Rs512),
        ("PS256", JwtAlgorithm::Ps256),
        ("PS384", JwtAlgorithm::Ps384),
        ("PS512", JwtAlgorithm::Ps512),
        ("ES256", JwtAlgorithm::Es256),
        ("ES384", JwtAlgorithm::Es384),
        ("EdDSA", JwtAlgorithm::EdDsa),
    ];
}

/// `[[clients]]`: somebody with an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub id: String,
    /// The SHA-256 of the key, which is known to the client alone.
    pub key_hash: [u8; 32],
    pub plan: Option<String>,
    pub tenant: Option<String>,
    /// In thousandths: 0 to 1000.
    pub trust: Option<u16>,
}
