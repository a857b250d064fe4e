//! Which certificate a client is shown: the one for the host that it asks for (SNI), or the first.

use std::sync::Arc;

use hashbrown::HashMap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::settings::ServerCertificate;

#[derive(Debug)]
pub(super) struct HostCertificates {
    /// By host, in lower case.
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows the `*.`, which stands for one label: RFC 9525 section 6.3.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    first: Option<Arc<CertifiedKey>>,
}

impl HostCertificates {
    /// Where two are for one host, the first of them is shown.
    pub(super) fn new(certificates: &[ServerCertificate]) -> Self {
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        for certificate in certificates {
            for host in &certificate.hosts {
                let (table, name) = match host.strip_prefix("*.") {
                    Some(rest) => (&mut wildcard, rest),
                    None => (&mut exact, host.as_str()),
                };
                table.entry_ref(name).or_insert_with(|| certificate.pair.clone());
            }
        }
        let first = certificates.first().map(|it| it.pair.clone());
        HostCertificates { exact, wildcard, first }
    }

    fn find(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let below = || self.wildcard.get(host.split_once('.')?.1);
        self.exact.get(host).or_else(below)
    }
}

impl ResolvesServerCert for HostCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // In lower case: rustls sees to that.
        let named = hello.server_name().and_then(|host| self.find(host));
        named.or(self.first.as_ref()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certified_key;

    fn certificate(hosts: &[&str]) -> ServerCertificate {
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        let chain = vec![made.cert.der().clone()];
        ServerCertificate {
            name: String::new(),
            cert_file: "".into(),
            key_file: "".into(),
            hosts: hosts.iter().map(|&it| it.to_owned()).collect(),
            ips: Vec::new(),
            not_after: 0,
            pair: Arc::new(certified_key(chain, made.signing_key.into()).unwrap()),
        }
    }

    #[test]
    fn a_host_is_found_exactly_or_by_one_label_for_a_wildcard() {
        let all = [
            certificate(&["a.example", "*.a.example"]),
            certificate(&["b.example", "x.a.example", "a.example"]),
        ];
        let table = HostCertificates::new(&all);
        let found = |host: &str| {
            let found = table.find(host)?;
            all.iter().position(|it| Arc::ptr_eq(&it.pair, found))
        };
        for (host, index) in [
            ("a.example", Some(0)),
            ("a.example.", Some(0)),
            ("www.a.example", Some(0)),
            ("x.a.example", Some(1)),
            ("b.example", Some(1)),
            ("deep.www.a.example", None),
            ("www.b.example", None),
            ("example", None),
            ("", None),
        ] {
            assert_eq!(found(host), index, "{host}");
        }
    }
}
