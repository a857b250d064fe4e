//! A body as it comes off the wire, whatever its framing.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::chunked::{ChunkError, Chunked, Step};
use super::{Framing, Wire};

/// Reads one body and knows when it is over.
#[derive(Debug)]
pub struct Decoder(Left);

#[derive(Debug)]
enum Left {
    Nothing,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body ended before its announced end")]
    Truncated,
    #[error("the body's chunked coding is malformed")]
    Chunk(#[from] ChunkError),
    #[error("the body stood still for too long")]
    TimedOut,
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => BodyError::TimedOut,
            _ => BodyError::Io(error),
        }
    }
}

impl Decoder {
    pub const DONE: Decoder = Decoder(Left::Nothing);

    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Decoder(match framing {
            Framing::Empty | Framing::Length(0) => Left::Nothing,
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunked(Chunked::default()),
            Framing::UntilClose => Left::UntilClose,
        })
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.0, Left::Nothing)
    }

    /// What is left, where the framing says so.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.0 {
            Left::Nothing => Some(0),
            Left::Length(left) => Some(left),
            Left::Chunked(_) | Left::UntilClose => None,
        }
    }

    /// Whether the next piece can be had without asking the socket.
    #[must_use]
    pub fn is_ready(&self, wire: &Wire) -> bool {
        self.is_done() || !wire.inbox.is_empty()
    }

    /// The next piece of the body; `None` at its end.
    pub fn poll(
        &mut self,
        wire: &mut Wire,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match self.take(wire) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Step::End) => {
                    self.0 = Left::Nothing;
                    return Poll::Ready(None);
                }
                Ok(Step::More) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            let large = self.remaining().is_none_or(|left| left > 4096);
            match ready!(wire.poll_fill(cx, large)) {
                Ok(0) if matches!(self.0, Left::UntilClose) => self.0 = Left::Nothing,
                Ok(0) => return Poll::Ready(Some(Err(BodyError::Truncated))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    fn take(&mut self, wire: &mut Wire) -> Result<Step, BodyError> {
        match &mut self.0 {
            Left::Nothing => Ok(Step::End),
            Left::Chunked(chunked) => Ok(chunked.decode(&mut wire.inbox)?),
            _ if wire.inbox.is_empty() => Ok(Step::More),
            Left::UntilClose => Ok(Step::Data(wire.inbox.split().freeze())),
            Left::Length(left) => {
                let held = wire.inbox.len();
                let take = usize::try_from(*left).map_or(held, |left| left.min(held));
                *left -= take as u64;
                if *left == 0 {
                    self.0 = Left::Nothing;
                }
                Ok(Step::Data(wire.inbox.split_to(take).freeze()))
            }
        }
    }
}
