//! The body of a message that came over HTTP/2, and the trailers behind it.

use std::cell::Cell;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::unread_body;
use crate::config::settings::MinBodyRate;
use crate::deadline::Deadline;
use crate::http1::{BodyError, BodyLimits, BodyPace};

#[derive(Debug)]
pub(crate) struct IncomingBody {
    /// `None` once it was left to be discarded.
    incoming: Option<Incoming>,
    /// While it is waited for. The peer's flow control is no excuse: a piece is asked for only when
    /// there is room for it.
    deadline: Deadline,
    received: u64,
    max_length: Option<u64>,
    trailers: Option<HeaderMap>,
    /// How fast it has to come, and how fast it does.
    min_rate: Option<(MinBodyRate, Duration)>,
    pace: BodyPace,
    /// Of a client's request: where it is counted if it is discarded. What is left unread of an
    /// upstream's response resets the stream.
    lingering: Option<Rc<Cell<usize>>>,
}

impl IncomingBody {
    pub(crate) fn new(
        incoming: Incoming,
        max_length: Option<u64>,
        stall_timeout: Duration,
    ) -> Self {
        let mut deadline = Deadline::default();
        deadline.set_stall_timeout(stall_timeout);
        IncomingBody {
            incoming: Some(incoming),
            deadline,
            received: 0,
            max_length,
            trailers: None,
            min_rate: None,
            pace: BodyPace::default(),
            lingering: None,
        }
    }

    /// The body of a client's request. `lingering` counts those that are read only to be dropped.
    pub(crate) fn of_request(
        incoming: Incoming,
        limits: BodyLimits,
        lingering: &Rc<Cell<usize>>,
    ) -> Self {
        let mut body = IncomingBody::new(incoming, limits.max, limits.stall_timeout);
        body.min_rate = limits.min_rate.map(|rate| (rate, limits.stall_timeout));
        body.lingering = Some(lingering.clone());
        body
    }

    /// How many bytes are left, if the message says so. A length that its data does not keep to is a
    /// stream error before it comes here: RFC 9113 section 8.1.1.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.incoming.as_ref()?.size_hint().exact()
    }

    /// Has it be no larger than that, whatever was said before.
    pub(crate) fn set_max_length(&mut self, max: Option<u64>) {
        self.max_length = max;
    }

    /// Refuses a body whose length is known to be too large, before any of it is read.
    pub(crate) fn reject_too_large(&self) -> Result<(), BodyError> {
        let length = self.remaining().map(|left| self.received.saturating_add(left));
        match (length, self.max_length) {
            (Some(length), Some(max)) if length > max => Err(BodyError::TooLarge),
            _ => Ok(()),
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
            let frame = match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return self.poll_late(cx),
            };
            self.deadline.note_progress();
            if self.min_rate.is_some() {
                self.pace.note_data(Instant::now());
            }
            let data = match frame {
                // A peer that resets its stream has not sent a whole message, whatever reason it
                // gives: hyper takes one of them for the end of the body.
                None if !incoming.is_end_stream() => {
                    let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Some(Err(BodyError::Io(ended))));
                }
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(BodyError::Io(cut_off(error)))));
                }
                Some(Ok(frame)) => frame.into_data(),
            };
            match data {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Poll::Ready(Some(self.check_size(data))),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Ready once the body is too slow, or has stood still for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut is_slow = false;
        if let Some((rate, stall_timeout)) = self.min_rate {
            let now = Instant::now();
            let late = self.pace.wait(rate, self.received, now);
            let stalled = self.pace.waits_since(now) + stall_timeout;
            is_slow = late <= stalled;
            self.deadline.set(late.min(stalled));
        }
        let timed_out: io::Result<()> = ready!(self.deadline.poll(cx));
        Poll::Ready(
            timed_out
                .err()
                .map(|error| Err(if is_slow { BodyError::TooSlow } else { error.into() })),
        )
    }

    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// What stood behind the body, once it has ended.
    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    fn check_size(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        self.received += data.len() as u64;
        match self.max_length {
            Some(max) if self.received > max => Err(BodyError::TooLarge),
            _ => Ok(data),
        }
    }
}

/// What a body failed by. hyper resets the other side's stream with the code that it finds in there: the
/// code of the peer's own reset is passed on, what the codec holds against the peer is not.
fn cut_off(error: hyper::Error) -> io::Error {
    let codec = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    match codec.is_some_and(|codec| codec.is_remote() && codec.is_reset()) {
        true => io::Error::other(error),
        false => io::Error::other(error.to_string()),
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        if let (Some(incoming), Some(lingering)) = (self.incoming.take(), self.lingering.take()) {
            unread_body::discard(incoming, lingering);
        }
    }
}
