//! Certificates of a test's own: an authority, a server at the loopback address, a client.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::Scratch;

/// PEM files: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
#[derive(Debug)]
pub(crate) struct Certificates(Scratch);

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let scratch = Scratch::new();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        scratch.file("ca.pem", &params.self_signed(&key).unwrap().pem());
        let authority = Issuer::new(params, key);
        let subjects = [("server", vec!["127.0.0.1", "localhost"]), ("client", vec!["weir"])];
        for (name, of) in subjects {
            let of: Vec<String> = of.into_iter().map(str::to_owned).collect();
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(of).unwrap();
            // One that is named like its issuer counts as signed by itself.
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &authority).unwrap();
            scratch.file(&format!("{name}.pem"), &certificate.pem());
            scratch.file(&format!("{name}.key"), &key.serialize_pem());
        }
        Certificates(scratch)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
