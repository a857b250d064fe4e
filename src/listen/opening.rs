//! The beginning of a connection, before its first request: the PROXY header, its place among those
//! of its address, and the handshake of TLS.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::acceptor::OVERLOADED;
use super::address_count::{AddressCounts, AddressSlot};
use super::connection::{self, ConnectionContext};
use super::listener::ListenerConfig;
use super::proxy_protocol;
use super::tls::{HandshakeError, PendingHandshakes, client_certificate, first_byte, handshake};
use crate::caller::Peer;
use crate::caller::address::UNIX_PEER;
use crate::gateway::Gateway;
use crate::http1::BufferedStream;
use crate::respond::Fault;

/// How long a client that is turned away has to take the answer.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

/// What a connection is opened with.
pub(super) struct Opening<'a> {
    pub(super) gateway: &'a Rc<Gateway>,
    pub(super) context: &'a ConnectionContext,
    pub(super) handshakes: &'a Rc<PendingHandshakes>,
    pub(super) counts: &'a Arc<AddressCounts>,
}

/// A connection whose requests can be read.
pub(super) struct OpenedConnection {
    pub(super) io: BufferedStream,
    pub(super) peer: Peer,
    /// Its place among the connections of its address, where those are counted.
    pub(super) _slot: Option<AddressSlot>,
}

impl Opening<'_> {
    /// `None` if the connection is over: its client has been told why if it can read that.
    pub(super) async fn open(
        &self,
        mut io: BufferedStream,
        peer: SocketAddr,
        listener: Arc<ListenerConfig>,
    ) -> Option<OpenedConnection> {
        let is_proxy = self.gateway.is_trusted_proxy(peer.ip());
        let mut client = (!is_proxy && peer.ip() != UNIX_PEER).then_some(peer);
        if listener.proxy_protocol && is_proxy {
            let server = self.context.settings.borrow().clone();
            match proxy_protocol::read(&mut io, &server, &self.context.control).await {
                Ok(Some(header)) => client = header.source,
                Ok(None) => return None,
                Err(error) => {
                    self.gateway.note_missing_proxy_header(peer, &error);
                    return None;
                }
            }
        }
        let slot = match self.enter(client) {
            Ok(slot) => slot,
            Err(TooMany) => {
                self.turn_away(io, &listener).await;
                return None;
            }
        };
        let mut peer = Peer::new(client.unwrap_or(peer));
        if let Some(config) = &listener.tls {
            io = match self.handshake(io, config).await {
                Ok(io) => io,
                Err(error) => {
                    self.give_up(error, &peer).await;
                    return None;
                }
            };
            peer.certificate = client_certificate(io.stream()).map(Box::new);
        }
        Some(OpenedConnection { io, peer, _slot: slot })
    }

    /// Counts a connection of an address. Those of proxies are not: they carry the requests of many.
    fn enter(&self, client: Option<SocketAddr>) -> Result<Option<AddressSlot>, TooMany> {
        let most = self.context.settings.borrow().max_connections_per_ip;
        let Some(client) = client.filter(|_| most > 0) else { return Ok(None) };
        let ip = self.gateway.counted_ip(client.ip());
        self.counts.enter(ip, most).map(Some).ok_or(TooMany)
    }

    async fn turn_away(&self, mut io: BufferedStream, listener: &ListenerConfig) {
        self.gateway.note_turned_away();
        // Who speaks TLS could not read it.
        if listener.tls.is_none() {
            io.write_buf().extend_from_slice(OVERLOADED);
            io.set_deadline(Instant::now() + TURN_AWAY_TIME);
            // A client that does not take it is closed all the same.
            let _ = poll_fn(|cx| io.poll_flush(cx)).await;
        }
    }

    async fn handshake(
        &self,
        mut io: BufferedStream,
        config: &Arc<rustls::ServerConfig>,
    ) -> Result<BufferedStream, HandshakeError> {
        let ConnectionContext { settings, control } = self.context;
        let server = settings.borrow().clone();
        let until = Instant::now() + server.header_timeout;
        // Who says nothing takes no room from those who do.
        first_byte(&mut io, until, &server, control).await?;
        let note_slow = || self.gateway.note_handshake_error(HandshakeError::TimedOut.reason());
        let Ok(_slot) = timeout_at(until, self.handshakes.begin(control, note_slow)).await else {
            return Err(HandshakeError::Crowded);
        };
        handshake(io, config, until, &server, control).await
    }

    async fn give_up(&self, error: HandshakeError, peer: &Peer) {
        self.gateway.note_handshake_error(error.reason());
        tracing::debug!(peer = %peer.ip, %error, "no TLS connection");
        if let HandshakeError::PlainHttp(io) = error {
            let fault = Fault::PlainHttp;
            self.gateway.note_unparsed(peer, &fault);
            connection::reject(*io, self.context, fault).await;
        }
    }
}

/// The address of a connection has as many as it may have.
struct TooMany;
