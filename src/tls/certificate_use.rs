//! What a certificate may be used for, and when: what the other side looks at before its names.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

/// Whether it is of X.509 version 1, which has no room for the names that clients look at.
pub(super) fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    let parsed = X509Certificate::from_der(certificate);
    parsed.is_ok_and(|(_, it)| it.version() == X509Version::V1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CertificateUse {
    /// The first second of its time, since 1970.
    pub not_before: i64,
    /// The last.
    pub not_after: i64,
    /// Whether it may sign others, or has signed itself and so stands for itself.
    pub is_authority: bool,
}

impl CertificateUse {
    /// `None` if the certificate cannot be read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let validity = parsed.validity();
        Some(CertificateUse {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            is_authority: parsed.is_ca() || parsed.issuer().as_raw() == parsed.subject().as_raw(),
        })
    }
}
