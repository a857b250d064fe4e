//! One connection with its two buffers and its deadline.
//!
//! A [`Wire`] is only ever polled from the task that owns it at the moment. Its timer is lazy:
//! setting a deadline stores an instant, and the timer behind it is re-armed only when it fires
//! too early, so a connection that serves a thousand requests a second touches the timer wheel
//! once per timeout and not once per request.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// Room for a typical head, in one read.
const READ_SMALL: usize = 4 * 1024;
/// Room for a piece of a body.
const READ_LARGE: usize = 64 * 1024;
/// Past this much unsent, a writer waits for the peer.
pub const WRITE_HIGH: usize = 64 * 1024;
/// Pieces up to this size are copied behind what is already buffered: one write, no iovec.
const COPY_MAX: usize = 8 * 1024;

#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    pub inbox: BytesMut,
    outbox: Vec<u8>,
    /// How much of the outbox is already gone.
    sent: usize,
    /// A large piece that follows the outbox without being copied into it.
    tail: Bytes,
    deadline: Deadline,
    eof: bool,
}

/// What a peer does on an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    Sent,
    Left,
}

impl Wire {
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Wire {
            stream,
            inbox: BytesMut::new(),
            outbox: Vec::new(),
            sent: 0,
            tail: Bytes::new(),
            deadline: Deadline::default(),
            eof: false,
        }
    }

    /// From now on, waiting for the peer past `at` is an error of kind `TimedOut`.
    pub fn set_deadline(&mut self, at: Instant) {
        self.deadline.at = Some(at);
        self.deadline.patience = None;
    }

    /// From now on, waiting for the peer while nothing moves for this long is such an error.
    pub fn set_patience(&mut self, patience: Duration) {
        if self.deadline.patience != Some(patience) {
            self.deadline.at = None;
            self.deadline.patience = Some(patience);
        }
    }

    pub fn clear_deadline(&mut self) {
        self.deadline.at = None;
        self.deadline.patience = None;
    }

    /// Reads more into the inbox. `Ok(0)`: the peer has finished sending.
    ///
    /// # Errors
    /// Those of the socket, and `TimedOut` past the deadline.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, large: bool) -> Poll<io::Result<usize>> {
        match self.poll_news(cx, large) {
            Poll::Pending => self.deadline.poll(cx),
            ready => ready,
        }
    }

    /// The same, whatever the deadline: for what need not come.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_news(&mut self, cx: &mut Context<'_>, large: bool) -> Poll<io::Result<usize>> {
        if self.eof {
            return Poll::Ready(Ok(0));
        }
        let room = if large { READ_LARGE } else { READ_SMALL };
        if self.inbox.capacity() - self.inbox.len() < room / 4 {
            self.inbox.reserve(room);
        }
        match pin!(self.stream.read_buf(&mut self.inbox)).poll(cx) {
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                Poll::Ready(Ok(0))
            }
            Poll::Ready(read) => {
                self.deadline.moved();
                Poll::Ready(read)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether the peer has finished sending, however much is still to be read before that.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = pin!(self.stream.ready(Interest::READABLE)).poll(&mut cx);
        self.eof || matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Whether the peer has reset the connection, however much is still to be read before that.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = pin!(self.stream.ready(Interest::WRITABLE)).poll(&mut cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_write_closed())
    }

    /// What the peer did while nobody was asking: the connection is of no use then. A stray answer
    /// taken for the next one would go to the wrong client. The runtime knows, if it has asked the
    /// kernel for news since; otherwise the kernel is asked.
    #[must_use]
    pub fn disturbance(&self, runtime_knows: bool) -> Option<Disturbance> {
        if !self.inbox.is_empty() {
            return Some(Disturbance::Sent);
        }
        let read = if runtime_knows {
            // Without a word from the runtime this is no system call.
            self.stream.try_read(&mut [0])
        } else {
            socket2::SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()])
        };
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(0) | Err(_) => Some(Disturbance::Left),
            Ok(_) => Some(Disturbance::Sent),
        }
    }

    /// Gives back memory that a large message has left behind.
    pub fn slim(&mut self) {
        if self.inbox.is_empty() && self.inbox.capacity() > READ_LARGE / 4 {
            self.inbox = BytesMut::new();
        }
        if self.outbox.is_empty() && self.outbox.capacity() > WRITE_HIGH / 4 {
            self.outbox = Vec::new();
        }
    }

    /// The buffer that the next flush sends first.
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.tail.is_empty(), "the outbox must not overtake its tail");
        &mut self.outbox
    }

    /// Queues a piece of a body. The caller flushes before queueing past [`WRITE_HIGH`].
    pub fn queue(&mut self, data: Bytes) {
        debug_assert!(self.tail.is_empty());
        if data.len() <= COPY_MAX {
            self.outbox.extend_from_slice(&data);
        } else {
            self.tail = data;
        }
    }

    /// Whether nothing more may be queued before a flush.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.tail.is_empty() || self.outbox.len() >= WRITE_HIGH
    }

    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.tail.is_empty()
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// Those of the socket, and `TimedOut` past the deadline.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            let stream = Pin::new(&mut self.stream);
            let front = &self.outbox[self.sent..];
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
                    self.deadline.moved();
                    let head = sent.min(self.outbox.len() - self.sent);
                    self.sent += head;
                    self.tail.advance(sent - head);
                    if self.sent == self.outbox.len() {
                        self.outbox.clear();
                        self.sent = 0;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the peer that nothing more will come.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Makes dropping this connection reset it, where an orderly end would tell a lie.
    pub fn reset_on_close(&self) {
        // If it cannot be set the connection merely ends in order.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Has the kernel find out about peers that vanished without a word: a tunnel may be silent for
/// hours and has no deadline.
pub fn keep_alive(stream: &impl std::os::fd::AsFd) {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    // A socket that refuses works just as well while its peer does.
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// A timer that is re-armed only when it fires before its time.
#[derive(Debug, Default)]
struct Deadline {
    at: Option<Instant>,
    /// How long after the last movement, where that and not a fixed instant is meant.
    patience: Option<Duration>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    fn moved(&mut self) {
        if self.patience.is_some() {
            self.at = None;
        }
    }

    fn poll<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let at = match (self.at, self.patience) {
            (Some(at), _) => at,
            // The clock is asked only now that there is something to wait for.
            (None, Some(patience)) => *self.at.insert(Instant::now() + patience),
            (None, None) => return Poll::Pending,
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= at {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            sleep.as_mut().reset(at);
        }
    }
}
