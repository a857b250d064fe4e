//! Bytes both ways after a protocol switch, until both sides have finished.

use std::io;
use std::task::{Context, Poll, ready};

use crate::http1::Wire;
use crate::upstream::Slot;

/// The upstream's end of a tunnel, and how far each direction has come.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Box<Wire>,
    /// Counted as a request for as long as it lasts.
    _slot: Slot,
    up: Direction,
    down: Direction,
}

impl Tunnel {
    #[must_use]
    pub fn new(upstream: Box<Wire>, slot: Slot) -> Self {
        Tunnel { upstream, _slot: slot, up: Direction::Open, down: Direction::Open }
    }

    /// Carries what there is to carry. Ready when both directions have ended.
    ///
    /// # Errors
    /// Those of either socket: the tunnel is broken then.
    pub fn poll(&mut self, client: &mut Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let up = self.up.poll(client, &mut self.upstream, cx)?;
        let down = self.down.poll(&mut self.upstream, client, cx)?;
        if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
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
    fn poll(
        &mut self,
        from: &mut Wire,
        to: &mut Wire,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self {
                Direction::Closed => return Poll::Ready(Ok(())),
                Direction::Closing => {
                    ready!(to.poll_finish(cx))?;
                    *self = Direction::Closed;
                }
                Direction::Open => {
                    ready!(to.poll_flush(cx))?;
                    if !from.inbox.is_empty() {
                        to.queue(from.inbox.split().freeze());
                    } else if ready!(from.poll_fill(cx, true))? == 0 {
                        *self = Direction::Closing;
                    }
                }
            }
        }
    }
}
