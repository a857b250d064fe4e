//! Certificates whose files have changed, read again for the listeners and upstreams that are served.
//!
//! No configuration is loaded for that, and each certificate stands for itself: what is wrong with
//! another one, or with the configuration file, does not let a certificate run out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use crate::config::certificate_dates::date;
use crate::config::settings::{Settings, Upstream};
use crate::tls::RenewalError;
use crate::tls::subject::CertificateSubject;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// The files that have been read, whether they have something new in them or not.
    pub(super) read: Vec<PathBuf>,
    /// When those that are new end, in seconds since 1970, by their file: listeners and upstreams
    /// may share it.
    renewed: BTreeMap<PathBuf, i64>,
    failed: BTreeMap<PathBuf, RenewalError>,
}

impl Renewal {
    /// Puts what the changed files have now into the settings.
    pub(super) fn of(settings: &mut Settings, changed: &[PathBuf]) -> Self {
        let mut renewal = Renewal::default();
        let has_changed = |path: &Path| changed.iter().any(|it| it == path);
        for tls in settings.server.listen.iter_mut().filter_map(|it| it.tls.as_mut()) {
            if !tls.files().any(|it| has_changed(it)) {
                continue;
            }
            let tls = Arc::make_mut(tls);
            for certificate in &mut tls.certificates {
                let files = [certificate.cert_file.clone(), certificate.key_file.clone()];
                if files.iter().any(|it| has_changed(it)) {
                    let read = certificate.read_again();
                    renewal.take(&files, certificate, read, |it| it.not_after);
                }
            }
            if let Some(clients) = tls.client_auth.as_mut().filter(|it| has_changed(&it.ca_file)) {
                let (file, read) = (clients.ca_file.clone(), clients.read_again());
                renewal.take(&[file], clients, read, |it| earliest_end(&it.authorities));
            }
        }
        for upstream in &mut settings.upstreams {
            renewal.upstream(upstream, &has_changed);
        }
        renewal
    }

    fn upstream(&mut self, upstream: &mut Upstream, has_changed: &dyn Fn(&Path) -> bool) {
        let Some(client) = &mut upstream.tls else { return };
        let files = client.files().clone();
        if let Some(ca) = files.ca.filter(|it| has_changed(it)) {
            let read = client.read_authorities_again();
            self.take(&[ca], client, read, |it| earliest_end(it.authorities()));
        }
        if let Some((cert, key)) =
            files.identity.filter(|(cert, key)| has_changed(cert) || has_changed(key))
        {
            let read = client.read_identity_again();
            self.take(&[cert, key], client, read, |it| {
                earliest_end(it.chain().get(..1).unwrap_or_default())
            });
        }
    }

    /// Takes what was read from these files, of which the first has the certificate.
    fn take<T: PartialEq>(
        &mut self,
        files: &[PathBuf],
        served: &mut T,
        read: Result<T, RenewalError>,
        end: impl Fn(&T) -> i64,
    ) {
        match read {
            Ok(read) => {
                self.read.extend_from_slice(files);
                if read != *served {
                    self.renewed.insert(files[0].clone(), end(&read));
                    *served = read;
                }
            }
            Err(error) => _ = self.failed.insert(files[0].clone(), error),
        }
    }

    /// Whether the settings are others than before.
    pub(super) fn has_changed_settings(&self) -> bool {
        !self.renewed.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    pub(super) fn log(&self) {
        for (path, end) in &self.renewed {
            tracing::info!("certificate renewed: {}, which ends on {}", path.display(), date(*end));
        }
        for (path, why) in &self.failed {
            tracing::error!(
                "certificate NOT renewed: {}: {why}; the one before serves on",
                path.display()
            );
        }
    }
}

/// When the first of them to end does.
fn earliest_end(certificates: &[CertificateDer<'_>]) -> i64 {
    let ends = certificates.iter().filter_map(CertificateSubject::of).map(|it| it.not_after);
    ends.min().unwrap_or_default()
}
