//! Bytes both ways after a protocol switch, until both sides have finished.

use std::io;
use std::task::{Context, Poll, ready};

use crate::gateway::RequestEnd;
use crate::http1::BufferedStream;
use crate::upstream::Upgraded;

/// The upstream's end of a tunnel, and how far each direction has come.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Upgraded,
    up: Direction,
    down: Direction,
    /// What ends with the tunnel.
    request_end: Option<RequestEnd>,
}

impl Tunnel {
    pub fn new(upstream: Upgraded) -> Self {
        Tunnel { upstream, up: Direction::Open, down: Direction::Open, request_end: None }
    }

    pub(crate) fn attach(&mut self, end: RequestEnd) {
        self.request_end = Some(end);
    }

    /// Carries what there is to carry. Ready when both directions have ended.
    ///
    /// # Errors
    /// Those of either socket: the tunnel is broken then.
    pub fn poll(
        &mut self,
        client: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let upstream = &mut self.upstream.io;
        let up = self.up.poll(client, upstream, cx)?;
        let down = self.down.poll(upstream, client, cx)?;
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
        from: &mut BufferedStream,
        to: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self {
                Direction::Closed => return Poll::Ready(Ok(())),
                Direction::Closing => {
                    ready!(to.poll_shutdown(cx))?;
                    *self = Direction::Closed;
                }
                Direction::Open => {
                    ready!(to.poll_flush(cx))?;
                    if !from.read_buf.is_empty() {
                        to.queue(from.read_buf.split().freeze());
                    } else if ready!(from.poll_fill(cx, true))? == 0 {
                        *self = Direction::Closing;
                    }
                }
            }
        }
    }
}
