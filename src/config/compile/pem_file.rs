//! Certificates and keys in PEM files, as paths seen from the folder of the configuration.
//!
//! Listeners and upstreams name them; what is wrong with one is noted where it is named.

use std::path::Path;

use crate::config::file::Value;
use crate::config::regular_file;
use crate::config::suggest::{quote, shown};
use crate::tls::{CertificateFile, KeyFile, PemFileError};

/// A certificate and its key, where both or neither have to be named. `None`: one stands alone, and
/// that is reported.
pub(super) fn both_or_neither<'v, 'a>(
    cert: Option<&'v Value<'a>>,
    key: Option<&'v Value<'a>>,
) -> Option<Option<(&'v Value<'a>, &'v Value<'a>)>> {
    match (cert, key) {
        (None, None) => Some(None),
        (Some(cert), Some(key)) => Some(Some((cert, key))),
        (Some(alone), None) => {
            alone.error("stands without its key", "add `key`, the file of its private key");
            None
        }
        (None, Some(alone)) => {
            alone.error("stands without its certificate", "add `cert`, the file of it");
            None
        }
    }
}

/// A file of one certificate or several; `example` is a path that would do.
pub(super) fn certificates(
    folder: &Path,
    value: &Value<'_>,
    example: &str,
) -> Option<CertificateFile> {
    let path = value.path(example)?;
    let read = CertificateFile::read(&folder.join(path));
    read.inspect_err(|error| report(value, path, error, example)).ok()
}

/// A file of one private key; `example` is a path that would do.
pub(super) fn private_key(folder: &Path, value: &Value<'_>, example: &str) -> Option<KeyFile> {
    let path = value.path(example)?;
    let read = KeyFile::read(&folder.join(path));
    read.inspect_err(|error| report(value, path, error, example)).ok()
}

fn report(value: &Value<'_>, path: &str, error: &PemFileError, example: &str) {
    let looked_up = |path: &Path| quote(&regular_file::looked_up(path).to_string_lossy());
    let named = quote(path);
    match error {
        PemFileError::Unreadable { source, path } => value.error(
            &format!("names a file that cannot be read: {}: {source}", looked_up(path)),
            format!("see that it is there and may be read, such as `\"{}\"`", shown(example)),
        ),
        PemFileError::NoCertificate { .. } => value.error(
            &format!("names a file that is no PEM certificate: {named}"),
            "name one that has `-----BEGIN CERTIFICATE-----` in it",
        ),
        PemFileError::NoKey { encrypted, .. } => value.error(
            &format!("names a file that is no PEM private key: {named}"),
            match encrypted {
                true => {
                    "keys with a passphrase are not read; write it without one, with `openssl pkey`"
                }
                false => "name one that has `-----BEGIN PRIVATE KEY-----` in it",
            },
        ),
    }
}
