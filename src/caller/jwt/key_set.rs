//! The keys of one moment, as they stand in a file, in the configuration or behind a URL.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::server::ParsedCertificate;
use serde::Deserialize;
use serde_json::Value;

use super::key::VerifyKey;
use crate::caller::clients::sha256;
use crate::config::regular_file;
use crate::config::settings::JwtAlgorithm;

/// A set that is larger was named by mistake.
pub(super) const LARGEST: usize = 1 << 20;
/// What a set has beyond these is left out.
const MOST_KEYS: usize = 64;

/// Never the same for two sets of keys.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("not a PEM public key or certificate")]
    NotPem,
    #[error("not a JWK set")]
    NotASet(#[source] serde_json::Error),
    #[error("no key that can be used with the algorithms that are accepted")]
    NoKey,
}

#[derive(Debug)]
pub(super) struct KeySet {
    pub(super) generation: u64,
    keys: Vec<VerifyKey>,
    /// Of the text that it was read from, to tell whether that has changed. The text itself may
    /// hold secrets.
    hash: Option<[u8; 32]>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

impl KeySet {
    pub(super) fn empty() -> Self {
        Self::new(Vec::new(), None)
    }

    pub(super) fn from_secret(secret: &[u8], accepted: &[JwtAlgorithm]) -> Result<Self, KeyError> {
        Self::usable(VerifyKey::from_secret(secret, accepted).into_iter().collect(), None)
    }

    /// Public keys and certificates; the names, dates and issuers of certificates mean nothing.
    pub(super) fn from_pem(pem: &[u8], accepted: &[JwtAlgorithm]) -> Result<Self, KeyError> {
        let mut found = Vec::new();
        for key in SubjectPublicKeyInfoDer::pem_slice_iter(pem) {
            found.push(key.map_err(|_| KeyError::NotPem)?);
        }
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| KeyError::NotPem)?;
            let certificate = ParsedCertificate::try_from(&certificate);
            found.push(certificate.map_err(|_| KeyError::NotPem)?.subject_public_key_info());
        }
        if found.is_empty() {
            return Err(KeyError::NotPem);
        }
        let keys =
            found.iter().filter_map(|der| VerifyKey::from_spki(der, accepted)).take(MOST_KEYS);
        Self::usable(keys.collect(), None)
    }

    /// RFC 7517 section 5: what cannot be used, or is for something else, is left out.
    pub(super) fn from_jwks(text: &[u8], accepted: &[JwtAlgorithm]) -> Result<Self, KeyError> {
        let set: Jwks = serde_json::from_slice(text).map_err(KeyError::NotASet)?;
        let keys = set.keys.into_iter().filter_map(|jwk| VerifyKey::from_jwk(jwk, accepted));
        Self::usable(keys.take(MOST_KEYS).collect(), Some(sha256(text)))
    }

    fn usable(keys: Vec<VerifyKey>, hash: Option<[u8; 32]>) -> Result<Self, KeyError> {
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(Self::new(keys, hash)) }
    }

    fn new(keys: Vec<VerifyKey>, hash: Option<[u8; 32]>) -> Self {
        KeySet { generation: GENERATIONS.fetch_add(1, Ordering::Relaxed), keys, hash }
    }

    /// The places of the keys by that name, and of those that have none. Without a name, of all.
    pub(super) fn named(&self, kid: Option<&str>) -> impl Iterator<Item = usize> {
        let fits = move |key: &VerifyKey| match (kid, &key.kid) {
            (Some(wanted), Some(name)) => wanted == name,
            _ => true,
        };
        (0..self.keys.len()).filter(move |index| fits(&self.keys[*index]))
    }

    pub(super) fn key(&self, index: usize) -> &VerifyKey {
        &self.keys[index]
    }

    pub(super) fn is_from(&self, text: &[u8]) -> bool {
        self.hash == Some(sha256(text))
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// Reads a file, unless it is far too large.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular_file::read(path, LARGEST as u64)
}
