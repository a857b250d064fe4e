//! How a connection ends: in a tunnel, in order, or not.

use std::cell::Cell;
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

/// How long a closing connection is read from, so that a client that is still sending can read its
/// last answer before a reset reaches it, and how long if it sends nothing.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_SILENT: Duration = Duration::from_secs(5);
/// So many connections of a worker may take that long at once. Others are read from as long, and as
/// much, as most refused requests need.
const LINGERING: usize = 512;
const LINGER_BRIEFLY: Duration = Duration::from_secs(2);
const LINGER_LITTLE: usize = 1024 * 1024;

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
            End::Politely => self.part(true).await,
            End::Quietly => self.part(false).await,
            End::Short => {
                // Too late for an error: the client sees that the rest is missing.
                let _ = self.flush().await;
            }
            End::Reset => self.inbound.borrow().wire.reset_on_close(),
            End::Abruptly => {}
        }
    }

    /// Sends what is queued, says that nothing follows, and waits for the client to have read it.
    async fn part(&self, lingers: bool) {
        if self.flush().await.is_err() {
            // What was queued is lost, and an orderly end would hide that.
            return self.inbound.borrow().wire.reset_on_close();
        }
        let mut finished = false;
        let finish = poll_fn(|cx| {
            let wire = &mut self.inbound.borrow_mut().wire;
            if !std::mem::replace(&mut finished, true) {
                // Thousands may be lingering at once.
                wire.inbox.clear();
                wire.slim();
            }
            wire.poll_finish(cx)
        });
        // Whatever goes wrong from here on, the answer is out and the connection is over.
        if finish.await.is_ok() && lingers {
            let lingering = Lingering::enter(self);
            let _ = self.linger(&lingering).await;
        }
    }

    /// Reads what the client still sends, and drops it.
    async fn linger(&self, lingering: &Lingering<'_>) -> io::Result<()> {
        let mut hurried = lingering.is_crowded() || self.control.draining.get();
        let mut until = Instant::now() + if hurried { LINGER_BRIEFLY } else { LINGER };
        let mut budget = if lingering.is_crowded() { LINGER_LITTLE } else { usize::MAX };
        let patience = |until: Instant| until.min(Instant::now() + LINGER_SILENT);
        self.inbound.borrow_mut().wire.set_deadline(patience(until));
        poll_fn(|cx| {
            let wire = &mut self.inbound.borrow_mut().wire;
            if !hurried && self.control.draining.get() {
                hurried = true;
                until = until.min(Instant::now() + LINGER_BRIEFLY);
                wire.set_deadline(until);
            }
            loop {
                wire.inbox.clear();
                // In small pieces, since there are many.
                match ready!(wire.poll_fill(cx, false))? {
                    0 => return Poll::Ready(Ok(())),
                    read => budget = budget.saturating_sub(read),
                }
                if budget == 0 || Instant::now() >= until {
                    return Poll::Ready(Ok(()));
                }
                wire.set_deadline(patience(until));
            }
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

/// One of the connections of a worker that linger.
struct Lingering<'a> {
    all: &'a Cell<usize>,
    place: usize,
}

impl<'a> Lingering<'a> {
    fn enter(connection: &Connection<'a>) -> Self {
        let all = &*connection.control.lingering;
        let place = all.get();
        all.set(place + 1);
        Lingering { all, place }
    }

    /// Whether too many were there before.
    fn is_crowded(&self) -> bool {
        self.place >= LINGERING
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - 1);
    }
}
