//! `[upstreams.NAME.tls]`: certificates for servers that are spoken to over TLS.

use std::path::Path;

use rustls::pki_types::ServerName;

use super::certificate_dates::{version_1, warn_of_dates};
use super::pem_file;
use super::upstream_servers::Servers;
use crate::config::file::{Section, Value};
use crate::config::suggest::quote;
use crate::protocol::Scheme;
use crate::tls::{
    CertificateFile, ClientIdentity, KeyFile, KeyPairError, TlsClient, TlsClientError,
    TlsClientFiles, TlsClientSpec,
};

/// `None` if there is something wrong, `Some(None)` if the servers want no TLS.
pub(super) fn tls(
    upstream: &mut Section<'_>,
    folder: &Path,
    servers: Option<&Servers>,
    http2: bool,
) -> Option<Option<TlsClient>> {
    let mut section = upstream.section_like("tls", "tls = { ca = \"upstream-ca.pem\" }");
    let (ca, cert, key) = (section.get("ca"), section.get("cert"), section.get("key"));
    let name = section.get("server_name");
    let verify = section.get("verify");
    let verified = verify.as_ref().map_or(Some(true), Value::boolean);
    let servers = servers?;
    if servers.scheme == Scheme::Http {
        if section.is_present() {
            section.error(
                "goes with `https://` servers only",
                "write `https://` in `servers`, or leave it out",
            );
            return None;
        }
        return Some(None);
    }
    let authorities = ca.as_ref().map_or(Some(None), |it| {
        pem_file::certificates(folder, it, "/etc/weir/upstream-ca.pem").map(Some)
    });
    let identity = identity(folder, cert.as_ref(), key.as_ref());
    let server_name = name.as_ref().map_or(Some(None), |it| server_name(it).map(Some));
    let named = check_hosts(&section, servers, server_name.as_ref().is_none_or(Option::is_some));
    if let Some(value) = verify.filter(|_| verified == Some(false)) {
        value.warning(
            "is false: any server that answers is believed, and so is anyone in between",
            "name the authority of the servers in `ca` and remove it",
        );
        if let Some(ca) = &ca {
            ca.warning("has no effect: certificates are not verified", "remove `verify = false`");
        }
    }
    let (authorities, identity) = (authorities?, identity?);
    let files = TlsClientFiles {
        ca: authorities.as_ref().map(|it| it.path.clone()),
        identity: identity.as_ref().map(|(cert, key)| (cert.path.clone(), key.path.clone())),
    };
    let spec = TlsClientSpec {
        ca: authorities.map(|it| it.certificates),
        identity: identity
            .map(|(cert, key)| ClientIdentity { chain: cert.certificates, key: key.key }),
        server_name: server_name?,
        unverified: !verified?,
        http2,
    };
    let client = match TlsClient::new(spec, files) {
        Ok(client) => Some(client),
        Err(error) => {
            report(&error, [&ca, &cert, &key], &section);
            None
        }
    };
    named.then_some(client).flatten().map(Some)
}

fn identity(
    folder: &Path,
    cert: Option<&Value<'_>>,
    key: Option<&Value<'_>>,
) -> Option<Option<(CertificateFile, KeyFile)>> {
    let Some((cert, key)) = pem_file::both_or_neither(cert, key)? else { return Some(None) };
    let chain = pem_file::certificates(folder, cert, "/etc/weir/upstream.pem");
    if let Some(own) = chain.as_ref().and_then(|it| it.certificates.first()) {
        warn_of_dates(cert, own, "servers");
    }
    let key = pem_file::private_key(folder, key, "/etc/weir/upstream.key");
    Some(Some((chain?, key?)))
}

fn server_name(value: &Value<'_>) -> Option<ServerName<'static>> {
    let text = value.text("api.internal")?;
    let name = ServerName::try_from(text.to_ascii_lowercase()).ok();
    if name.is_none() {
        value.error(
            &format!("is neither a host name nor an address: {}", quote(text)),
            "write the name that the certificate has, such as `\"api.internal\"`",
        );
    }
    name
}

/// Whether each server has a name that a certificate can be for.
fn check_hosts(section: &Section<'_>, servers: &Servers, named: bool) -> bool {
    let unnamed = |host: &str| ServerName::try_from(host).is_err();
    match servers.servers.iter().map(|it| &it.origin).find(|it| unnamed(&it.host)) {
        Some(origin) if !named => {
            section.error(
                &format!("cannot verify {}: no certificate can be for it", quote(&origin.host)),
                "add `server_name`, the name that its certificate has",
            );
            false
        }
        _ => true,
    }
}

/// What only shows when all of it is put together.
fn report(error: &TlsClientError, files: [&Option<Value<'_>>; 3], section: &Section<'_>) {
    let [ca, cert, key] = files;
    if let (TlsClientError::Identity(KeyPairError::Version1), Some(cert)) = (error, cert) {
        let (message, help) = version_1(&quote(cert.as_str().unwrap_or_default()));
        return cert.error(&message, help);
    }
    let message = format!("cannot be used: {error}");
    let (value, help) = match error {
        TlsClientError::Identity(KeyPairError::Certificate) => {
            (cert, "name a file of PEM certificates")
        }
        TlsClientError::Identity(_) => (key, "name the key that the certificate was made for"),
        TlsClientError::Authorities(_) | TlsClientError::Versions(_) => {
            (ca, "name a file of the authorities to trust in `tls.ca`")
        }
    };
    match value {
        Some(value) => value.error(&message, help),
        None => section.error(&message, help),
    }
}
