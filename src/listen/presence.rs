//! Whether a client is still there while its answer is being made or sent.
//!
//! A reset means that it has left. A half-close does not: the client still wants its answer, unless its
//! request waits in a queue or for its turn, or a body that has begun stands still: so end clients of
//! streams in which nothing happens. To notice either, a little is read ahead of what is being answered;
//! beyond that, and while a body has to wait for its upstream, the socket is looked at now and then.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, interval_at};

use crate::http1::Inbound;

/// How far a client may pipeline ahead of the answers. The rest stays in the kernel.
const AHEAD: usize = 4 * 1024;
/// How often the socket is looked at while nothing is read from it.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// How long a body may stand still before a client that has finished sending counts as gone.
const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(5);

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Its place in a queue, or its turn.
    Turn,
    Answer,
    /// More of a body that has begun.
    Body,
}

/// Watches one client.
#[derive(Debug, Default)]
pub(super) struct ClientPresence {
    probe: Option<Interval>,
    /// Since when a client that has finished sending was sent nothing.
    silent_since: Option<Instant>,
}

impl ClientPresence {
    /// The client is being sent something.
    #[inline]
    pub(super) fn end_silence(&mut self) {
        self.silent_since = None;
    }

    /// Looks for the client.
    ///
    /// # Errors
    /// If it has left.
    #[inline]
    pub(super) fn check(
        &mut self,
        inbound: &mut Inbound,
        awaited: Awaited,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let waiting = awaited == Awaited::Turn;
        while (waiting || inbound.decoder.is_done()) && inbound.io.read_buf.len() < AHEAD {
            match inbound.io.poll_fill_no_deadline(cx, false) {
                Poll::Ready(Ok(0)) if waiting => return Err(io::ErrorKind::UnexpectedEof.into()),
                // Nothing more will be read, but a reset may follow.
                Poll::Ready(Ok(0)) => break,
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        let start = || interval_at(Instant::now() + PROBE_INTERVAL, PROBE_INTERVAL);
        let probe = self.probe.get_or_insert_with(start);
        while let Poll::Ready(now) = probe.poll_tick(cx) {
            let has_left = match awaited {
                _ if inbound.io.is_reset() => true,
                Awaited::Answer => false,
                _ if !inbound.io.is_read_closed() => false,
                Awaited::Turn => true,
                Awaited::Body => now - *self.silent_since.get_or_insert(now) >= HALF_CLOSED_SILENCE,
            };
            if has_left {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}
