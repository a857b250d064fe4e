//! What connections ask before their first request, and what they tell that never becomes one.

use std::net::{IpAddr, SocketAddr};

use super::Gateway;
use crate::caller::Peer;
use crate::clock;
use crate::listen::proxy_protocol::HeaderError;
use crate::respond::Fault;
use crate::telemetry::RequestMeter;

impl Gateway {
    /// Measures a request that could not be parsed, and so never came here.
    pub fn note_unparsed(&self, peer: &Peer, fault: &Fault) {
        let config = self.config.borrow().clone();
        let recorder = config.compiled.recorder.as_ref();
        let record =
            recorder.and_then(|it| it.begin_unparsed(|| config.compiled.names.of(&peer.text)));
        let mut meter = RequestMeter::start(config.unrouted.clone(), clock::cached_now(), record);
        meter.failed(fault.error());
        meter.answered(fault.status());
    }

    /// Whether a peer is believed to speak for others.
    pub fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        self.config.borrow().compiled.addresses.is_trusted(peer.to_canonical())
    }

    /// The part of an address that connections are counted by.
    pub fn counted_ip(&self, ip: IpAddr) -> IpAddr {
        self.config.borrow().compiled.addresses.counted(ip.to_canonical())
    }

    /// Counts a connection of an address that has as many as it may have.
    pub fn note_turned_away(&self) {
        self.config.borrow().compiled.metrics.turned_away_per_ip.inc();
    }

    /// Counts a connection that has not become one of TLS, unless that is no error.
    pub fn note_handshake_error(&self, reason: Option<&str>) {
        if let Some(reason) = reason {
            let config = self.config.borrow();
            config.compiled.metrics.tls_handshake_errors.with_label_values(&[reason]).inc();
        }
    }

    /// Counts a connection of HTTP/2 that was ended for a flood.
    pub fn note_flood(&self, reason: &str) {
        self.config.borrow().compiled.metrics.http2_floods.with_label_values(&[reason]).inc();
    }

    /// Counts a connection without the PROXY header that it has to begin with.
    pub fn note_missing_proxy_header(&self, peer: SocketAddr, error: &HeaderError) {
        self.config.borrow().compiled.metrics.proxy_header_errors.inc();
        tracing::debug!(%peer, %error, "a connection was closed unread");
    }
}
