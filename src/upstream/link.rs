//! What a request is sent over: a connection of its own, or a stream of one that it shares.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use tokio::time::{Instant, timeout_at};

use super::http2_connection::Http2Connection;
use super::http2_pool::Connecting;
use super::http2_stream::Http2Stream;
use super::pending::{Acquired, PendingRequest, Waiting, acquire, acquire_alone};
use super::slots::ConnectionSlot;
use super::{ActiveRequest, ConnectError, FailureScope, PooledConnection, Server, Upstream};
use crate::gateway::RequestSignals;
use crate::http1::BufferedStream;
use crate::stream::Stream;

#[derive(Debug)]
pub(crate) enum Link {
    Http1(PooledConnection),
    Http2(Http2Stream),
}

impl Link {
    /// Whether it is a connection that was idle, and whether what comes next on it may be a body that
    /// belongs to the last response.
    #[inline]
    pub(crate) fn history(&self) -> (bool, bool) {
        match self {
            Link::Http1(connection) => (connection.reused, connection.announced),
            Link::Http2(_) => (false, false),
        }
    }
}

/// With whom a request may share its connection, if the server speaks HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionSharing {
    Shared,
    /// With nobody, where a connection can be had at once.
    PreferablyAlone,
    /// With nobody: a server may end the connection over this request, and with it all others.
    Alone,
    /// It may end as a tunnel, which HTTP/2 has none of.
    Tunnel,
}

/// What a request asks of the connection that it goes over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRequest<'a> {
    pub method: &'a Method,
    pub client: IpAddr,
    pub has_body: bool,
    pub sharing: ConnectionSharing,
    /// Where it is noted that it waits for its turn.
    pub signals: &'a RequestSignals,
}

impl LinkRequest<'_> {
    /// Whether a connection to that server may have failed for what this request wants of it. Tunnels are
    /// offered over HTTP/1.1 alone, which a server that speaks only HTTP/2 ends in the handshake. And a
    /// server with a connection that others share can be reached: one more may be more than it takes.
    fn may_be_cause_of(&self, error: &ConnectError, server: &Server) -> bool {
        let is_refused_tunnel =
            self.sharing == ConnectionSharing::Tunnel && matches!(error, ConnectError::Tls(..));
        is_refused_tunnel || server.shared.has_live_connections()
    }
}

/// Why a request has no connection.
#[derive(Debug)]
pub(crate) struct OpenError {
    pub error: ConnectError,
    /// Against whom that holds, as a failure of the upstream.
    pub scope: FailureScope,
}

impl Upstream {
    /// A connection for a request that found none idle: a new one, tried at each of the server's
    /// addresses in turn, or, where the server has as many as it may, the first that falls idle. Over
    /// HTTP/2 it is a stream of one, unless the request may end as a tunnel.
    ///
    /// # Errors
    /// If none of the addresses accepts within the connect timeout, or nothing became free for so
    /// long. A server that does not accept is then left out for a moment, if there are others.
    pub(crate) async fn open(
        &self,
        active: &mut ActiveRequest,
        request: LinkRequest<'_>,
    ) -> Result<Link, OpenError> {
        let server = active.server().clone();
        let waited_in_vain = |error| self.open_error(&server, request, error);
        if server.protocol.http2 && request.sharing != ConnectionSharing::Tunnel {
            let slot = match request.sharing {
                // Over HTTP/1.1 every request is alone.
                _ if server.http2.is_declined() => None,
                ConnectionSharing::Alone => {
                    let waiting = self.waiting(request, false);
                    let acquired = Box::pin(acquire_alone(&server, waiting)).await;
                    Some(acquired.map_err(waited_in_vain)?)
                }
                ConnectionSharing::PreferablyAlone => server.shared.slots.try_take_alone(),
                ConnectionSharing::Shared | ConnectionSharing::Tunnel => None,
            };
            if let Some(slot) = slot {
                let connecting = server.http2.connect_alone();
                let opening = connect_http2(&server, connecting, Some(slot), self.connect_timeout);
                let opened = Box::pin(opening).await;
                return self.link(active, &server, request, opened);
            }
            // FIFO: a stream that is free belongs to the requests that wait, if there are any.
            if server.waiting.for_streams() == 0
                && let Some(stream) = server.open_stream(request.has_body)
            {
                return Ok(Link::Http2(stream));
            }
            // Requests over HTTP/1.1 need not carry the state of this one.
            return Box::pin(self.open_http2(active, &server, request)).await;
        }
        let waiting = self.waiting(request, false);
        let acquired = acquire(active, &server, None, waiting).await;
        let slot = match acquired.map_err(waited_in_vain)? {
            Acquired::Slot(slot) => slot,
            Acquired::Idle(connection) => return Ok(Link::Http1(connection)),
            Acquired::Stream(stream) => return Ok(Link::Http2(stream)),
        };
        let stream = server.dialer(true).connect(self.connect_timeout).await;
        let stream = self.note_opened(&server, request, stream)?;
        Ok(new_connection(active, stream, slot))
    }

    fn waiting<'a>(&self, link: LinkRequest<'a>, takes_streams: bool) -> Waiting<'a> {
        let deadline = Instant::now() + self.connect_timeout;
        Waiting { link, max_pending: self.max_pending, deadline, takes_streams }
    }

    async fn open_http2(
        &self,
        active: &mut ActiveRequest,
        server: &Server,
        request: LinkRequest<'_>,
    ) -> Result<Link, OpenError> {
        let waited_in_vain = |error| self.open_error(server, request, error);
        let waiting = self.waiting(request, true);
        let deadline = waiting.deadline;
        // Where connections are limited a request that waits for whatever it may be counts as pending,
        // and does so once.
        let mut pending = None;
        let connecting = loop {
            if (pending.is_some() || server.waiting.for_streams() == 0)
                && let Some(stream) = server.open_stream(request.has_body)
            {
                return Ok(Link::Http2(stream));
            }
            if let Some(connecting) = server.http2.begin_connecting() {
                break connecting;
            }
            if pending.is_none() && server.shared.slots.is_limited() {
                let entered = PendingRequest::enter(server, waiting);
                pending = Some(entered.map_err(waited_in_vain)?);
            }
            if timeout_at(deadline, server.http2.freed()).await.is_err() {
                let is_limited = pending.is_some();
                return Err(waited_in_vain(match is_limited {
                    true => ConnectError::Saturated,
                    false => ConnectError::TimedOut,
                }));
            }
        };
        let acquired = acquire(active, server, pending, waiting).await;
        let slot = match acquired.map_err(waited_in_vain)? {
            Acquired::Slot(slot) => slot,
            Acquired::Idle(connection) => return Ok(Link::Http1(connection)),
            Acquired::Stream(stream) => return Ok(Link::Http2(stream)),
        };
        let opened = connect_http2(server, connecting, slot, self.connect_timeout).await;
        self.link(active, server, request, opened)
    }

    /// Notes how opening a connection went. A server that others use over connections that they have may
    /// be gone all the same: what it does not accept holds against it for this client. A tunnel that it
    /// does not offer says nothing of it.
    fn note_opened<T>(
        &self,
        server: &Server,
        request: LinkRequest<'_>,
        opened: Result<T, ConnectError>,
    ) -> Result<T, OpenError> {
        let failed = match opened {
            Ok(opened) => {
                server.shared.ejection.note_connected();
                return Ok(opened);
            }
            Err(error) => self.open_error(server, request, error),
        };
        let error = &failed.error;
        match failed.scope {
            _ if error.is_ours() => self.log_exhausted(error),
            FailureScope::Client(_) if request.sharing == ConnectionSharing::Tunnel => {}
            FailureScope::Client(client) => self.note_failed(server, client),
            FailureScope::Everybody | FailureScope::Nobody => {
                server.shared.note_unreachable(&self.ejection, self.has_others(), error);
            }
        }
        Err(failed)
    }

    /// No request is the cause of a server that is down. But that is no failure of the upstream, for
    /// anybody, while there is a server that can be reached.
    fn open_error(
        &self,
        server: &Server,
        request: LinkRequest<'_>,
        error: ConnectError,
    ) -> OpenError {
        let scope = if request.may_be_cause_of(&error, server) {
            FailureScope::Client(request.client)
        } else if self.can_be_reached_without(server) {
            FailureScope::Nobody
        } else {
            FailureScope::Everybody
        };
        OpenError { error, scope }
    }

    fn link(
        &self,
        active: &mut ActiveRequest,
        server: &Server,
        request: LinkRequest<'_>,
        opened: Result<OpenedConnection, ConnectError>,
    ) -> Result<Link, OpenError> {
        Ok(match self.note_opened(server, request, opened)? {
            OpenedConnection::Http2(stream) => Link::Http2(stream),
            OpenedConnection::Http1(stream, slot) => new_connection(active, stream, slot),
        })
    }
}

impl Server {
    /// A stream of an HTTP/2 connection that requests share, if one is free.
    pub(super) fn open_stream(&self, has_body: bool) -> Option<Http2Stream> {
        let slots = &self.shared.slots;
        let may_connect = || !slots.is_full() && slots.leave_room_for_others();
        self.http2.open_stream(has_body, may_connect)
    }
}

fn new_connection(
    active: &mut ActiveRequest,
    stream: Stream,
    slot: Option<ConnectionSlot>,
) -> Link {
    active.set_record(active.server().record(&stream, slot));
    let io = Box::new(BufferedStream::new(stream));
    Link::Http1(PooledConnection { io, reused: false, announced: false })
}

/// A new connection to a server that may speak HTTP/2.
enum OpenedConnection {
    /// With a stream for the request.
    Http2(Http2Stream),
    /// The server has chosen HTTP/1.1.
    Http1(Stream, Option<ConnectionSlot>),
}

async fn connect_http2(
    server: &Server,
    connecting: Connecting<'_>,
    slot: Option<ConnectionSlot>,
    connect_timeout: Duration,
) -> Result<OpenedConnection, ConnectError> {
    // The wait for a slot is no time that the server has taken.
    let deadline = Instant::now() + connect_timeout;
    let stream = server.dialer(false).connect(connect_timeout).await?;
    if stream.has_declined_http2() {
        connecting.declined();
        // One request after another will have it, each alone.
        return Ok(OpenedConnection::Http1(stream, slot.and_then(ConnectionSlot::reusable)));
    }
    let record = server.record(&stream, slot);
    let handshake = Http2Connection::handshake(stream, record, connecting.freed());
    match timeout_at(deadline, handshake).await {
        Ok(Ok(connection)) => {
            Ok(OpenedConnection::Http2(connecting.connected(connection, &server.shared)))
        }
        Ok(Err(error)) => Err(ConnectError::Http2(error)),
        Err(_) => Err(ConnectError::TimedOut),
    }
}
