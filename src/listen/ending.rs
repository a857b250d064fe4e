//! How a connection ends: in a tunnel, in order, or not.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::Connection;
use super::request::RequestMeta;
use super::response;
use crate::respond::{Answer, Content};

/// How long a closing connection is read from (nginx: `lingering_close`), so that a client that is
/// still sending can read its last answer before a reset reaches it; and how long if it sends
/// nothing.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_SILENT: Duration = Duration::from_secs(5);
/// This many connections of a worker may take that long at once. The others get the time and the
/// bytes that most refused requests need.
const MAX_LINGERING: usize = 512;
const LINGER_SHORT: Duration = Duration::from_secs(2);
const LINGER_SHORT_BYTES: usize = 1024 * 1024;

/// How a connection ends.
pub(super) enum ConnectionEnd {
    /// The last answer is sent and given time to be read.
    Linger,
    /// Nothing is under way; what is queued is sent.
    Close,
    /// The last answer is shorter than announced. What there is of it is sent.
    Truncated,
    /// The last answer is shorter than it should be, and its framing does not show that.
    Reset,
    /// The client has left: the connection is dropped as it is.
    Drop,
    /// It does not end, but goes on as HTTP/2. This is what was read as its first head.
    Http2(Bytes),
}

impl Connection<'_> {
    pub(super) async fn end(&self, end: ConnectionEnd) {
        match end {
            ConnectionEnd::Linger => self.close(true).await,
            ConnectionEnd::Close => self.close(false).await,
            ConnectionEnd::Truncated => {
                // Too late for an error: the client sees that the rest is missing.
                let _ = self.flush().await;
            }
            ConnectionEnd::Reset => self.inbound.borrow().io.reset_on_close(),
            ConnectionEnd::Drop | ConnectionEnd::Http2(_) => {}
        }
    }

    /// Sends what is queued, shuts down the sending side, and lingers if asked to.
    async fn close(&self, lingers: bool) {
        if self.flush().await.is_err() {
            // What was queued is lost, and an orderly end would hide that.
            return self.inbound.borrow().io.reset_on_close();
        }
        let mut finished = false;
        let finish = poll_fn(|cx| {
            let io = &mut self.inbound.borrow_mut().io;
            if !std::mem::replace(&mut finished, true) {
                // Thousands may be lingering at once.
                io.read_buf.clear();
                io.shrink();
            }
            io.poll_shutdown(cx)
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
        let mut until = Instant::now() + if hurried { LINGER_SHORT } else { LINGER };
        let mut budget = if lingering.is_crowded() { LINGER_SHORT_BYTES } else { usize::MAX };
        let patience = |until: Instant| until.min(Instant::now() + LINGER_SILENT);
        self.inbound.borrow_mut().io.set_deadline(patience(until));
        poll_fn(|cx| {
            let io = &mut self.inbound.borrow_mut().io;
            if !hurried && self.control.draining.get() {
                hurried = true;
                until = until.min(Instant::now() + LINGER_SHORT);
                io.set_deadline(until);
            }
            loop {
                io.read_buf.clear();
                // In small pieces, since there are many.
                match ready!(io.poll_fill(cx, false))? {
                    0 => return Poll::Ready(Ok(())),
                    read => budget = budget.saturating_sub(read),
                }
                if budget == 0 || Instant::now() >= until {
                    return Poll::Ready(Ok(()));
                }
                io.set_deadline(patience(until));
            }
        })
        .await
    }

    /// The rest of the connection, once the upstream has agreed to another protocol.
    pub(super) async fn tunnel(&self, mut answer: Answer, meta: &RequestMeta) -> ConnectionEnd {
        let timeout = self.stall_timeout();
        let written = response::write(&self.inbound, &mut answer, meta, true, timeout).await;
        // The request ends with its tunnel.
        let Answer { response, end: _end, .. } = answer;
        let (Ok(_), Content::Tunnel(mut tunnel)) = (written, response.into_body()) else {
            return ConnectionEnd::Drop;
        };
        tunnel.set_timeout(&mut self.inbound.borrow_mut().io, self.settings.tunnel_timeout);
        poll_fn(|cx| {
            let carried = tunnel.poll(&mut self.inbound.borrow_mut().io, cx);
            match carried {
                // A client that still sends must be able to read the upstream's last bytes.
                Poll::Ready(Ok(())) => Poll::Ready(ConnectionEnd::Linger),
                Poll::Ready(Err(_)) => Poll::Ready(ConnectionEnd::Drop),
                Poll::Pending if self.control.closing.get() => Poll::Ready(ConnectionEnd::Drop),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// One of the connections of a worker that linger.
struct Lingering<'a> {
    all: &'a Cell<usize>,
    position: usize,
}

impl<'a> Lingering<'a> {
    fn enter(connection: &Connection<'a>) -> Self {
        let all = &*connection.control.lingering;
        let position = all.get();
        all.set(position + 1);
        Lingering { all, position }
    }

    /// Whether too many others lingered before it.
    fn is_crowded(&self) -> bool {
        self.position >= MAX_LINGERING
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - 1);
    }
}
