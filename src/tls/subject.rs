//! What a certificate says of its holder: the subject, its other names, and until when.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::distinguished_name::{self, write_hex};

/// The holder of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateSubject {
    /// As RFC 4514 writes it. Empty if it has none.
    pub subject: String,
    /// In the order of the certificate.
    pub names: Vec<SubjectName>,
    /// The last second of its time, since 1970.
    pub not_after: i64,
}

/// One of the subject's alternative names, RFC 5280 section 4.2.1.6.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SubjectName {
    /// In lower case.
    Dns(String),
    Ip(IpAddr),
    Email(String),
    Uri(String),
    /// Any other, with its kind.
    Other(String),
}

impl CertificateSubject {
    /// `None` if the certificate cannot be read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()?;
        let names = names.map(|it| it.value.general_names.iter().map(SubjectName::of).collect());
        Some(CertificateSubject {
            subject: distinguished_name::text(parsed.subject()),
            names: names.unwrap_or_default(),
            not_after: parsed.validity().not_after.timestamp(),
        })
    }

    /// The names of hosts, which may begin with `*.`.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| match name {
            SubjectName::Dns(host) => Some(host.as_str()),
            _ => None,
        })
    }

    /// All names in one text: each with its kind, sorted, with commas between them. No two sets of
    /// names have the same text.
    pub(crate) fn names_text(&self) -> String {
        let mut names: Vec<&SubjectName> = self.names.iter().collect();
        names.sort();
        names.dedup();
        let names: Vec<String> = names.into_iter().map(SubjectName::text).collect();
        names.join(",")
    }
}

impl SubjectName {
    fn of(name: &GeneralName<'_>) -> Self {
        let encoded = |kind: String, bytes: &[u8]| {
            let mut text = kind;
            write_hex(bytes, &mut text);
            SubjectName::Other(text)
        };
        match name {
            GeneralName::DNSName(host) => SubjectName::Dns(host.to_ascii_lowercase()),
            GeneralName::RFC822Name(address) => SubjectName::Email((*address).to_owned()),
            GeneralName::URI(uri) => SubjectName::Uri((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => match ip(bytes) {
                Some(ip) => SubjectName::Ip(ip),
                None => encoded("IP:".to_owned(), bytes),
            },
            GeneralName::DirectoryName(name) => {
                SubjectName::Other(format!("dirName:{}", escaped(&distinguished_name::text(name))))
            }
            GeneralName::RegisteredID(id) => {
                SubjectName::Other(format!("RID:{}", id.to_id_string()))
            }
            GeneralName::OtherName(id, bytes) => {
                encoded(format!("otherName:{}=", id.to_id_string()), bytes)
            }
            GeneralName::X400Address(any) => encoded("x400:".to_owned(), any.as_bytes()),
            GeneralName::EDIPartyName(any) => encoded("ediParty:".to_owned(), any.as_bytes()),
            GeneralName::Invalid(tag, bytes) => encoded(format!("invalid:{}=", tag.0), bytes),
        }
    }

    fn text(&self) -> String {
        match self {
            SubjectName::Dns(host) => format!("DNS:{}", escaped(host)),
            SubjectName::Ip(ip) => format!("IP:{ip}"),
            SubjectName::Email(address) => format!("email:{}", escaped(address)),
            SubjectName::Uri(uri) => format!("URI:{}", escaped(uri)),
            SubjectName::Other(text) => text.clone(),
        }
    }
}

/// A name in which no comma can be taken for the one before the next.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn subject(params: CertificateParams) -> CertificateSubject {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        CertificateSubject::of(certificate.der()).unwrap()
    }

    #[test]
    fn a_subject_is_written_last_part_first() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
        params.distinguished_name.push(DnType::CommonName, "billing");
        let unknown = DnType::CustomDnType(vec![1, 2, 3]);
        params.distinguished_name.push(unknown, "x");
        assert_eq!(subject(params).subject, "1.2.3=#0c0178,CN=billing,O=Example\\, Inc.,C=DE");
    }

    #[test]
    fn names_have_their_kinds_and_an_order_of_their_own() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![
            SanType::URI("spiffe://example/a,DNS:b".try_into().unwrap()),
            SanType::DnsName("*.Example.com".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
            SanType::Rfc822Name("a@example.com".try_into().unwrap()),
        ];
        let found = subject(params);
        assert_eq!(
            found.names_text(),
            "DNS:*.example.com,IP:10.0.0.1,email:a@example.com,URI:spiffe://example/a\\,DNS:b"
        );
        assert_eq!(found.hosts().collect::<Vec<_>>(), ["*.example.com"]);
    }

    #[test]
    fn one_without_names_has_none() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let found = subject(params);
        assert_eq!((found.subject.as_str(), found.names_text().as_str()), ("", ""));
        assert!(CertificateSubject::of(&CertificateDer::from(vec![0x30, 0])).is_none());
    }
}
