//! Reading a body from a connection, whatever its framing.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::chunked::{ChunkError, Chunked, Step};
use super::{BufferedStream, Framing};

/// Reads one body and knows when it is over.
#[derive(Debug)]
pub(crate) struct Decoder(Remaining);

#[derive(Debug)]
enum Remaining {
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
    #[error("the body came too slowly")]
    TooSlow,
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

/// The next piece of a body; `None` at its end.
pub(crate) type PollData = Poll<Option<Result<Bytes, BodyError>>>;

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => BodyError::TimedOut,
            _ => BodyError::Io(error),
        }
    }
}

impl Decoder {
    pub(crate) const DONE: Decoder = Decoder(Remaining::Nothing);

    pub(crate) fn new(framing: Framing) -> Self {
        Decoder(match framing {
            Framing::Empty | Framing::Length(0) => Remaining::Nothing,
            Framing::Length(length) => Remaining::Length(length),
            Framing::Chunked => Remaining::Chunked(Chunked::default()),
            Framing::UntilClose => Remaining::UntilClose,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.0, Remaining::Nothing)
    }

    /// How many bytes are left, if the framing says so.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self.0 {
            Remaining::Nothing => Some(0),
            Remaining::Length(left) => Some(left),
            Remaining::Chunked(_) | Remaining::UntilClose => None,
        }
    }

    /// Whether the next piece may be there without a read from the socket.
    pub(crate) fn is_ready(&self, io: &BufferedStream) -> bool {
        self.is_done() || !io.read_buf.is_empty()
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) fn poll(&mut self, io: &mut BufferedStream, cx: &mut Context<'_>) -> PollData {
        loop {
            match self.take(io) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Step::End) => {
                    self.0 = Remaining::Nothing;
                    return Poll::Ready(None);
                }
                Ok(Step::More) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            let large = self.remaining().is_none_or(|left| left > 4096);
            match ready!(io.poll_fill(cx, large)) {
                Ok(0) if matches!(self.0, Remaining::UntilClose) => self.0 = Remaining::Nothing,
                Ok(0) => return Poll::Ready(Some(Err(BodyError::Truncated))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    fn take(&mut self, io: &mut BufferedStream) -> Result<Step, BodyError> {
        match &mut self.0 {
            Remaining::Nothing => Ok(Step::End),
            Remaining::Chunked(chunked) => Ok(chunked.decode(&mut io.read_buf)?),
            _ if io.read_buf.is_empty() => Ok(Step::More),
            Remaining::UntilClose => Ok(Step::Data(io.read_buf.split().freeze())),
            Remaining::Length(left) => {
                let held = io.read_buf.len();
                let take = usize::try_from(*left).map_or(held, |left| left.min(held));
                *left -= take as u64;
                if *left == 0 {
                    self.0 = Remaining::Nothing;
                }
                Ok(Step::Data(io.read_buf.split_to(take).freeze()))
            }
        }
    }
}
