//! A connection in the form hyper reads and writes, with what was read from it before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::http1::BufferedStream;
use crate::stream::{Stream, write_through_stream};

/// A stream whose first bytes were read already, to find out which protocol it speaks.
#[derive(Debug)]
pub(crate) struct ConnectionIo {
    /// What comes before anything from the stream.
    prefix: BytesMut,
    stream: Stream,
}

impl From<BufferedStream> for ConnectionIo {
    fn from(io: BufferedStream) -> Self {
        let (stream, prefix) = io.into_parts();
        ConnectionIo { prefix, stream }
    }
}

impl AsyncRead for ConnectionIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..length]);
        self.prefix.advance(length);
        if self.prefix.is_empty() {
            // Even empty it would hold on to its buffer.
            self.prefix = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

write_through_stream!(ConnectionIo);
