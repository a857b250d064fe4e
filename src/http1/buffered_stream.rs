//! One connection with its two buffers and its deadline.
//!
//! A [`BufferedStream`] is only ever polled from the task that owns it at the moment.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::protocol::Scheme;
use crate::stream::Stream;

/// Room for a typical head, in one read.
const READ_SMALL: usize = 4 * 1024;
/// Room for a piece of a body.
const READ_LARGE: usize = 64 * 1024;
/// Past this much unsent, a writer waits for the peer.
const HIGH_WATER: usize = 64 * 1024;
/// Pieces up to this size are copied behind what is already buffered: one write, no iovec.
const COPY_MAX: usize = 8 * 1024;

#[derive(Debug)]
pub struct BufferedStream {
    stream: Stream,
    pub read_buf: BytesMut,
    /// The largest that the buffer behind `read_buf` has been: what was split off it does not show in
    /// its capacity.
    read_capacity: usize,
    write_buf: Vec<u8>,
    /// How much of the write buffer is already gone.
    sent: usize,
    /// A large piece that follows the write buffer without being copied into it.
    tail: Bytes,
    deadline: Deadline,
    eof: bool,
}

/// What a peer has done on an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleEvent {
    /// It has sent something.
    Data,
    /// It has closed or reset the connection.
    Closed,
}

impl BufferedStream {
    pub(crate) fn new(stream: Stream) -> Self {
        BufferedStream {
            stream,
            read_buf: BytesMut::new(),
            read_capacity: 0,
            write_buf: Vec::new(),
            sent: 0,
            tail: Bytes::new(),
            deadline: Deadline::default(),
            eof: false,
        }
    }

    /// The stream itself, and what was read from it and not used yet, for another codec.
    pub(crate) fn into_parts(self) -> (Stream, BytesMut) {
        debug_assert!(self.is_flushed(), "what is queued would be lost");
        (self.stream, self.read_buf)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The scheme of the requests that come over it.
    pub fn scheme(&self) -> Scheme {
        self.stream.scheme()
    }

    /// The address at the other end, if it has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.stream.peer_address()
    }

    /// Whether the peer has chosen HTTP/2 by ALPN.
    pub fn has_negotiated_http2(&self) -> bool {
        self.stream.has_negotiated_http2()
    }

    /// Whether it has chosen HTTP/1.1.
    pub fn has_negotiated_http1(&self) -> bool {
        self.stream.has_negotiated_http1()
    }

    /// From now on, waiting for the peer past `at` is an error of kind `TimedOut`.
    pub fn set_deadline(&mut self, at: Instant) {
        self.deadline.set(at);
    }

    /// From now on, waiting for the peer while nothing moves for this long is such an error.
    pub fn set_stall_timeout(&mut self, timeout: Duration) {
        self.deadline.set_stall_timeout(timeout);
    }

    pub fn clear_deadline(&mut self) {
        self.deadline.clear();
    }

    /// Reads more into the read buffer. `Ok(0)`: the peer has finished sending.
    ///
    /// # Errors
    /// Those of the socket, and `TimedOut` past the deadline.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, large: bool) -> Poll<io::Result<usize>> {
        match self.poll_fill_no_deadline(cx, large) {
            Poll::Pending => self.deadline.poll(cx),
            ready => ready,
        }
    }

    /// The same without a deadline, for data that need not come.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_fill_no_deadline(
        &mut self,
        cx: &mut Context<'_>,
        large: bool,
    ) -> Poll<io::Result<usize>> {
        if self.eof {
            return Poll::Ready(Ok(0));
        }
        let room = if large { READ_LARGE } else { READ_SMALL };
        if self.read_buf.capacity() - self.read_buf.len() < room / 4 {
            self.read_buf.reserve(room);
            self.read_capacity = self.read_capacity.max(self.read_buf.capacity());
        }
        match self.stream.poll_read(cx, &mut self.read_buf) {
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                Poll::Ready(Ok(0))
            }
            Poll::Ready(read) => {
                self.deadline.note_progress();
                Poll::Ready(read)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether the peer has finished sending, however much is still to be read before that.
    pub fn is_read_closed(&self) -> bool {
        self.eof || self.stream.is_read_closed()
    }

    /// Whether the peer has reset the connection, however much is still to be read before that.
    pub fn is_reset(&self) -> bool {
        self.stream.is_reset()
    }

    /// What the peer did while the connection was idle. It must not be used again then: a stray
    /// response would be taken for the answer to the next request, and reach the wrong client.
    /// `polled`: the runtime has asked the kernel since the connection fell idle, so this needs no
    /// system call.
    pub fn idle_event(&mut self, polled: bool) -> Option<IdleEvent> {
        if !self.read_buf.is_empty() {
            return Some(IdleEvent::Data);
        }
        match self.stream.try_read_idle(polled) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(0) | Err(_) => Some(IdleEvent::Closed),
            Ok(_) => Some(IdleEvent::Data),
        }
    }

    /// Gives back memory that a large message has left behind.
    pub fn shrink(&mut self) {
        if self.read_buf.is_empty() && self.read_capacity > READ_LARGE / 4 {
            self.read_buf = BytesMut::new();
            self.read_capacity = 0;
        }
        if self.write_buf.is_empty() && self.write_buf.capacity() > HIGH_WATER / 4 {
            self.write_buf = Vec::new();
        }
    }

    /// The buffer that the next flush sends first.
    pub fn write_buf(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.tail.is_empty(), "the write_buf must not overtake its tail");
        &mut self.write_buf
    }

    /// Queues a piece of a body. The caller flushes before queueing past [`HIGH_WATER`].
    pub fn queue(&mut self, data: Bytes) {
        debug_assert!(self.tail.is_empty());
        if data.len() <= COPY_MAX {
            self.write_buf.extend_from_slice(&data);
        } else {
            self.tail = data;
        }
    }

    /// Whether nothing more may be queued before a flush.
    pub fn is_full(&self) -> bool {
        !self.tail.is_empty() || self.write_buf.len() >= HIGH_WATER
    }

    /// Whether something is queued and nothing of it was sent.
    pub fn is_unsent(&self) -> bool {
        self.sent == 0 && !self.write_buf.is_empty()
    }

    pub fn is_flushed(&self) -> bool {
        self.write_buf.is_empty() && self.tail.is_empty()
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// Those of the socket, and `TimedOut` past the deadline.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            let stream = &mut self.stream;
            let front = &self.write_buf[self.sent..];
            let written = if self.tail.is_empty() {
                stream.poll_write(cx, front)
            } else if front.is_empty() {
                stream.poll_write(cx, &self.tail)
            } else {
                let pieces = [io::IoSlice::new(front), io::IoSlice::new(&self.tail)];
                stream.poll_write_vectored(cx, &pieces)
            };
            match written {
                Poll::Pending => return self.deadline.poll(cx),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => {
                    self.deadline.note_progress();
                    let head = sent.min(self.write_buf.len() - self.sent);
                    self.sent += head;
                    self.tail.advance(sent - head);
                    if self.tail.is_empty() {
                        // Even empty it would hold on to the buffer that it was read into.
                        self.tail = Bytes::new();
                    }
                    if self.sent == self.write_buf.len() {
                        self.write_buf.clear();
                        self.sent = 0;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        if !self.stream.holds_back() {
            return Poll::Ready(Ok(()));
        }
        match self.stream.poll_flush(cx) {
            Poll::Pending => self.deadline.poll(cx),
            flushed => flushed,
        }
    }

    /// Sends what is queued, then tells the peer that nothing more will come.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.stream.poll_shutdown(cx)
    }

    /// Makes dropping this connection reset it, where an orderly end would be taken for the end of
    /// the message.
    pub fn reset_on_close(&self) {
        self.stream.reset_on_close();
    }
}
