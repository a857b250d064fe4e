//! Certificates of a test's own: an authority, a server at the loopback address, a client.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::Scratch;

/// PEM files: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`, and those that are
/// issued besides.
pub(crate) struct Certificates {
    scratch: Scratch,
    authority: Issuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let scratch = Scratch::new();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        scratch.file("ca.pem", &params.self_signed(&key).unwrap().pem());
        let certificates = Certificates { scratch, authority: Issuer::new(params, key) };
        certificates.issue("server", &["127.0.0.1", "localhost"]);
        certificates.issue("client", &["weir"]);
        certificates
    }

    /// Makes `NAME.pem` and `NAME.key`, for these hosts and addresses.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) {
        self.write(name, &self.made(name, hosts));
    }

    /// The same, and its time is over.
    pub(crate) fn issue_expired(&self, name: &str, hosts: &[&str]) {
        let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
        self.write(name, &self.made_with(name, hosts, expired));
    }

    fn write(&self, name: &str, pair: &IssuedPair) {
        self.scratch.file(&format!("{name}.pem"), &pair.certificate);
        self.scratch.file(&format!("{name}.key"), &pair.key);
    }

    /// Puts a pair of its own among those of another authority.
    pub(crate) fn lend(&self, name: &str, to: &Certificates, called: &str) {
        for end in ["pem", "key"] {
            let from = self.path(&format!("{name}.{end}"));
            std::fs::copy(from, to.path(&format!("{called}.{end}"))).unwrap();
        }
    }

    /// A pair as PEM, which is in no file.
    pub(crate) fn made(&self, name: &str, hosts: &[&str]) -> IssuedPair {
        self.made_with(name, hosts, |_| {})
    }

    fn made_with(
        &self,
        name: &str,
        hosts: &[&str],
        change: impl Fn(&mut CertificateParams),
    ) -> IssuedPair {
        let hosts: Vec<String> = hosts.iter().map(|&it| it.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(hosts).unwrap();
        // One that is named like its issuer counts as signed by itself.
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        IssuedPair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The pair of that name, as `tls` of a configuration names it.
    pub(crate) fn pair(&self, name: &str) -> String {
        let path = |end: &str| self.path(&format!("{name}.{end}")).display().to_string();
        format!("cert = {:?}, key = {:?}", path("pem"), path("key"))
    }
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct IssuedPair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}
