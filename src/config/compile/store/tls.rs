//! `tls = { ca, cert, key }`: files for `rediss://`.

use super::secret;
use crate::config::compile::pem_file;
use crate::config::file::{Section, Value};
use crate::config::settings::RedisTls;

/// As written, if it is.
pub(super) struct TlsSection<'a> {
    section: Section<'a>,
    ca: Option<Value<'a>>,
    cert: Option<Value<'a>>,
    key: Option<Value<'a>>,
}

impl<'a> TlsSection<'a> {
    pub(super) fn of(mut section: Section<'a>) -> Self {
        let (ca, cert, key) = (section.get("ca"), section.get("cert"), section.get("key"));
        TlsSection { section, ca, cert, key }
    }

    pub(super) fn section(&self) -> &Section<'a> {
        &self.section
    }

    /// `None` if there is something wrong, `Some(None)` if the URL wants no TLS.
    pub(super) fn read(&self, wanted: bool) -> Option<Option<RedisTls>> {
        if self.section.is_present() && !wanted {
            self.section.error(
                "goes with a `rediss://` URL only",
                "write `rediss://` in `url`, or leave it out",
            );
            return None;
        }
        let ca = self.ca.as_ref().map_or(Some(None), |it| certificates(it).map(Some));
        let client = match pem_file::both_or_neither(self.cert.as_ref(), self.key.as_ref()) {
            Some(Some((cert, key))) => certificates(cert).zip(secret::key(key)).map(Some),
            neither => neither.map(|_| None),
        };
        let (ca, client) = (ca?, client?);
        Some(wanted.then_some(RedisTls { ca, client }))
    }
}

fn certificates(value: &Value<'_>) -> Option<Vec<u8>> {
    secret::certificates(value, "/etc/weir/redis-ca.pem")
}
