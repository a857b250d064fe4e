//! What a client still sends of a body that nobody reads.
//!
//! An answer may be complete before its request is, when that is refused. Resetting the stream then is
//! allowed (RFC 9113 section 8.1), but some clients that are still sending do not read an answer whose
//! stream was reset. So the rest is read and dropped for a while, as on an HTTP/1.1 connection.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

/// How long a body is read for nothing, and how long if nothing of it comes.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_SILENT: Duration = Duration::from_secs(5);
/// This many requests of a worker may take that long at once. Other streams are reset.
const MAX_LINGERING: usize = 512;

/// Reads a body to its end in a task of its own. `lingering` counts what a worker reads for nothing.
pub(crate) fn discard(incoming: Incoming, lingering: Rc<Cell<usize>>) {
    if lingering.get() < MAX_LINGERING && !incoming.is_end_stream() {
        tokio::task::spawn_local(read_out(incoming, Lingering::enter(lingering)));
    }
}

async fn read_out(incoming: Incoming, _lingering: Lingering) {
    let mut incoming = pin!(incoming);
    let until = Instant::now() + LINGER;
    loop {
        let patience = until.min(Instant::now() + LINGER_SILENT);
        let next = poll_fn(|cx| incoming.as_mut().poll_frame(cx));
        match timeout_at(patience, next).await {
            Ok(Some(Ok(_))) if Instant::now() < until => {}
            _ => return,
        }
    }
}

/// One of the bodies of a worker that are read for nothing.
struct Lingering(Rc<Cell<usize>>);

impl Lingering {
    fn enter(all: Rc<Cell<usize>>) -> Self {
        all.set(all.get() + 1);
        Lingering(all)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
