//! Whether a client is still there while its answer is being made or sent.
//!
//! A reset is leaving. One that has only finished sending still wants its answer, unless its request
//! waits for its turn. To hear of either, a little is read ahead of what is being answered; beyond
//! that, and while a body has to wait for its upstream, the runtime is asked now and then.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, interval_at};

use crate::http1::Inbound;

/// How far a client may pipeline ahead of the answers. What is beyond stays in the kernel.
const AHEAD: usize = 4 * 1024;
/// How often it is asked whether one has left of whom nothing is read.
const LOOK: Duration = Duration::from_millis(250);

/// What has to be kept to notice it.
#[derive(Debug, Default)]
pub(super) struct Presence {
    look: Option<Interval>,
}

impl Presence {
    /// Looks for the client. `waits`: its request still waits for its turn.
    ///
    /// # Errors
    /// If it has left.
    #[inline]
    pub(super) fn check(
        &mut self,
        inbound: &mut Inbound,
        waits: bool,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        while (waits || inbound.decoder.is_done()) && inbound.wire.inbox.len() < AHEAD {
            match inbound.wire.poll_news(cx, false) {
                Poll::Ready(Ok(0)) if waits => return Err(io::ErrorKind::UnexpectedEof.into()),
                // Nothing more will be read, but a reset may follow.
                Poll::Ready(Ok(0)) => break,
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        let look = self.look.get_or_insert_with(|| interval_at(Instant::now() + LOOK, LOOK));
        while look.poll_tick(cx).is_ready() {
            if inbound.wire.is_reset() || (waits && inbound.wire.is_finished()) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}
