//! Replacing a running gateway by a new process without refusing a connection.
//!
//! The two talk over a Unix socket, `server.takeover`:
//!
//! | new process | running one |
//! |---|---|
//! | connects, `takeover 1` | checks who asks, writes its snapshot |
//! | | passes its listening sockets, one a message, and a line feed |
//! | opens everything and starts its workers, `ready` | accepts no more, `yours`, drains |
//! | counts these slots as taken, accepts | [slots] that its requests hold, a line whenever they change |
//! | frees what is left of them | ends |
//!
//! [slots]: crate::store::HeldSlots
//!
//! The sockets themselves are shared, with the connections that wait in them, so nothing is refused at
//! any time. Whoever connects and says nothing, or ends before it is ready, changes nothing.

mod descriptors;
mod offer;
mod predecessor;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use offer::{PreparedOffer, Successor, TakeoverOffer, report_slots};
pub(super) use predecessor::Predecessor;

const REQUEST: &str = "takeover 1\n";
const READY: &str = "ready\n";
const CONFIRMED: &str = "yours\n";

/// How long the running process waits for the new one to be ready.
const START_TIME: Duration = Duration::from_secs(120);
/// How long either waits for the other's next word.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long the new process waits for a store that cannot be reached.
pub(super) const STORE_TIME: Duration = Duration::from_secs(5);
/// How often the old process looks which slots its requests hold.
const SLOT_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error("--takeover needs a socket to ask at: set server.takeover in the configuration")]
    NoPath,
    #[error(
        "a running gateway answers at {} (server.takeover); start with --takeover to replace it, or \
         name another socket", .0.display()
    )]
    InUse(PathBuf),
    #[error("{} (server.takeover) is there and is no socket; name another path, or remove it", .0.display())]
    NoSocket(PathBuf),
    #[error("cannot listen on {} (server.takeover): {source}; see that its folder may be written to", path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("cannot connect to {} (server.takeover): {source}; the gateway there serves on", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the gateway at {} did not hand over its sockets: {source}; it serves on", path.display())]
    Refused { path: PathBuf, source: io::Error },
    #[error(
        "the gateway at {} left before it had handed over its sockets: another process has taken over \
         from it, or it has ended; this one has changed nothing, see whether one serves and start it \
         again", .0.display()
    )]
    Left(PathBuf),
    #[error(
        "the store could not be reached in {STORE_TIME:?}{}; the running gateway serves on. To replace it \
         without the store, stop it first", .0.map(|reason| format!(" ({reason})")).unwrap_or_default()
    )]
    StoreUnreachable(Option<&'static str>),
}
