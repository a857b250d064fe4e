//! Passwords, keys and certificates, which stand in the environment or in files of their own.

use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::env_variable::EnvVariable;
use crate::config::file::Value;
use crate::config::regular_file;
use crate::config::settings::Secret;
use crate::config::suggest::{quote, shown};

/// What is larger was named by mistake.
pub(super) const LARGEST: u64 = 1 << 20;

/// What an environment variable holds, which must not be empty.
pub(super) fn variable(value: &Value<'_>, example: &str) -> Option<Secret> {
    EnvVariable::read_nonempty(value, example).map(|it| Secret(it.text))
}

/// The same where an empty one means that there is no secret. `None` if there is something wrong.
pub(super) fn optional(value: &Value<'_>, example: &str) -> Option<Option<Secret>> {
    let found = EnvVariable::read(value, example)?;
    Some(Some(Secret(found.text)).filter(|secret| !secret.0.is_empty()))
}

/// What a file holds, without the line break at its end. `what` is how messages call it.
pub(super) fn file(value: &Value<'_>, what: &str, example: &str) -> Option<Secret> {
    let (path, bytes) = contents(value, example, LARGEST)?;
    let text = String::from_utf8(bytes).ok();
    let secret = text.as_deref().map(|it| it.strip_suffix('\n').unwrap_or(it));
    let secret = secret.map(|it| it.strip_suffix('\r').unwrap_or(it));
    match secret.filter(|it| !it.is_empty()) {
        Some(secret) => Some(Secret(secret.to_owned())),
        None => {
            value.error(
                &format!("names a file without a {what}: {}", quote(path)),
                format!("write the {what} into it, as UTF-8 and on one line"),
            );
            None
        }
    }
}

/// A file of one certificate or several.
pub(super) fn certificates(value: &Value<'_>, example: &str) -> Option<Vec<u8>> {
    let (path, bytes) = contents(value, example, LARGEST)?;
    let mut found = CertificateDer::pem_slice_iter(&bytes).peekable();
    let good = found.peek().is_some() && found.all(|it| it.is_ok());
    if !good {
        value.error(
            &format!("names a file that is no PEM certificate: {}", quote(path)),
            "name one that has `-----BEGIN CERTIFICATE-----` in it",
        );
    }
    good.then_some(bytes)
}

/// A file of a private key.
pub(super) fn key(value: &Value<'_>) -> Option<Secret> {
    let (path, bytes) = contents(value, "/etc/weir/redis.key", LARGEST)?;
    let good = PrivateKeyDer::from_pem_slice(&bytes).is_ok();
    let text = String::from_utf8(bytes).ok().filter(|_| good);
    if text.is_none() {
        value.error(
            &format!("names a file that is no PEM private key: {}", quote(path)),
            "name one that has `-----BEGIN PRIVATE KEY-----` in it",
        );
    }
    text.map(Secret)
}

/// The path that is named, and what is in that file: at most `most` bytes.
pub(super) fn contents<'a>(
    value: &Value<'a>,
    example: &str,
    most: u64,
) -> Option<(&'a str, Vec<u8>)> {
    contents_in(Path::new(""), value, example, most)
}

/// The same for a path that is seen from a folder.
pub(super) fn contents_in<'a>(
    folder: &Path,
    value: &Value<'a>,
    example: &str,
    most: u64,
) -> Option<(&'a str, Vec<u8>)> {
    let path = value.path(example)?;
    let file = folder.join(path);
    match regular_file::read(&file, most) {
        Ok(bytes) => Some((path, bytes)),
        Err(error) => {
            let looked_up = regular_file::looked_up(&file);
            value.error(
                &format!(
                    "names a file that cannot be read: {}: {error}",
                    quote(&looked_up.to_string_lossy())
                ),
                format!("see that it is there and may be read, such as `\"{}\"`", shown(example)),
            );
            None
        }
    }
}
