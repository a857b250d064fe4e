//! One client connection: HTTP/2 if that was negotiated or if its first bytes say so, otherwise
//! HTTP/1.1, requests in, answers out, in order, until either side ends it.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Uri};
use tower::Service as _;

use super::control::ConnectionControl;
use super::ending::ConnectionEnd;
use super::header_reuse;
use super::http2;
use super::next_head::HeadReadError;
use super::presence::{Awaited, ClientPresence};
use super::request::{self, RequestMeta};
use super::response::{self, AfterResponse, WriteError};
use super::service::ConnectionService;
use crate::body::Body;
use crate::config::settings;
use crate::gateway::{ClientExchange, ClientRequest, RequestSignals};
use crate::http1::{BodyLimits, BufferedStream, Decoder, Framing, HeadSearch, Inbound};
use crate::respond::{Answer, Content, Fault};

/// What is left of a refused body is read and dropped up to this size; beyond it the connection
/// is closed instead.
const MAX_DISCARD: u64 = 64 * 1024;
/// While draining, a connection without a request gets this long to send one more.
pub(super) const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// After this many answers other connections are served, however much is pipelined here.
const ANSWERS_PER_YIELD: u32 = 32;

/// The settings of the configuration that is served now.
pub(super) type ServerSettings = RefCell<Rc<settings::Server>>;

/// The first head of an HTTP/2 connection, as HTTP/1.1 reads it: RFC 9113 section 3.4.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// What a connection is served with, besides the service.
#[derive(Debug, Clone)]
pub(super) struct ConnectionContext {
    pub(super) settings: Rc<ServerSettings>,
    pub(super) control: Rc<ConnectionControl>,
}

/// Serves one connection to its end.
pub(super) async fn serve(
    io: BufferedStream,
    context: ConnectionContext,
    service: ConnectionService,
) {
    let http2 = match io.has_negotiated_http2() {
        true => Some(io),
        false => serve_http1(io, &context, &service).await,
    };
    if let Some(io) = http2 {
        // Boxed, since most connections do not come here, and their tasks have no room for it.
        Box::pin(http2::serve(io, context, service)).await;
    }
}

/// Serves requests of HTTP/1.1. If the client turns out to speak HTTP/2, its connection is returned as
/// it came.
async fn serve_http1(
    io: BufferedStream,
    context: &ConnectionContext,
    service: &ConnectionService,
) -> Option<BufferedStream> {
    let inbound = Rc::new(RefCell::new(Inbound::new(io)));
    let ConnectionContext { settings, control } = context;
    let current = settings.borrow().clone();
    let mut connection = Connection { inbound, settings: current, control, signals: Rc::default() };
    match connection.run(settings, service).await {
        ConnectionEnd::Http2(preface) => connection.into_io(&preface),
        end => {
            connection.end(end).await;
            None
        }
    }
}

/// Answers a connection whose first request is not to be read, and ends it.
pub(super) async fn reject(io: BufferedStream, context: &ConnectionContext, fault: Fault) {
    let inbound = Rc::new(RefCell::new(Inbound::new(io)));
    let ConnectionContext { settings, control } = context;
    let settings = settings.borrow().clone();
    let connection = Connection { inbound, settings, control, signals: Rc::default() };
    let end = connection.reject(fault).await;
    connection.end(end).await;
}

pub(super) struct Connection<'a> {
    pub(super) inbound: Rc<RefCell<Inbound>>,
    pub(super) settings: Rc<settings::Server>,
    pub(super) control: &'a ConnectionControl,
    /// Shared with the request under way.
    signals: Rc<RequestSignals>,
}

/// What came of a request.
enum ExchangeOutcome {
    Answered,
    /// The client has left. There may be no answer, and nobody is there for one.
    ClientLeft,
    /// The gateway panicked while it served the request.
    Panicked,
}

impl Connection<'_> {
    async fn run(
        &mut self,
        settings: &ServerSettings,
        service: &ConnectionService,
    ) -> ConnectionEnd {
        let mut search = HeadSearch::default();
        // Each request is filled in where the last one lay: it is large, and so is the map of its
        // headers.
        let mut client = ClientRequest::from(Request::new(Body::empty()));
        client.parts.headers.reserve(16);
        let mut served = 0;
        loop {
            let head = match self.next_head(settings, &mut search, served == 0).await {
                Ok(Some(head)) => head,
                Ok(None) => return ConnectionEnd::Close,
                Err(HeadReadError::Fault(fault)) => {
                    service.note_unparsed(&fault);
                    return self.reject(fault).await;
                }
                Err(HeadReadError::Disconnected) => return ConnectionEnd::Drop,
            };
            self.settings = settings.borrow().clone();
            let max_fields = self.settings.max_request_headers;
            let meta = match request::parse(&head, max_fields, &mut client.parts) {
                Ok(meta) => meta,
                Err(_) if served == 0 && self.begins_http2(&head) => {
                    return ConnectionEnd::Http2(head);
                }
                Err(fault) => {
                    service.note_unparsed(&fault);
                    return self.reject(fault).await;
                }
            };
            drop(head);
            let requested = client.parts.headers.len();
            if self.expect_body(&meta) {
                client.body = Body::client(self.inbound.clone());
            }
            let signals = self.next_signals();
            if !meta.http10 {
                signals.hints.accept();
            }
            let written = {
                let mut answer = Answer::default();
                let exchange = ClientExchange { client: &mut client, signals, answer: &mut answer };
                // Pinned as it is made, and not moved again: it is large.
                let driven = self.drive(pin!(service.one_request().call(exchange))).await;
                match driven {
                    ExchangeOutcome::Answered => {}
                    ExchangeOutcome::Panicked => answer = Fault::Internal.into(),
                    ExchangeOutcome::ClientLeft => return ConnectionEnd::Drop,
                }
                if let Content::Tunnel(_) = answer.response.body() {
                    return self.tunnel(answer, &meta).await;
                }
                let keep = meta.keep_alive && !self.control.draining.get() && self.can_go_on();
                let timeout = self.stall_timeout();
                let written =
                    response::write(&self.inbound, &mut answer, &meta, keep, timeout).await;
                mem::swap(&mut client.parts.headers, answer.response.headers_mut());
                written
                // The rest is dropped here: its meter is recorded now, and its buffers serve the
                // next request.
            };
            // What is left of the request holds on to the buffer it was read into, and the client may
            // stay idle.
            (client.parts.uri, client.body) = (Uri::default(), Body::empty());
            let most_fields = requested.max(client.parts.headers.len());
            header_reuse::clear(&mut client.parts.headers, most_fields);
            if let Some(end) = self.end_after(written, &meta) {
                return end;
            }
            if self.discard_body().await.is_err() {
                return ConnectionEnd::Linger;
            }
            let (more, full) = {
                let io = &self.inbound.borrow().io;
                (!io.read_buf.is_empty(), io.is_full())
            };
            // Answers to pipelined requests leave together, as long as they are few.
            if (!more || full) && self.flush().await.is_err() {
                return ConnectionEnd::Drop;
            }
            served += 1;
            if more && served % ANSWERS_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether what was read as a head is the beginning of an HTTP/2 connection.
    fn begins_http2(&self, head: &[u8]) -> bool {
        head == HTTP2_PREFACE
            && self.settings.http2.is_some()
            && !self.inbound.borrow().io.has_negotiated_http1()
    }

    /// The connection as it was before its first head was read.
    fn into_io(self, head: &Bytes) -> Option<BufferedStream> {
        let mut io = Rc::into_inner(self.inbound)?.into_inner().io;
        let mut unread = BytesMut::from(&head[..]);
        unread.extend_from_slice(&io.read_buf);
        io.read_buf = unread;
        Some(io)
    }

    /// How the connection ends after a response; `None` if it goes on.
    fn end_after(
        &self,
        written: Result<AfterResponse, WriteError>,
        meta: &RequestMeta,
    ) -> Option<ConnectionEnd> {
        match written {
            Ok(AfterResponse::KeepAlive) => None,
            // A drain does not wait for clients that have sent all they had to send.
            Ok(_) if self.control.draining.get() && self.is_quiet() => Some(ConnectionEnd::Close),
            Ok(_) => Some(ConnectionEnd::Linger),
            // A reset, where an orderly end could be taken for the end of the body.
            Err(WriteError::Truncated) if meta.http10 => Some(ConnectionEnd::Reset),
            Err(WriteError::Truncated) => Some(ConnectionEnd::Truncated),
            Err(WriteError::Client(_)) => Some(ConnectionEnd::Drop),
        }
    }

    pub(super) fn stall_timeout(&self) -> Duration {
        self.settings.request_timeout
    }

    /// Gets ready to read the request's body. False: there is none.
    fn expect_body(&self, meta: &RequestMeta) -> bool {
        let inbound = &mut *self.inbound.borrow_mut();
        let decoder = Decoder::new(meta.framing);
        let limits = BodyLimits {
            max: self.settings.max_body,
            stall_timeout: self.stall_timeout(),
            min_rate: self.settings.min_body_rate,
        };
        inbound.expect_body(decoder, limits);
        inbound.awaits_continue = meta.awaits_continue;
        meta.framing != Framing::Empty
    }

    /// Signals for the next request. Those of the last one are used again if nothing holds them any
    /// more, so that they cost no allocation.
    fn next_signals(&mut self) -> Rc<RequestSignals> {
        match Rc::get_mut(&mut self.signals) {
            Some(signals) => *signals = RequestSignals::default(),
            None => self.signals = Rc::default(),
        }
        self.signals.clone()
    }

    /// Polls the gateway until it has answered. A request that is to be charged by its response is
    /// driven until that is done, though its client has left.
    async fn drive<F>(&self, mut answering: Pin<&mut F>) -> ExchangeOutcome
    where
        F: Future<Output = Result<(), Infallible>>,
    {
        let mut presence = ClientPresence::default();
        poll_fn(|cx| {
            // A panic costs the request that caused it, and nothing else.
            let polled = std::panic::catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
            for hints in self.signals.hints.take() {
                response::write_hints(self.inbound.borrow_mut().io.write_buf(), &hints);
            }
            match polled {
                Ok(Poll::Ready(Ok(()))) if self.signals.client_has_left() => {
                    return Poll::Ready(ExchangeOutcome::ClientLeft);
                }
                Ok(Poll::Ready(Ok(()))) => return Poll::Ready(ExchangeOutcome::Answered),
                Ok(Poll::Pending) => {}
                Err(_) => {
                    self.inbound.borrow_mut().broken = true;
                    return Poll::Ready(ExchangeOutcome::Panicked);
                }
            }
            if self.signals.client_has_left() || !self.is_leaving(&mut presence, cx) {
                return Poll::Pending;
            }
            if !self.signals.awaits_charge() {
                return Poll::Ready(ExchangeOutcome::ClientLeft);
            }
            self.signals.note_client_left();
            Poll::Pending
        })
        .await
    }

    /// Whether the client is seen to have left, while its answer is being made.
    fn is_leaving(&self, presence: &mut ClientPresence, cx: &mut Context<'_>) -> bool {
        let inbound = &mut *self.inbound.borrow_mut();
        match inbound.io.poll_flush(cx) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(())) => {
                let waits = self.signals.is_waiting();
                let awaited = if waits { Awaited::Turn } else { Awaited::Answer };
                presence.check(inbound, awaited, cx).is_err()
            }
        }
    }

    /// Whether another request can follow on this connection, once what is left of this one's
    /// body was discarded.
    fn can_go_on(&self) -> bool {
        let inbound = self.inbound.borrow();
        let short = inbound.remaining().is_some_and(|left| left <= MAX_DISCARD);
        !inbound.broken && (inbound.decoder.is_done() || (short && !inbound.awaits_continue))
    }

    /// Whether everything the client has sent was read.
    fn is_quiet(&self) -> bool {
        let inbound = self.inbound.borrow();
        inbound.decoder.is_done() && inbound.io.read_buf.is_empty()
    }

    async fn discard_body(&self) -> Result<(), ()> {
        if !self.can_go_on() {
            return Err(());
        }
        while !self.inbound.borrow().decoder.is_done() {
            let next = poll_fn(|cx| self.inbound.borrow_mut().poll_data(cx)).await;
            if let Some(Err(_)) = next {
                return Err(());
            }
        }
        Ok(())
    }

    pub(super) async fn flush(&self) -> io::Result<()> {
        self.inbound.borrow_mut().io.set_stall_timeout(self.stall_timeout());
        poll_fn(|cx| self.inbound.borrow_mut().io.poll_flush(cx)).await
    }

    /// Answers a request that could not be parsed, and ends.
    async fn reject(&self, fault: Fault) -> ConnectionEnd {
        let meta = RequestMeta {
            wants_no_body: false,
            http10: false,
            keep_alive: false,
            awaits_continue: false,
            framing: Framing::Empty,
        };
        let (mut answer, timeout) = (Answer::from(fault), self.stall_timeout());
        match response::write(&self.inbound, &mut answer, &meta, false, timeout).await {
            Ok(_) => ConnectionEnd::Linger,
            Err(_) => ConnectionEnd::Drop,
        }
    }
}
