//! The client's side of a connection: its stream, and how far the current body has been read.
//!
//! The connection's own loop and the body that travels through the gateway share this. Both run
//! in one task and borrow it only within a single poll.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::{BodyError, BufferedStream, Decoder};

#[derive(Debug)]
pub(crate) struct Inbound {
    pub io: BufferedStream,
    pub(crate) decoder: Decoder,
    /// The client waits for `100 Continue` before it sends its body.
    pub(crate) awaits_continue: bool,
    /// The body could not be read, so where the next request starts is unknown.
    pub(crate) broken: bool,
    received: u64,
    max_body: Option<u64>,
    stall_timeout: Duration,
}

impl Inbound {
    pub(crate) fn new(io: BufferedStream) -> Self {
        Inbound {
            io,
            decoder: Decoder::DONE,
            awaits_continue: false,
            broken: false,
            received: 0,
            max_body: None,
            stall_timeout: Duration::MAX,
        }
    }

    /// Starts on the body of the next request.
    pub(crate) fn expect_body(
        &mut self,
        decoder: Decoder,
        max: Option<u64>,
        stall_timeout: Duration,
    ) {
        self.decoder = decoder;
        self.received = 0;
        self.max_body = max;
        self.stall_timeout = stall_timeout;
        self.io.clear_deadline();
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

    pub(crate) fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    /// The next piece of the body. Sends `100 Continue` first if the client waits for that.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.decoder.is_done() {
            return Poll::Ready(None);
        }
        if self.awaits_continue {
            self.awaits_continue = false;
            if self.io.read_buf.is_empty() {
                self.io.write_buf().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
        if !self.decoder.is_ready(&self.io) {
            self.io.set_stall_timeout(self.stall_timeout);
            let _ = self.io.poll_flush(cx)?;
        }
        let next = ready!(self.decoder.poll(&mut self.io, cx));
        let next = next.map(|data| data.and_then(|data| self.check_size(data)));
        self.broken |= matches!(next, Some(Err(_)));
        if self.decoder.is_done() {
            self.io.clear_deadline();
        }
        Poll::Ready(next)
    }

    fn check_size(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        self.received += data.len() as u64;
        match self.max_body {
            Some(max) if self.received > max => Err(BodyError::TooLarge),
            _ => Ok(data),
        }
    }
}
