//! The authorities that servers are verified by.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

/// Why nobody could be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootsError {
    #[error("it has a certificate that cannot be an authority: {0}")]
    Unusable(String),
    #[error("the system has no certificates to trust")]
    NoSystemRoots,
}

/// These, or the system's.
///
/// # Errors
/// If one of these cannot be used, or the system has none.
pub(crate) fn roots(
    authorities: Option<&[CertificateDer<'static>]>,
) -> Result<RootCertStore, RootsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(authorities) => {
            for certificate in authorities {
                let added = roots.add(certificate.clone());
                added.map_err(|error| RootsError::Unusable(error.to_string()))?;
            }
        }
        None => {
            // Some systems have a few that nobody can parse.
            let system = rustls_native_certs::load_native_certs();
            let (_, _) = roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                return Err(RootsError::NoSystemRoots);
            }
        }
    }
    Ok(roots)
}
