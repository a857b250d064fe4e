//! What TLS is on both sides, towards clients and towards upstreams: one crypto provider, pairs of a
//! certificate and its key, and what a certificate says of its holder.

pub(crate) mod certificate_use;
mod client;
pub(crate) mod distinguished_name;
mod no_verification;
mod pem_file;
mod roots;
pub(crate) mod subject;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

pub(crate) use client::{ClientIdentity, TlsClient, TlsClientError, TlsClientFiles, TlsClientSpec};
pub(crate) use pem_file::{CertificateFile, KeyFile, PemFileError};
pub(crate) use roots::{RootsError, roots};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));

/// The only one there is: two in one process would make rustls panic where it has to guess.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

/// Why a certificate and a key are no pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairError {
    #[error("the key does not belong to the certificate")]
    Mismatch,
    #[error("the key is of a kind that is not supported")]
    Key,
    #[error("the certificate is damaged")]
    Certificate,
    #[error("the certificate is of X.509 version 1")]
    Version1,
}

/// Why what a file has now cannot take the place of what it had.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    #[error(transparent)]
    File(#[from] PemFileError),
    #[error(transparent)]
    Pair(#[from] KeyPairError),
    #[error(transparent)]
    Authorities(#[from] RootsError),
    #[error(transparent)]
    Client(#[from] TlsClientError),
}

/// A chain, whose first certificate is the holder's own, with its key.
///
/// # Errors
/// If the two do not belong together, or cannot be used.
pub(crate) fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, KeyPairError> {
    let is_version_1 = chain.first().is_some_and(certificate_use::is_version_1);
    CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| match error {
        Error::InvalidCertificate(_) if is_version_1 => KeyPairError::Version1,
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => KeyPairError::Mismatch,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => KeyPairError::Certificate,
        _ => KeyPairError::Key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.der().clone(), made.signing_key.into())
    }

    #[test]
    fn only_a_certificate_with_its_own_key_is_a_pair() {
        let (one, other) = (made(), made());
        let fault = |cert: &CertificateDer<'static>, key: &PrivateKeyDer<'static>| {
            certified_key(vec![cert.clone()], key.clone_key()).err()
        };
        assert_eq!(fault(&one.0, &one.1), None);
        assert_eq!(fault(&one.0, &other.1), Some(KeyPairError::Mismatch));
        assert_eq!(fault(&CertificateDer::from(vec![1]), &one.1), Some(KeyPairError::Certificate));
        let bad = PrivateKeyDer::Pkcs8(vec![1].into());
        assert_eq!(fault(&one.0, &bad), Some(KeyPairError::Key));
    }
}
