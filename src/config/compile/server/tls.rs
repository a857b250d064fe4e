//! `tls = { cert, key }` of a listener, or a list of these, of which a client gets the one that is for
//! the host it asks for.
//!
//! What holds for all of them (`min_version`, `client_ca`, `client_auth`) stands with the first.

use std::path::Path;
use std::sync::Arc;

use crate::config::compile::certificate_dates::{version_1, warn_of_authorities, warn_of_dates};
use crate::config::compile::pem_file;
use crate::config::file::{Section, Value};
use crate::config::settings::{ClientAuth, ServerCertificate, ServerTls, TlsVersion};
use crate::config::suggest::quote;
use crate::tls::KeyPairError;

const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];

/// What a table says of TLS.
#[derive(Debug, Clone)]
pub(super) enum WrittenTls {
    Absent,
    /// `false`.
    Plain,
    /// Something that is wrong, which has been noted.
    Faulty,
    Tls(Arc<ServerTls>),
}

/// The keys of one table, all asked for whether it is there or not.
struct TlsTable<'a> {
    section: Section<'a>,
    cert: Option<Value<'a>>,
    key: Option<Value<'a>>,
    min_version: Option<Value<'a>>,
    client_ca: Option<Value<'a>>,
    client_auth: Option<Value<'a>>,
}

/// What the table above says under `tls`.
pub(super) fn tls(above: &mut Section<'_>, folder: &Path) -> WrittenTls {
    let (value, section) = above.value_or_section("tls");
    let single = TlsTable::of(section);
    let Some(value) = value else { return WrittenTls::Absent };
    let tables = if value.is_list() {
        let entries = value.one_or_more();
        if entries.is_empty() {
            value.error("is empty", "write `{ cert = \"cert.pem\", key = \"key.pem\" }`");
        }
        entries.iter().map(|it| TlsTable::of(single.section.another(it))).collect()
    } else if value.as_bool() == Some(false) {
        return WrittenTls::Plain;
    } else if value.as_bool().is_some() {
        let help = "write `{ cert = \"cert.pem\", key = \"key.pem\" }`";
        value.error("does not say which certificate to show", help);
        return WrittenTls::Faulty;
    } else {
        value.table();
        vec![single]
    };
    server_tls(tables, folder).map_or(WrittenTls::Faulty, |it| WrittenTls::Tls(Arc::new(it)))
}

fn server_tls(mut tables: Vec<TlsTable<'_>>, folder: &Path) -> Option<ServerTls> {
    for table in tables.iter().skip(1) {
        let of_all = [&table.min_version, &table.client_ca, &table.client_auth];
        for value in of_all.into_iter().flatten() {
            value.error("holds for all certificates", "write it with the first of them");
        }
    }
    let count = tables.len();
    let certificates: Vec<_> =
        tables.iter_mut().filter_map(|table| table.certificate(folder)).collect();
    for (it, table) in certificates.iter().zip(&tables).skip(1) {
        if let Some(cert) = table.cert.as_ref().filter(|_| it.hosts.is_empty()) {
            cert.warning(
                "names no host, so no client is ever shown it",
                "put it first, or use one with subject alternative names",
            );
        }
    }
    if certificates.len() == count {
        warn_of_shared_hosts(&certificates, &tables);
    }
    let first = tables.first()?;
    let nameless = |it: &&ServerCertificate| it.hosts.is_empty() && it.ips.is_empty();
    if let (Some(cert), Some(_)) = (&first.cert, certificates.first().filter(nameless)) {
        cert.warning(
            "names no host and no address",
            "use one with subject alternative names: clients look at nothing else",
        );
    }
    let min_version = first.min_version.as_ref();
    let min_version = min_version.map_or(Some(TlsVersion::Tls12), |it| it.choice(&VERSIONS));
    let client_auth = first.client_auth(folder);
    // What is wrong has been noted, and a part would be something else than what was asked for.
    let certificates = Some(certificates).filter(|it| it.len() == count);
    Some(ServerTls {
        certificates: certificates?,
        min_version: min_version?,
        client_auth: client_auth?,
    })
}

/// Notes which certificates are for a host that one before them is for.
fn warn_of_shared_hosts(certificates: &[ServerCertificate], tables: &[TlsTable<'_>]) {
    for (at, (later, table)) in certificates.iter().zip(tables).enumerate() {
        let shown = |host: &&String| certificates[..at].iter().find(|it| it.hosts.contains(host));
        let shared = later.hosts.iter().find_map(|host| Some((host, shown(&host)?)));
        if let (Some((host, first)), Some(cert)) = (shared, &table.cert) {
            cert.warning(
                &format!(
                    "is never shown for {}: {} before it is for that host, too",
                    quote(host),
                    quote(&first.name)
                ),
                "remove one of the two, or put the one first that clients are to see",
            );
        }
    }
}

impl<'a> TlsTable<'a> {
    fn of(mut section: Section<'a>) -> Self {
        TlsTable {
            cert: section.get("cert"),
            key: section.get("key"),
            min_version: section.get("min_version"),
            client_ca: section.get("client_ca"),
            client_auth: section.get("client_auth"),
            section,
        }
    }

    fn certificate(&mut self, folder: &Path) -> Option<ServerCertificate> {
        for (key, value) in [("cert", &self.cert), ("key", &self.key)] {
            if value.is_none() && self.section.is_present() {
                self.section.report_missing(key, &format!("{key} = \"{key}.pem\""));
            }
        }
        let chain = self.cert.as_ref().map(|it| pem_file::certificates(folder, it, "cert.pem"));
        let key = self.key.as_ref().map(|it| pem_file::private_key(folder, it, "key.pem"));
        let (chain, key) = (chain??, key??);
        let (cert, written) = (self.cert.as_ref()?, self.key.as_ref()?);
        warn_of_dates(cert, &chain.certificates[0], "clients");
        let name = cert.as_str().unwrap_or_default().to_owned();
        let damaged = format!("names a damaged certificate: {}", quote(&name));
        match ServerCertificate::new(name, chain, key) {
            Ok(certificate) => return Some(certificate),
            Err(KeyPairError::Certificate) => cert.error(&damaged, "make it anew"),
            Err(KeyPairError::Version1) => {
                let (message, help) = version_1(&quote(cert.as_str().unwrap_or_default()));
                cert.error(&message, help);
            }
            Err(error) => {
                let help = match error {
                    KeyPairError::Mismatch => {
                        "name the key that the first certificate of `cert` was made with"
                    }
                    _ => {
                        "use a key of RSA with 2048 bits or more, ECDSA (P-256, P-384, P-521) or \
                          Ed25519"
                    }
                };
                written.error(&format!("does not fit `cert`: {error}"), help);
            }
        }
        None
    }

    /// `None` if there is something wrong, `Some(None)` if clients are asked for nothing.
    fn client_auth(&self, folder: &Path) -> Option<Option<ClientAuth>> {
        let required = match &self.client_auth {
            Some(value) => value.choice(&[("required", true), ("optional", false)]),
            None => Some(true),
        };
        let Some(value) = &self.client_ca else {
            if let Some(alone) = &self.client_auth {
                let help = "add `client_ca`, the file of the authority, or leave it out";
                alone.error("does not say whose certificates count", help);
                return None;
            }
            return Some(None);
        };
        let file = pem_file::certificates(folder, value, "clients-ca.pem")?;
        warn_of_authorities(value, &file.certificates);
        let path = quote(&file.path.to_string_lossy());
        let client_auth = ClientAuth::new(file, required?);
        if client_auth.is_err() {
            value.error(
                &format!("names a certificate that is of no use: {path}"),
                "name the certificate of the authority that signs those of clients",
            );
        }
        client_auth.ok().map(Some)
    }
}
