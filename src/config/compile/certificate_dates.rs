//! Certificates that are read well and that nobody accepts: those whose time is not yet, or is over.

use chrono::DateTime;
use rustls::pki_types::CertificateDer;

use crate::clock::unix_second;
use crate::config::file::Value;
use crate::tls::certificate_use::CertificateUse;

const DAY: i64 = 24 * 60 * 60;
/// A certificate that has less time left is worth a warning.
pub(crate) const NEAR_EXPIRY: i64 = 14 * DAY;

/// Notes where a certificate is not valid now, or not for long; `peers` are those that it is shown to.
pub(super) fn warn_of_dates(value: &Value<'_>, certificate: &CertificateDer<'_>, peers: &str) {
    let Some(CertificateUse { not_before, not_after, .. }) = CertificateUse::of(certificate) else {
        return;
    };
    let now = unix_second().cast_signed();
    let end = date(not_after);
    if not_before > now {
        let message = format!("names a certificate that is not valid before {}", date(not_before));
        value.warning(
            &message,
            format!("use another, or set the clock: {peers} do not accept it yet"),
        );
    } else if not_after < now {
        let message = format!("names a certificate that has expired on {end}");
        value.warning(&message, format!("renew it: {peers} do not accept it any more"));
    } else if not_after - now < NEAR_EXPIRY {
        let message = format!("names a certificate that expires on {end}");
        value.warning(&message, format!("renew it before {peers} refuse it"));
    }
}

/// Notes where those of a file are no authorities, or not any more.
pub(super) fn warn_of_authorities(value: &Value<'_>, authorities: &[CertificateDer<'_>]) {
    let found: Vec<CertificateUse> = authorities.iter().filter_map(CertificateUse::of).collect();
    if !found.iter().any(|it| it.is_authority) {
        value.warning(
            "names no authority",
            "name the certificate that those of clients are signed with, not one of theirs",
        );
    }
    let now = unix_second().cast_signed();
    if let Some(expired) = found.iter().find(|it| it.not_after < now) {
        value.warning(
            &format!("names an authority that has expired on {}", date(expired.not_after)),
            "renew it, or take it out: what it signed is accepted as long as it stands there",
        );
    }
}

/// What to say of one that is too old a kind to be shown to anybody, and what to do.
pub(super) fn version_1(name: &str) -> (String, &'static str) {
    (
        format!("names a certificate of X.509 version 1: {name}"),
        "make one of version 3 with subject alternative names, such as by `openssl x509 -req -extfile \
         san.cnf …`, where `san.cnf` has a line such as `subjectAltName = DNS:api.example.com`",
    )
}

/// A day, as people write it.
pub(crate) fn date(unix: i64) -> String {
    let day = DateTime::from_timestamp(unix, 0);
    day.map_or_else(|| "no known day".to_owned(), |it| it.date_naive().to_string())
}
