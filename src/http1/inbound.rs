//! The client's side of a connection: its stream, and how far the current body has been read.
//!
//! The connection's own loop and the body that travels through the gateway share this. Both run
//! in one task and borrow it only within a single poll.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{BodyError, BodyPace, BufferedStream, Decoder, PollData};
use crate::config::settings::MinBodyRate;

/// What a body may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// Bytes; `None`: any number.
    pub max: Option<u64>,
    /// How long it may stand still.
    pub stall_timeout: Duration,
    /// How fast it has to come.
    pub min_rate: Option<MinBodyRate>,
}

#[derive(Debug)]
pub(crate) struct Inbound {
    pub io: BufferedStream,
    pub(crate) decoder: Decoder,
    /// The client waits for `100 Continue` before it sends its body.
    pub(crate) awaits_continue: bool,
    /// The body could not be read, so where the next request starts is unknown.
    pub(crate) broken: bool,
    received: u64,
    limits: BodyLimits,
    pace: BodyPace,
}

/// Which of two deadlines comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadline {
    Rate,
    Stall,
}

impl Inbound {
    pub(crate) fn new(io: BufferedStream) -> Self {
        Inbound {
            io,
            decoder: Decoder::DONE,
            awaits_continue: false,
            broken: false,
            received: 0,
            limits: BodyLimits { max: None, stall_timeout: Duration::MAX, min_rate: None },
            pace: BodyPace::default(),
        }
    }

    /// Starts on the body of the next request.
    pub(crate) fn expect_body(&mut self, decoder: Decoder, limits: BodyLimits) {
        self.decoder = decoder;
        self.received = 0;
        self.limits = limits;
        self.pace = BodyPace::default();
        self.io.clear_deadline();
    }

    /// Has the body be no larger than that, whatever was said before.
    pub(crate) fn set_max_body(&mut self, max: Option<u64>) {
        self.limits.max = max;
    }

    /// Refuses a body whose length is known to be too large, before any of it is read.
    pub(crate) fn reject_too_large(&mut self) -> Result<(), BodyError> {
        match (self.remaining(), self.limits.max) {
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
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> PollData {
        if self.decoder.is_done() {
            return Poll::Ready(None);
        }
        if self.awaits_continue {
            self.awaits_continue = false;
            if self.io.read_buf.is_empty() {
                self.io.write_buf().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
        let paced = self.limits.min_rate.map(|rate| self.set_paced_deadline(rate));
        if paced.is_none() {
            // Also if something is there: it may be part of what frames the next piece.
            self.io.set_stall_timeout(self.limits.stall_timeout);
        }
        if !self.decoder.is_ready(&self.io) {
            let _ = self.io.poll_flush(cx)?;
        }
        let next = ready!(self.decoder.poll(&mut self.io, cx));
        let next = next.map(|data| match data {
            Ok(data) => self.check_size(data),
            Err(BodyError::TimedOut) if paced == Some(Deadline::Rate) => Err(BodyError::TooSlow),
            Err(error) => Err(error),
        });
        if paced.is_some() {
            self.pace.note_data(Instant::now());
        }
        self.broken |= matches!(next, Some(Err(_)));
        if self.decoder.is_done() {
            self.io.clear_deadline();
        }
        Poll::Ready(next)
    }

    /// Has the stream wait until the body is too slow, or has stood still for too long.
    fn set_paced_deadline(&mut self, rate: MinBodyRate) -> Deadline {
        let now = Instant::now();
        let late = self.pace.wait(rate, self.received, now);
        let stalled = self.pace.waits_since(now) + self.limits.stall_timeout;
        self.io.set_deadline(late.min(stalled));
        if late <= stalled { Deadline::Rate } else { Deadline::Stall }
    }

    fn check_size(&mut self, data: Bytes) -> Result<Bytes, BodyError> {
        self.received += data.len() as u64;
        match self.limits.max {
            Some(max) if self.received > max => Err(BodyError::TooLarge),
            _ => Ok(data),
        }
    }
}
