//! Certificates and keys in PEM files, which are read at the start, by reloads, and when they change.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::regular_file;

/// What is larger was named by mistake.
const LARGEST: u64 = 1 << 20;

/// Certificates, in the order of their file. There is at least one.
#[derive(Debug)]
pub(crate) struct CertificateFile {
    pub(crate) path: PathBuf,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

/// A private key.
#[derive(Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) key: PrivateKeyDer<'static>,
}

#[derive(Debug, thiserror::Error)]
pub enum PemFileError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is no PEM certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} is no PEM private key", path.display())]
    NoKey {
        path: PathBuf,
        /// It is one that a passphrase is needed for.
        encrypted: bool,
    },
}

impl CertificateFile {
    /// # Errors
    /// If it cannot be read, or has something else in it.
    pub(crate) fn read(path: &Path) -> Result<Self, PemFileError> {
        let bytes = contents(path)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let path = path.to_owned();
        match found {
            Ok(certificates) if !certificates.is_empty() => {
                Ok(CertificateFile { path, certificates })
            }
            _ => Err(PemFileError::NoCertificate { path }),
        }
    }
}

impl KeyFile {
    /// # Errors
    /// As [`CertificateFile::read`].
    pub(crate) fn read(path: &Path) -> Result<Self, PemFileError> {
        let bytes = contents(path)?;
        let path = path.to_owned();
        match PrivateKeyDer::from_pem_slice(&bytes) {
            Ok(key) => Ok(KeyFile { path, key }),
            Err(_) => {
                let encrypted = memchr::memmem::find(&bytes, b"ENCRYPTED").is_some();
                Err(PemFileError::NoKey { path, encrypted })
            }
        }
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, PemFileError> {
    let read = regular_file::read(path, LARGEST);
    read.map_err(|source| PemFileError::Unreadable { path: path.to_owned(), source })
}
