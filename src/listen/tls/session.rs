//! The configuration of rustls for a listener, and the tickets by which its clients resume sessions.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::ProducesTickets;

use super::resolver::HostCertificates;
use crate::config::settings::{ClientAuth, ServerTls, TlsVersion};
use crate::tls::provider;

const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
const TLS12: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

/// The protocols that are offered above TLS (ALPN), the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The keys of the tickets of one listener. They change every six hours by themselves and outlive
/// reloads, so that clients of all workers resume their sessions.
#[derive(Debug)]
pub(crate) struct SessionTickets {
    producer: Option<Arc<dyn ProducesTickets>>,
    client_auth: Option<ClientAuth>,
}

impl SessionTickets {
    /// Those that there are, unless other clients may be served now: whoever resumes a session is not
    /// asked for a certificate again.
    pub(crate) fn kept_or_new(kept: Option<Self>, tls: &ServerTls) -> Self {
        if let Some(kept) = kept.filter(|it| it.client_auth == tls.client_auth) {
            return kept;
        }
        let producer = rustls::crypto::aws_lc_rs::Ticketer::new();
        let producer = producer.inspect_err(|error| {
            tracing::warn!(%error, "clients cannot resume TLS sessions");
        });
        SessionTickets { producer: producer.ok(), client_auth: tls.client_auth.clone() }
    }
}

pub(crate) fn server_config(
    tls: &ServerTls,
    tickets: &SessionTickets,
    http2: bool,
) -> ServerConfig {
    let versions = match tls.min_version {
        TlsVersion::Tls12 => TLS12,
        TlsVersion::Tls13 => TLS13,
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("the provider has cipher suites for both versions");
    let builder = match &tls.client_auth {
        Some(auth) => builder.with_client_cert_verifier(auth.verifier.clone()),
        None => builder.with_no_client_auth(),
    };
    let resolver = Arc::new(HostCertificates::new(&tls.certificates));
    let mut config = builder.with_cert_resolver(resolver);
    let protocols = if http2 { &ALPN[..] } else { &ALPN[1..] };
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    if let Some(producer) = &tickets.producer {
        config.ticketer = producer.clone();
    }
    config
}
