//! The new process's side: asking the running one for its sockets, and telling it to leave.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ANSWER_TIME, CONFIRMED, READY, REQUEST, TakeoverError, descriptors};
use crate::store::{HeldSlots, StoreControl};

/// A running gateway that has been asked to hand over. It serves on until it is told that this process
/// is ready; if the connection ends before, for ever.
#[derive(Debug)]
pub(in crate::app) struct Predecessor {
    connection: UnixStream,
    at: GatewaySocket,
}

/// The socket at which a gateway was found. Each has one of its own, under the same name.
#[derive(Debug)]
struct GatewaySocket {
    path: PathBuf,
    inode: Option<u64>,
}

/// A gateway that accepts no more, and finishes what it has.
#[derive(Debug)]
pub(in crate::app) struct DepartingGateway {
    lines: BufReader<UnixStream>,
}

impl Predecessor {
    /// Asks the gateway there, and returns the sockets it listens on. `None` if there is nobody.
    ///
    /// # Errors
    /// If somebody is there and does not hand over.
    pub(in crate::app) fn ask(
        path: &Path,
    ) -> Result<Option<(Predecessor, Vec<OwnedFd>)>, TakeoverError> {
        let at = GatewaySocket { path: path.to_owned(), inode: inode(path) };
        let connection = match UnixStream::connect(path) {
            Ok(connection) => connection,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => {
                return Err(TakeoverError::Connect { path: path.to_owned(), source: error });
            }
        };
        let ask = || {
            connection.set_read_timeout(Some(ANSWER_TIME))?;
            connection.set_write_timeout(Some(ANSWER_TIME))?;
            (&connection).write_all(REQUEST.as_bytes())?;
            descriptors::receive_all(&connection)
        };
        match ask() {
            Ok(sockets) => Ok(Some((Predecessor { connection, at }, sockets))),
            Err(source) => Err(at.failure(source)),
        }
    }

    /// Tells it that this process is ready, and returns once it accepts no more. `None` if it has ended.
    ///
    /// # Errors
    /// If it has given up on this process and serves on.
    pub(in crate::app) fn replace(self) -> Result<Option<DepartingGateway>, TakeoverError> {
        if let Err(source) = (&self.connection).write_all(READY.as_bytes()) {
            // It has died, or it would not wait any longer.
            if is_answering(&self.at.path) {
                return Err(self.at.failure(source));
            }
            return Ok(None);
        }
        let mut lines = BufReader::new(self.connection);
        let mut answer = String::new();
        match lines.read_line(&mut answer) {
            Ok(_) if answer == CONFIRMED => {
                tracing::info!("taken over");
                Ok(Some(DepartingGateway { lines }))
            }
            // Both have the sockets: what one does not accept, the other does.
            _ => {
                tracing::warn!("the gateway before this one did not say that it leaves");
                Ok(None)
            }
        }
    }
}

impl GatewaySocket {
    /// Why a gateway that was found here has not handed over.
    fn failure(self, source: io::Error) -> TakeoverError {
        if inode(&self.path) == self.inode && is_answering(&self.path) {
            TakeoverError::Refused { path: self.path, source }
        } else {
            TakeoverError::Left(self.path)
        }
    }
}

impl DepartingGateway {
    /// Counts the slots that its requests hold, now and until it has ended.
    pub(in crate::app) fn inherit_slots(mut self, store: Arc<dyn StoreControl>) {
        if !self.inherit_next(&*store) {
            return;
        }
        let follow = {
            let store = store.clone();
            move || {
                // It may hold the same for as long as it drains.
                if self.lines.get_ref().set_read_timeout(None).is_ok() {
                    while self.inherit_next(&*store) {}
                }
                store.inherit_slots(None);
            }
        };
        let thread = std::thread::Builder::new().name("weir-takeover".to_owned());
        if let Err(error) = thread.spawn(follow) {
            tracing::warn!(%error, "slots that the gateway before this one holds are not counted");
            store.inherit_slots(None);
        }
    }

    /// False if it says no more.
    fn inherit_next(&mut self, store: &dyn StoreControl) -> bool {
        let mut line = String::new();
        let Ok(1..) = self.lines.read_line(&mut line) else { return false };
        match serde_json::from_str::<HeldSlots>(&line) {
            Ok(held) => store.inherit_slots(Some(&held)),
            Err(error) => tracing::debug!(%error, "a line of another version"),
        }
        true
    }
}

fn inode(path: &Path) -> Option<u64> {
    path.symlink_metadata().ok().map(|it| it.ino())
}

/// Whether a gateway waits there to be taken over.
pub(super) fn is_answering(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// There is no socket, or nobody has it open any more.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}
