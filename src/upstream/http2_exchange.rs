//! One request and its response over one HTTP/2 stream.
//!
//! As over HTTP/1.1 the request's own task drives both directions, and an upstream may answer before
//! it has read the whole body. Dropping the exchange, or the body of its response, resets the stream.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::exchange::MAX_HEAD;
use super::http2_body::{BodyFeeder, RequestBody, request_body};
use super::http2_connection::SentRequest;
use super::http2_stream::Http2Stream;
use super::pool::ActiveRequest;
use super::{ExchangeError, FailureScope};
use crate::body::Body;
use crate::deadline::Deadline;
use crate::forward::field_rules::RouteFields;
use crate::http1::{BodyError, HeadError, HeadFlags, StatusLine};
use crate::http2::IncomingBody;
use crate::telemetry::{Failure, FailureMeter};

/// A stream with a request on it.
pub(crate) struct Http2Exchange {
    response: SentRequest,
    /// `None` if the request has no body.
    feeder: Option<BodyFeeder>,
    /// Of the response, once its head is there.
    incoming: Option<Incoming>,
    stream: Http2Stream,
    active: ActiveRequest,
    /// Says what may stand behind the bodies.
    fields: Rc<RouteFields>,
    deadline: Deadline,
    response_timeout: Duration,
    /// Its connection has ended, and all that was under way there.
    has_connection_ended: bool,
    /// How many fields the head of the response may have.
    pub(crate) max_fields: usize,
}

impl Http2Exchange {
    pub(crate) fn new(
        stream: Http2Stream,
        active: ActiveRequest,
        head: Request<()>,
        body: Body,
        fields: Rc<RouteFields>,
    ) -> Self {
        // Servers may end the connection over trailers of a request, and need not be sent any: RFC 9110
        // section 6.5.1.
        let trailer_fields = stream.is_exclusive().then(|| fields.clone());
        let (body, feeder) = request_body(body, trailer_fields, stream.uploads());
        let response = stream.send(head.map(|()| body));
        Http2Exchange {
            response,
            feeder,
            incoming: None,
            stream,
            active,
            fields,
            deadline: Deadline::default(),
            response_timeout: Duration::MAX,
            has_connection_ended: false,
            max_fields: usize::MAX,
        }
    }

    /// How long the server may take from the end of the request to the head of its response.
    pub(crate) fn set_response_timeout(&mut self, sent: Instant, timeout: Duration) {
        self.deadline.set(sent + timeout);
        self.response_timeout = timeout;
    }

    /// Drives the request out and the head of the response in, into `headers`.
    ///
    /// # Errors
    /// If there is no usable response.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        headers: &mut HeaderMap,
    ) -> Poll<Result<StatusLine, ExchangeError>> {
        self.feed(cx)?;
        let response = match self.response.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => response,
            Poll::Ready(Err(error)) => {
                let error = self.classify(error);
                // A request that the server says it has not processed did not end it.
                let takes_part = !matches!(error, ExchangeError::Unprocessed);
                self.stream.note_ended(self.has_connection_ended && takes_part);
                return Poll::Ready(Err(error));
            }
            Poll::Pending => {
                let _: io::Result<()> = ready!(self.deadline.poll(cx));
                self.stream.note_timeout(self.response_timeout);
                return Poll::Ready(Err(ExchangeError::TimedOut));
            }
        };
        self.stream.note_answered();
        if let Some(feeder) = &mut self.feeder {
            feeder.forget_sent();
        }
        let (head, incoming) = response.into_parts();
        if head.status.as_u16() > 599 {
            return Poll::Ready(Err(HeadError::FirstLine.into()));
        }
        if head.headers.len() > self.max_fields {
            return Poll::Ready(Err(HeadError::TooManyFields.into()));
        }
        if list_size(&head.headers) > MAX_HEAD {
            return Poll::Ready(Err(HeadError::TooLarge.into()));
        }
        *headers = head.headers;
        self.incoming = Some(incoming);
        // Those of one connection are malformed here, and have been refused with it: RFC 9113
        // section 8.2.2. `TE` and `Trailer` may come.
        let flags = HeadFlags { hop: true, marks: true, ..HeadFlags::default() };
        Poll::Ready(Ok(StatusLine { status: head.status, http10: false, flags }))
    }

    fn feed(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        let Some(feeder) = &mut self.feeder else { return Ok(()) };
        let moved = feeder.poll(cx)?;
        if feeder.waits_for_client() {
            // A slow client is not the upstream's fault; the client's own deadline is running.
            self.deadline.clear();
        } else if moved {
            self.deadline.set(Instant::now() + self.response_timeout);
        }
        Ok(())
    }

    /// What an error says of the request.
    fn classify(&mut self, error: TrySendError<Request<RequestBody>>) -> ExchangeError {
        if error.message().is_some() {
            self.has_connection_ended = true;
            self.stream.retire_connection();
            return ExchangeError::Unprocessed;
        }
        let error = error.into_error();
        let cause = find_cause(&error);
        // Whatever is no reset of this stream has ended the connection.
        self.has_connection_ended = !cause.is_some_and(h2::Error::is_reset);
        match cause {
            // Sent with the last stream that the server has processed, and this one came after it.
            Some(cause) if cause.is_go_away() && cause.is_remote() => {
                // What came before it goes on, and is no cause of that.
                self.has_connection_ended = false;
                self.stream.retire_connection();
                ExchangeError::Unprocessed
            }
            Some(cause) if cause.is_reset() && cause.is_remote() => match cause.reason() {
                Some(h2::Reason::REFUSED_STREAM) => ExchangeError::Unprocessed,
                reason => ExchangeError::Reset(reason.unwrap_or(h2::Reason::INTERNAL_ERROR)),
            },
            Some(cause) if cause.is_library() => ExchangeError::Protocol(io::Error::other(error)),
            _ => {
                self.stream.retire_connection();
                let io = cause.and_then(h2::Error::get_io);
                let kind = io.map_or(io::ErrorKind::ConnectionAborted, io::Error::kind);
                ExchangeError::Closed(Some(io::Error::new(kind, error)))
            }
        }
    }

    /// Against whom it holds that there is no response to a request of that client.
    pub(crate) fn failure_scope(&self, client: IpAddr) -> FailureScope {
        if self.has_connection_ended {
            self.stream.connection_failure_scope(client)
        } else {
            FailureScope::Client(client)
        }
    }

    /// The body of a request that no server has looked at, if it can be sent again.
    pub(crate) fn take_back_body(&mut self) -> Option<Body> {
        self.feeder.as_mut().map_or_else(|| Some(Body::empty()), BodyFeeder::take_back)
    }

    /// What follows the head. How long it is has been checked against what the head says.
    pub(crate) fn into_body(
        self,
        method: &Method,
        line: StatusLine,
        headers: &mut HeaderMap,
        stall_timeout: Duration,
    ) -> Option<Http2Body> {
        let bodiless = *method == Method::HEAD
            || line.status == StatusCode::NO_CONTENT
            || line.status == StatusCode::NOT_MODIFIED;
        // The next hop is framed anew, from the body itself. For HEAD and 304 the length is that of a
        // body that is not sent, and stays.
        if !bodiless || line.status == StatusCode::NO_CONTENT {
            headers.remove(CONTENT_LENGTH);
        }
        let incoming = self.incoming.filter(|it| !bodiless && !it.is_end_stream())?;
        Some(Http2Body {
            incoming: IncomingBody::new(incoming, None, stall_timeout),
            sending: Some(Sending {
                feeder: self.feeder,
                _stream: self.stream,
                _active: self.active,
            }),
            fields: self.fields,
            failures: None,
        })
    }
}

impl std::fmt::Debug for Http2Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Exchange").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// The size of a head as RFC 9113 section 6.5.2 counts it: with what a field takes to keep, since this
/// bounds memory here.
fn list_size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// h2's own error behind hyper's.
fn find_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a h2::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The body of a response that came over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Body {
    incoming: IncomingBody,
    /// Until the response has ended.
    sending: Option<Sending>,
    /// Says what may stand behind it.
    fields: Rc<RouteFields>,
    /// Where a body that is cut off is counted.
    failures: Option<Rc<FailureMeter>>,
}

/// The request's side of a stream whose response is being received.
#[derive(Debug)]
struct Sending {
    feeder: Option<BodyFeeder>,
    _stream: Http2Stream,
    /// Counted as a request for as long as it lasts.
    _active: ActiveRequest,
}

impl Http2Body {
    /// Has the body counted there if it is cut off.
    pub(crate) fn count_in(&mut self, failures: &Rc<FailureMeter>) {
        self.failures = Some(failures.clone());
    }

    pub(crate) fn remaining(&self) -> Option<u64> {
        self.incoming.remaining()
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(None) };
        if let Some(feeder) = &mut sending.feeder
            && feeder.poll(cx).is_err()
        {
            // The stream is reset, and the response with it.
            sending.feeder = None;
        }
        let mut next = ready!(self.incoming.poll_data(cx));
        if next.is_none() && self.incoming.trailers().is_some_and(|it| list_size(it) > MAX_HEAD) {
            next = Some(Err(io::Error::from(io::ErrorKind::InvalidData).into()));
        }
        match &next {
            Some(Ok(_)) => {}
            Some(Err(_)) => {
                self.sending = None;
                if let Some(failures) = self.failures.take() {
                    failures.count(Failure::CutOff);
                }
            }
            // The server needs no more of the request.
            None => self.sending = None,
        }
        Poll::Ready(next)
    }

    /// What stood behind the body, once it has ended.
    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = self.incoming.take_trailers()?;
        self.fields.clean_response_trailers(&mut trailers);
        (!trailers.is_empty()).then_some(trailers)
    }
}
