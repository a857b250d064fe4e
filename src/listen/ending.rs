//! How a connection ends: in a tunnel, in order, or not.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::request::Terms;
use super::response;
use crate::body::Body;
use crate::forward::tunnel::Tunnel;
use crate::http1::Wire;
use crate::respond::Answer;
use crate::upstream::Slot;

/// How much and how long a closing connection is read from, so that the client can read its
/// last answer before a reset reaches it.
const LINGER: usize = 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// How a connection ends.
pub(super) enum End {
    /// The last answer is sent and given time to be read.
    Politely,
    /// Nothing is under way; what is queued is sent.
    Quietly,
    /// The last answer is shorter than announced. What there is of it is sent.
    Short,
    /// The last answer is short in a way that its framing cannot tell.
    Reset,
    /// The client has gone.
    Abruptly,
}

impl Connection<'_> {
    pub(super) async fn end(&self, end: End) {
        match end {
            End::Politely => self.part(LINGER).await,
            End::Quietly => self.part(0).await,
            End::Short => {
                // Too late for an error: the client sees that the rest is missing.
                let _ = self.flush().await;
            }
            End::Reset => self.inbound.borrow().wire.reset_on_close(),
            End::Abruptly => {}
        }
    }

    /// Sends what is queued, says that nothing follows, and waits for the client to have read it.
    async fn part(&self, budget: usize) {
        if self.flush().await.is_err() {
            // What was queued is lost, and an orderly end would hide that.
            return self.inbound.borrow().wire.reset_on_close();
        }
        self.inbound.borrow_mut().wire.set_deadline(Instant::now() + LINGER_TIME);
        // Whatever goes wrong from here on, the answer is out and the connection is over.
        let _ = self.linger(budget).await;
    }

    async fn linger(&self, mut budget: usize) -> io::Result<()> {
        let mut finished = false;
        poll_fn(|cx| {
            let wire = &mut self.inbound.borrow_mut().wire;
            if !finished {
                ready!(wire.poll_finish(cx))?;
                finished = true;
            }
            while budget > 0 {
                wire.inbox.clear();
                // In small pieces: thousands may be lingering at once.
                match ready!(wire.poll_fill(cx, false))? {
                    0 => break,
                    read => budget = budget.saturating_sub(read),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The rest of the connection, once the upstream has agreed to another protocol.
    pub(super) async fn tunnel(
        &self,
        mut answer: Answer,
        terms: &Terms,
        upstream: Option<(Box<Wire>, Slot)>,
    ) -> End {
        // The meter runs with the body, and the body is what the tunnel carries.
        let body = std::mem::replace(answer.response.body_mut(), Body::empty());
        let written = response::write(&self.inbound, answer, terms, true, self.stall()).await;
        if let (Ok(_), Some((upstream, slot))) = (written, upstream) {
            self.inbound.borrow_mut().wire.clear_deadline();
            let mut tunnel = Tunnel::new(upstream, slot);
            poll_fn(|cx| {
                let over = self.control.closing.get();
                let carried = tunnel.poll(&mut self.inbound.borrow_mut().wire, cx);
                if over || carried.is_ready() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        drop(body);
        End::Abruptly
    }
}
