//! Sending the body of a request to an upstream, behind its head.

use std::io;
use std::task::{Context, Poll};

use super::ExchangeError;
use crate::body::Body;
use crate::http1::{BufferedStream, Framing, encode};

/// A body on its way out, and how far it has come.
#[derive(Debug)]
pub(super) struct BodySender {
    body: Body,
    chunked: bool,
    state: SendState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Body,
    /// A chunk is queued whose closing line is not.
    ChunkEnd,
    Flush,
    Done,
    /// The upstream no longer reads; it may still answer.
    Refused,
}

impl BodySender {
    pub(super) fn new(body: Body) -> Self {
        let framing = body.framing();
        let chunked = framing == Framing::Chunked;
        let empty = matches!(framing, Framing::Empty | Framing::Length(0));
        let state = if empty { SendState::Flush } else { SendState::Body };
        BodySender { body, chunked, state }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == SendState::Done
    }

    /// Whether no more of the body is to come from the client.
    pub(super) fn is_body_sent(&self) -> bool {
        !matches!(self.state, SendState::Body | SendState::ChunkEnd)
    }

    pub(super) fn waits_for_client(&self, io: &BufferedStream) -> bool {
        !self.is_body_sent() && io.is_flushed()
    }

    /// Sends what can be sent now, and says whether anything moved.
    pub(super) fn poll(
        &mut self,
        io: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Result<bool, ExchangeError> {
        let mut moved = false;
        loop {
            if matches!(self.state, SendState::Done | SendState::Refused) {
                return Ok(moved);
            }
            if self.state == SendState::Flush || io.is_full() {
                match io.poll_flush(cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Err(error)) => self.fail(&error)?,
                    Poll::Ready(Ok(())) if self.state == SendState::Flush => {
                        self.state = SendState::Done;
                    }
                    Poll::Ready(Ok(())) => {}
                }
                moved = true;
                continue;
            }
            if self.state == SendState::ChunkEnd {
                io.write_buf().extend_from_slice(encode::CHUNK_END);
                self.state = SendState::Body;
            }
            match self.body.poll_data(cx) {
                Poll::Ready(Some(data)) => {
                    let data = data.map_err(ExchangeError::Request)?;
                    if self.chunked {
                        encode::chunk_size(io.write_buf(), data.len());
                        self.state = SendState::ChunkEnd;
                    }
                    io.queue(data);
                }
                Poll::Ready(None) => {
                    if self.chunked {
                        io.write_buf().extend_from_slice(encode::LAST_CHUNK);
                    }
                    self.state = SendState::Flush;
                }
                Poll::Pending => {
                    // Nothing to add for now: let what is there go.
                    if let Poll::Ready(Err(error)) = io.poll_flush(cx) {
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
        self.state = SendState::Refused;
        match error.kind() {
            io::ErrorKind::TimedOut => Err(ExchangeError::TimedOut),
            _ => Ok(()),
        }
    }
}
