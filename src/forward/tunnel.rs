//! Bytes both ways after a protocol switch, until both sides have finished, or one has and the other
//! is silent.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::http1::BufferedStream;
use crate::upstream::Upgraded;

/// Once one side has finished, the other may be silent for this long. Most protocols have nothing
/// more to say then, and a peer that says nothing and does not close would hold the other's socket
/// and its slots for as long as it likes.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(5);

/// The upstream's end of a tunnel, and how far each direction has come.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Upgraded,
    up: Direction,
    down: Direction,
    half_closed_timeout: Duration,
}

impl Tunnel {
    pub fn new(upstream: Upgraded) -> Self {
        Tunnel {
            upstream,
            up: Direction::Open,
            down: Direction::Open,
            half_closed_timeout: HALF_CLOSED_TIMEOUT,
        }
    }

    /// Has the tunnel end when no byte passes for so long. What passes in either direction passes
    /// both sockets, so either may tell.
    pub fn set_timeout(&mut self, client: &mut BufferedStream, timeout: Duration) {
        client.set_stall_timeout(timeout);
        self.upstream.io.set_stall_timeout(timeout);
        self.half_closed_timeout = timeout.min(HALF_CLOSED_TIMEOUT);
    }

    /// Carries what there is to carry. Ready when both directions have ended.
    ///
    /// # Errors
    /// `TimedOut` if nothing moves any more.
    pub fn poll(
        &mut self,
        client: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let upstream = &mut self.upstream.io;
        let mut up = self.up.poll(client, upstream, cx)?;
        if up.is_ready() {
            upstream.set_stall_timeout(self.half_closed_timeout);
        }
        let down = self.down.poll(upstream, client, cx)?;
        if up.is_pending() && down.is_ready() {
            client.set_stall_timeout(self.half_closed_timeout);
            // Once more, to wait for no longer than that.
            up = self.up.poll(client, upstream, cx)?;
        }
        let over = match (up.is_ready(), down.is_ready()) {
            (true, true) => true,
            // What is still said would reach nobody.
            (true, false) => client.is_reset(),
            (false, true) => upstream.is_reset(),
            (false, false) => false,
        };
        if over { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// One direction.
#[derive(Debug)]
enum Direction {
    Open,
    /// The sender has finished; the receiver is being told.
    Closing,
    Closed,
}

impl Direction {
    /// Ready when it has ended. A socket that fails ends what it was to send or receive; the other
    /// direction may still have something to deliver.
    fn poll(
        &mut self,
        from: &mut BufferedStream,
        to: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self {
                Direction::Closed => return Poll::Ready(Ok(())),
                Direction::Closing => {
                    unless_timed_out(ready!(to.poll_shutdown(cx)))?;
                    *self = Direction::Closed;
                }
                Direction::Open => {
                    if unless_timed_out(ready!(to.poll_flush(cx)))?.is_none() {
                        *self = Direction::Closed;
                    } else if !from.read_buf.is_empty() {
                        to.queue(from.read_buf.split().freeze());
                    } else {
                        let read = unless_timed_out(ready!(from.poll_fill(cx, true)))?;
                        if read.unwrap_or(0) == 0 {
                            *self = Direction::Closing;
                        }
                    }
                }
            }
        }
    }
}

/// `None` if the socket has failed. Only a timeout is an error: it ends the whole tunnel.
fn unless_timed_out<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        Err(_) => Ok(None),
    }
}
