//! One request and its response over one upstream connection.
//!
//! Sending and receiving go on side by side in the request's task: an upstream may answer before
//! it has read the whole body, and the rest of the body then flows while the response does.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::body_sender::BodySender;
use super::pool::ActiveRequest;
use crate::body::Body;
use crate::http1::{
    BodyError, BufferedStream, Decoder, Framing, FramingError, HeadError, HeadFlags, HeadSearch,
    PollData, StatusLine, head, head::USUAL_FIELDS,
};
use crate::telemetry::{Failure, FailureMeter};

/// The largest head of a response; over HTTP/2 also the largest trailers.
pub(super) const MAX_HEAD: usize = 64 * 1024;
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
    /// No server has looked at the request: any may be sent again.
    #[error("the server has refused to look at the request")]
    Unprocessed,
    #[error("the server has reset the stream: {0}")]
    Reset(h2::Reason),
    #[error("the response is malformed: {0}")]
    Protocol(#[source] io::Error),
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
    pub fn is_malformed(&self) -> bool {
        use ExchangeError::{Framing, Head, Interim, Protocol, Truncated};
        matches!(self, Head(_) | Framing(_) | Protocol(_) | Truncated | Interim)
    }

    /// What it counts as, if it was the upstream's fault.
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
pub(crate) struct Exchange {
    io: Box<BufferedStream>,
    active: ActiveRequest,
    sender: BodySender,
    search: HeadSearch,
    interim: usize,
    /// How many fields the head of the response may have.
    pub(crate) max_fields: usize,
    response_timeout: Duration,
    started: bool,
}

impl Exchange {
    /// The head of the request is already in the write buffer of `io`.
    pub(crate) fn new(
        mut io: Box<BufferedStream>,
        active: ActiveRequest,
        body: Body,
        started: Instant,
        response_timeout: Duration,
    ) -> Self {
        io.set_deadline(started + response_timeout);
        let sender = BodySender::new(body);
        let search = HeadSearch::immediate();
        let (interim, max_fields, started) = (0, USUAL_FIELDS, false);
        Exchange { io, active, sender, search, interim, max_fields, response_timeout, started }
    }

    /// Drives the request out and the head of the response in, into `headers`. `on_hints` gets the
    /// fields of each `103 Early Hints` that comes before it.
    ///
    /// # Errors
    /// If there is no usable response. The connection must not be used again.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        headers: &mut HeaderMap,
        upgrade: bool,
        on_hints: impl Fn(&mut HeaderMap, HeadFlags),
    ) -> Poll<Result<StatusLine, ExchangeError>> {
        let streaming = !self.sender.is_body_sent();
        let moved = self.sender.poll(&mut self.io, cx)?;
        if self.sender.waits_for_client(&self.io) {
            // A slow client is not the upstream's fault; the client's own deadline is running.
            self.io.clear_deadline();
        } else if moved && streaming {
            self.io.set_deadline(Instant::now() + self.response_timeout);
        }
        loop {
            while let Some(head) = self.search.take(&mut self.io.read_buf, MAX_HEAD)? {
                let line = head::parse_response(&head, headers, self.max_fields)?;
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
                if line.status == StatusCode::EARLY_HINTS {
                    on_hints(headers, line.flags);
                }
            }
            match ready!(self.io.poll_fill(cx, false)) {
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

    /// Whether nothing of a response has come.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.started
    }

    /// Whether nothing of the request was written.
    pub(crate) fn is_unsent(&self) -> bool {
        self.io.is_unsent()
    }

    /// The connection itself, once the upstream has switched protocols on it.
    pub(crate) fn into_upgraded(self, headers: &mut HeaderMap) -> Upgraded {
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        let mut io = self.io;
        io.clear_deadline();
        Upgraded { io, _active: self.active }
    }

    /// What follows the head, framed as the head says.
    ///
    /// # Errors
    /// If the head leaves its length open to interpretation.
    #[inline]
    pub(crate) fn into_body(
        mut self,
        method: &Method,
        line: StatusLine,
        headers: &mut HeaderMap,
        stall: Duration,
    ) -> Result<Box<UpstreamBody>, ExchangeError> {
        let flags = line.flags;
        self.io.set_stall_timeout(stall);
        let stated = if flags.framing { Framing::stated(headers, line.http10)? } else { None };
        let bodiless = *method == Method::HEAD
            || line.status == StatusCode::NO_CONTENT
            || line.status == StatusCode::NOT_MODIFIED;
        let framing = if bodiless { Framing::Empty } else { stated.unwrap_or(Framing::UntilClose) };
        if flags.framing {
            // The next hop is framed anew, from the body itself. For HEAD and 304 the length is that
            // of a body that is not sent, and stays.
            headers.remove(TRANSFER_ENCODING);
            if !bodiless || line.status == StatusCode::NO_CONTENT {
                headers.remove(CONTENT_LENGTH);
            }
        }
        // A body after a response that cannot have one would be read as the response to the next
        // request. A 204 that announces one is taken at its word and not reused; after others the
        // connection is watched.
        let announced = bodiless && !matches!(stated, None | Some(Framing::Length(0)));
        let wrong = announced && line.status == StatusCode::NO_CONTENT;
        let reusable = framing != Framing::UntilClose && !wrong && flags.persists(line.http10);
        let (exchange, decoder) = (Some(self), Decoder::new(framing));
        let body = UpstreamBody { exchange, decoder, reusable, announced, failures: None };
        let mut body = Box::new(body);
        if body.decoder.is_done() {
            body.release();
        }
        Ok(body)
    }
}

/// An upstream connection that no longer carries HTTP.
#[derive(Debug)]
pub struct Upgraded {
    pub io: Box<BufferedStream>,
    /// Counted as a request for as long as it lasts.
    _active: ActiveRequest,
}

/// The body of an upstream's response. Its connection returns to the pool at its end.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    exchange: Option<Exchange>,
    decoder: Decoder,
    reusable: bool,
    /// The head announces a body that the response must not have.
    announced: bool,
    /// Where a body that is cut off is counted.
    failures: Option<Rc<FailureMeter>>,
}

impl UpstreamBody {
    /// Has the body counted there if it is cut off.
    pub(crate) fn count_in(&mut self, failures: &Rc<FailureMeter>) {
        self.failures = self.exchange.as_ref().map(|_| failures.clone());
    }

    pub(crate) fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> PollData {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        if exchange.sender.poll(&mut exchange.io, cx).is_err() {
            self.reusable = false;
        }
        let next = ready!(self.decoder.poll(&mut exchange.io, cx));
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

    /// Returns the connection to the pool if nothing is left on it in either direction.
    fn release(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        if self.reusable && exchange.sender.is_done() && exchange.io.read_buf.is_empty() {
            exchange.active.return_idle(exchange.io, self.announced);
        }
    }
}
