//! Whether a client is still there while its answer is being made or sent.
//!
//! A reset means that it has left. A half-close does not: the client still wants its answer, unless its
//! request waits in a queue or for its turn. To notice either, a little is read ahead of what is being
//! answered; beyond that, and while a body has to wait for its upstream, the socket is looked at now
//! and then.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, interval_at};

use crate::http1::Inbound;

/// How far a client may pipeline ahead of the answers. The rest stays in the kernel.
const AHEAD: usize = 4 * 1024;
/// How often the socket is looked at while nothing is read from it.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Watches one client.
#[derive(Debug, Default)]
pub(super) struct ClientPresence {
    probe: Option<Interval>,
}

impl ClientPresence {
    /// Looks for the client. `waiting`: its request waits in a queue or for its turn.
    ///
    /// # Errors
    /// If it has left.
    #[inline]
    pub(super) fn check(
        &mut self,
        inbound: &mut Inbound,
        waiting: bool,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
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
        while probe.poll_tick(cx).is_ready() {
            if inbound.io.is_reset() || (waiting && inbound.io.is_read_closed()) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}
