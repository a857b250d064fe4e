//! The client's side of a connection: its wire, and how far the current body has been read.
//!
//! The connection's own loop and the body that travels through the gateway share this. Both run
//! in one task and borrow it only within a single poll.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::{BodyError, Decoder, Wire};

#[derive(Debug)]
pub struct Inbound {
    pub wire: Wire,
    pub(crate) decoder: Decoder,
    /// The client waits for `100 Continue` before it sends its body.
    pub(crate) awaits_continue: bool,
    /// The body could not be read: nothing behind it can be understood.
    pub(crate) broken: bool,
    received: u64,
    max_body: Option<u64>,
    stall: Duration,
}

impl Inbound {
    #[must_use]
    pub fn new(wire: Wire) -> Self {
        Inbound {
            wire,
            decoder: Decoder::DONE,
            awaits_continue: false,
            broken: false,
            received: 0,
            max_body: None,
            stall: Duration::MAX,
        }
    }

    /// Starts on the body of the next request.
    pub(crate) fn expect_body(&mut self, decoder: Decoder, max: Option<u64>, stall: Duration) {
        self.decoder = decoder;
        self.received = 0;
        self.max_body = max;
        self.stall = stall;
        self.wire.clear_deadline();
    }

    /// Refuses a body whose length is known to be too large, before any of it is read.
    pub(crate) fn refuse_too_large(&mut self) -> Result<(), BodyError> {
        match (self.remaining(), self.max_body) {
            (Some(length), Some(max)) if self.received + length > max => {
                self.broken = true;
                Err(BodyError::TooLarge)
            }
            _ => Ok(()),
        }
    }

    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    /// The next piece of the body; asks the client to go on if it waits for that.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.decoder.is_done() {
            return Poll::Ready(None);
        }
        if self.awaits_continue {
            self.awaits_continue = false;
            if self.wire.inbox.is_empty() {
                self.wire.outbox().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
        if !self.decoder.is_ready(&self.wire) {
            self.wire.set_patience(self.stall);
            let _ = self.wire.poll_flush(cx)?;
        }
        let next = ready!(self.decoder.poll(&mut self.wire, cx));
        let next = next.map(|data| data.and_then(|data| self.weigh(data)));
        self.broken |= matches!(next, Some(Err(_)));
        if self.decoder.is_done() {
            self.wire.clear_deadline();
        }
        Poll::Ready(next)
    }

    fn weigh(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        self.received += data.len() as u64;
        match self.max_body {
            Some(max) if self.received > max => Err(BodyError::TooLarge),
            _ => Ok(data),
        }
    }
}
