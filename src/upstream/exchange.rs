//! One request and its response over one upstream connection.
//!
//! Sending and receiving go on side by side in the request's task: an upstream may answer before
//! it has read the whole body, and the rest of the body then flows while the response does.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::pool::Slot;
use crate::body::Body;
use crate::http1::{
    BodyError, Decoder, Framing, FramingError, Head, HeadError, StatusLine, Wire, encode, head,
};
use crate::telemetry::{Failure, FailureMeter};

/// What an upstream may spend on the head of a response.
const MAX_HEAD: usize = 64 * 1024;
/// Interim responses before the real one.
const MAX_INTERIM: usize = 16;

/// Why no response came of a request.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nothing was received: a request that is safe to repeat may be sent again.
    #[error("the connection was closed before a response")]
    Closed(#[source] Option<io::Error>),
    #[error("no response in time")]
    TimedOut,
    #[error("the response ended within its header")]
    Truncated,
    #[error("the response is malformed: {0}")]
    Head(#[from] HeadError),
    #[error("the response is malformed: {0}")]
    Framing(#[from] FramingError),
    #[error("the upstream switched protocols unasked, or sent too many interim responses")]
    Interim,
    /// The client's side failed while its body was being sent on.
    #[error("the request's body could not be read")]
    Request(#[source] BodyError),
}

impl ExchangeError {
    /// Whether what was received is no response.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        use ExchangeError::{Framing, Head, Interim, Truncated};
        matches!(self, Head(_) | Framing(_) | Truncated | Interim)
    }

    /// What it counts as, if it was the upstream's.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match self {
            ExchangeError::TimedOut => Some(Failure::Timeout),
            ExchangeError::Request(_) => None,
            _ => Some(Failure::Broken),
        }
    }
}

/// A connection with a request on it.
#[derive(Debug)]
pub struct Exchange {
    wire: Box<Wire>,
    slot: Slot,
    sender: Sender,
    search: Head,
    interim: usize,
    patience: Duration,
    started: bool,
}

impl Exchange {
    /// The head is already in the wire's outbox.
    #[must_use]
    pub fn new(
        mut wire: Box<Wire>,
        slot: Slot,
        body: Body,
        started: Instant,
        patience: Duration,
    ) -> Self {
        wire.set_deadline(started + patience);
        let sender = Sender::new(body);
        let search = Head::at_once();
        Exchange { wire, slot, sender, search, interim: 0, patience, started: false }
    }

    /// Drives the request out and the head of the response in, into `headers`.
    ///
    /// # Errors
    /// If there is no usable response. The connection must not be used again.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        headers: &mut HeaderMap,
        upgrade: bool,
    ) -> Poll<Result<StatusLine, ExchangeError>> {
        let streaming = !self.sender.body_is_out();
        let moved = self.sender.poll(&mut self.wire, cx)?;
        if self.sender.waits_for_client(&self.wire) {
            // A slow client is not the upstream's fault; the client's own deadline is running.
            self.wire.clear_deadline();
        } else if moved && streaming {
            self.wire.set_deadline(Instant::now() + self.patience);
        }
        loop {
            while let Some(head) = self.search.take(&mut self.wire.inbox, MAX_HEAD)? {
                let line = head::parse_response(&head, headers)?;
                if !line.status.is_informational() {
                    return Poll::Ready(Ok(line));
                }
                if line.status == StatusCode::SWITCHING_PROTOCOLS && upgrade {
                    return Poll::Ready(Ok(line));
                }
                self.interim += 1;
                let switched = line.status == StatusCode::SWITCHING_PROTOCOLS;
                if switched || self.interim > MAX_INTERIM {
                    return Poll::Ready(Err(ExchangeError::Interim));
                }
            }
            match ready!(self.wire.poll_fill(cx, false)) {
                Ok(0) if self.started => return Poll::Ready(Err(ExchangeError::Truncated)),
                Ok(0) => return Poll::Ready(Err(ExchangeError::Closed(None))),
                Ok(_) => self.started = true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(ExchangeError::TimedOut));
                }
                Err(_) if self.started => return Poll::Ready(Err(ExchangeError::Truncated)),
                Err(error) => return Poll::Ready(Err(ExchangeError::Closed(Some(error)))),
            }
        }
    }

    /// The connection itself, once the upstream has switched protocols on it, and its place at
    /// the server.
    #[must_use]
    pub fn into_tunnel(self, headers: &mut HeaderMap) -> (Box<Wire>, Slot) {
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        let mut wire = self.wire;
        wire.clear_deadline();
        (wire, self.slot)
    }

    /// What follows the head, framed as the head says.
    ///
    /// # Errors
    /// If the head leaves its length open to interpretation.
    #[inline]
    pub fn into_body(
        mut self,
        method: &Method,
        line: StatusLine,
        headers: &mut HeaderMap,
        stall: Duration,
    ) -> Result<UpstreamBody, ExchangeError> {
        let noted = line.noted;
        self.wire.set_patience(stall);
        let stated = if noted.framing { Framing::stated(headers, line.http10)? } else { None };
        let bodiless = *method == Method::HEAD
            || line.status == StatusCode::NO_CONTENT
            || line.status == StatusCode::NOT_MODIFIED;
        let framing = if bodiless { Framing::Empty } else { stated.unwrap_or(Framing::UntilClose) };
        if noted.framing {
            // The body itself knows its length from here on, and the next hop is framed anew. For
            // HEAD and 304 the field speaks of a body that is not sent, and stays.
            headers.remove(TRANSFER_ENCODING);
            if !bodiless || line.status == StatusCode::NO_CONTENT {
                headers.remove(CONTENT_LENGTH);
            }
        }
        // An upstream that sends a body where there can be none would have it read as the answer to
        // the next request. That of a 204 has said that it will; others are watched.
        let announced = bodiless && !matches!(stated, None | Some(Framing::Length(0)));
        let wrong = announced && line.status == StatusCode::NO_CONTENT;
        let reusable = framing != Framing::UntilClose && !wrong && noted.persists(line.http10);
        let (exchange, decoder) = (Some(self), Decoder::new(framing));
        let mut body = UpstreamBody { exchange, decoder, reusable, announced, failures: None };
        if body.decoder.is_done() {
            body.release();
        }
        Ok(body)
    }
}

/// The body of an upstream's response. Its connection returns to the pool at its end.
#[derive(Debug)]
pub struct UpstreamBody {
    exchange: Option<Exchange>,
    decoder: Decoder,
    reusable: bool,
    /// The head speaks of a body, and there is none.
    announced: bool,
    /// Where it is counted if the rest does not come.
    failures: Option<Rc<FailureMeter>>,
}

impl UpstreamBody {
    /// Counts it there if the rest does not come.
    pub fn count_in(&mut self, failures: &Rc<FailureMeter>) {
        self.failures = self.exchange.as_ref().map(|_| failures.clone());
    }

    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        if exchange.sender.poll(&mut exchange.wire, cx).is_err() {
            self.reusable = false;
        }
        let next = ready!(self.decoder.poll(&mut exchange.wire, cx));
        match &next {
            Some(Err(_)) => {
                self.exchange = None;
                if let Some(failures) = self.failures.take() {
                    failures.count(Failure::CutOff);
                }
            }
            // The last piece frees the connection at once, before the client has read it.
            _ if self.decoder.is_done() => self.release(),
            _ => {}
        }
        Poll::Ready(next)
    }

    /// Gives the connection back if nothing is left on it in either direction.
    fn release(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        if self.reusable && exchange.sender.is_done() && exchange.wire.inbox.is_empty() {
            exchange.slot.give_back(exchange.wire, self.announced);
        }
    }
}

/// Sends a request's body behind its head.
#[derive(Debug)]
struct Sender {
    body: Body,
    chunked: bool,
    state: Sending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Body,
    /// A chunk is queued whose closing line is not.
    ChunkEnd,
    Flush,
    Done,
    /// The upstream no longer reads; it may still answer.
    Deaf,
}

impl Sender {
    fn new(body: Body) -> Self {
        let framing = body.framing();
        let chunked = framing == Framing::Chunked;
        let empty = matches!(framing, Framing::Empty | Framing::Length(0));
        let state = if empty { Sending::Flush } else { Sending::Body };
        Sender { body, chunked, state }
    }

    fn is_done(&self) -> bool {
        self.state == Sending::Done
    }

    /// Whether no more of the body is to come from the client.
    fn body_is_out(&self) -> bool {
        !matches!(self.state, Sending::Body | Sending::ChunkEnd)
    }

    fn waits_for_client(&self, wire: &Wire) -> bool {
        !self.body_is_out() && wire.is_flushed()
    }

    /// Sends what can be sent now, and says whether anything moved.
    fn poll(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Result<bool, ExchangeError> {
        let mut moved = false;
        loop {
            if matches!(self.state, Sending::Done | Sending::Deaf) {
                return Ok(moved);
            }
            if self.state == Sending::Flush || wire.is_full() {
                match wire.poll_flush(cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Err(error)) => self.fail(&error)?,
                    Poll::Ready(Ok(())) if self.state == Sending::Flush => {
                        self.state = Sending::Done;
                    }
                    Poll::Ready(Ok(())) => {}
                }
                moved = true;
                continue;
            }
            if self.state == Sending::ChunkEnd {
                wire.outbox().extend_from_slice(encode::CHUNK_END);
                self.state = Sending::Body;
            }
            match self.body.poll_data(cx) {
                Poll::Ready(Some(data)) => {
                    let data = data.map_err(ExchangeError::Request)?;
                    if self.chunked {
                        encode::chunk_size(wire.outbox(), data.len());
                        self.state = Sending::ChunkEnd;
                    }
                    wire.queue(data);
                }
                Poll::Ready(None) => {
                    if self.chunked {
                        wire.outbox().extend_from_slice(encode::LAST_CHUNK);
                    }
                    self.state = Sending::Flush;
                }
                Poll::Pending => {
                    // Nothing to add for now: let what is there go.
                    if let Poll::Ready(Err(error)) = wire.poll_flush(cx) {
                        self.fail(&error)?;
                    }
                    return Ok(moved);
                }
            }
            moved = true;
        }
    }

    /// An upstream that reads no further may still answer, but not one whose time is up.
    fn fail(&mut self, error: &io::Error) -> Result<(), ExchangeError> {
        self.state = Sending::Deaf;
        match error.kind() {
            io::ErrorKind::TimedOut => Err(ExchangeError::TimedOut),
            _ => Ok(()),
        }
    }
}
