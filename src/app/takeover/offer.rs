//! The running process's side: a socket at which a new process asks for the listening sockets.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::predecessor::is_answering;
use super::{
    ANSWER_TIME, CONFIRMED, READY, REQUEST, SLOT_INTERVAL, START_TIME, TakeoverError, descriptors,
};
use crate::store::{HeldSlots, StoreControl};

/// How long to wait after a failed accept.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// A socket that is bound, under another name than the one that others know: that may still be the
/// predecessor's.
#[derive(Debug)]
pub(in crate::app) struct PreparedOffer {
    listener: StdListener,
    bound: PathBuf,
    path: PathBuf,
}

impl PreparedOffer {
    /// `replacing`: whether somebody may answer there now.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub(in crate::app) fn bind(path: &Path, replacing: bool) -> Result<Self, TakeoverError> {
        match path.symlink_metadata() {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(TakeoverError::NoSocket(path.to_owned()));
            }
            Ok(_) if !replacing && is_answering(path) => {
                return Err(TakeoverError::InUse(path.to_owned()));
            }
            _ => {}
        }
        let mut bound = path.as_os_str().to_owned();
        bound.push(format!(".{}", std::process::id()));
        let bound = PathBuf::from(bound);
        let failed = |source| TakeoverError::Bind { path: path.to_owned(), source };
        let _ = std::fs::remove_file(&bound);
        let listener = StdListener::bind(&bound).map_err(failed)?;
        let prepared = PreparedOffer { listener, bound, path: path.to_owned() };
        let private = Permissions::from_mode(0o600);
        std::fs::set_permissions(&prepared.bound, private).map_err(failed)?;
        prepared.listener.set_nonblocking(true).map_err(failed)?;
        Ok(prepared)
    }

    /// Takes the place of what is there, and serves from now on.
    ///
    /// # Errors
    /// If the socket cannot be renamed or watched.
    pub(in crate::app) fn publish(
        self,
        sockets: Vec<OwnedFd>,
        store: Arc<dyn StoreControl>,
    ) -> io::Result<TakeoverOffer> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        std::fs::rename(&self.bound, &self.path)?;
        let inode = self.path.symlink_metadata()?.ino();
        let (found, successors) = channel(1);
        let task = tokio::spawn(serve(listener, sockets, store, found));
        Ok(TakeoverOffer { path: self.path.clone(), inode, task, successors })
    }
}

impl Drop for PreparedOffer {
    fn drop(&mut self) {
        // Gone already if it was published.
        let _ = std::fs::remove_file(&self.bound);
    }
}

/// The published socket.
#[derive(Debug)]
pub(in crate::app) struct TakeoverOffer {
    path: PathBuf,
    inode: u64,
    task: JoinHandle<()>,
    successors: Receiver<Successor>,
}

impl TakeoverOffer {
    /// The next process that is ready to take over. It is cancel safe.
    pub(in crate::app) async fn successor(&mut self) -> Successor {
        match self.successors.recv().await {
            Some(successor) => successor,
            None => std::future::pending().await,
        }
    }

    /// Nobody can take over any more, and no listening socket is held for it. The socket itself goes,
    /// unless somebody has put another there.
    pub(in crate::app) async fn withdraw(self) {
        let (path, inode) = (self.path.clone(), self.inode);
        self.leave().await;
        if path.symlink_metadata().is_ok_and(|it| it.ino() == inode) {
            let _ = std::fs::remove_file(&path);
        }
    }

    /// The same for a successor that puts its own socket there at any moment: what is there is not
    /// touched, since it may be the successor's by the time that it would be removed.
    pub(in crate::app) async fn leave(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

/// A process that has the sockets, and waits to be told that it may accept.
#[derive(Debug)]
pub(in crate::app) struct Successor {
    connection: UnixStream,
    pub(in crate::app) pid: u32,
}

impl Successor {
    /// Tells it that this process accepts no more, and what its requests hold.
    pub(in crate::app) async fn confirm(&mut self, held: Option<&HeldSlots>) {
        let mut told = CONFIRMED.as_bytes().to_vec();
        told.extend(held.map(line_of).unwrap_or_default());
        // It goes on without, after a while.
        let _ = timeout(ANSWER_TIME, self.connection.write_all(&told)).await;
    }
}

/// Tells a successor what the requests of this process still hold, from what it was told last, for as
/// long as it listens.
pub(in crate::app) async fn report_slots(
    mut successor: Successor,
    store: Arc<dyn StoreControl>,
    mut told: HeldSlots,
) {
    let mut due = tokio::time::interval(SLOT_INTERVAL);
    loop {
        due.tick().await;
        let Some(held) = store.held_slots() else { return };
        if held == told {
            continue;
        }
        if successor.connection.write_all(&line_of(&held)).await.is_err() {
            return;
        }
        told = held;
    }
}

fn line_of(held: &HeldSlots) -> Vec<u8> {
    let mut line = serde_json::to_vec(held).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn serve(
    listener: UnixListener,
    sockets: Vec<OwnedFd>,
    store: Arc<dyn StoreControl>,
    found: Sender<Successor>,
) {
    loop {
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            Err(error) => {
                tracing::warn!(%error, "the socket for takeovers cannot accept");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        match hand_over(connection, &sockets, &*store).await {
            Ok(Some(successor)) => {
                let _ = found.send(successor).await;
                // There is one successor: who waits hears nothing until this process has left.
                return std::future::pending().await;
            }
            // Somebody has only looked whether there is a gateway.
            Ok(None) => {}
            Err(error) => tracing::warn!("not taken over: {error}; this gateway serves on"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum HandOverError {
    #[error("a process of another user (uid {0}) has asked for the sockets")]
    NotAllowed(u32),
    #[error("what asked for the sockets is no gateway of this version")]
    Unknown,
    #[error("the new process (pid {0}) ended before it was ready")]
    Ended(u32),
    #[error("the new process (pid {0}) was not ready in {START_TIME:?}")]
    TooSlow(u32),
    #[error(transparent)]
    Connection(#[from] io::Error),
}

/// From the request of a process to its readiness. `None` if it has asked for nothing.
async fn hand_over(
    mut connection: UnixStream,
    sockets: &[OwnedFd],
    store: &dyn StoreControl,
) -> Result<Option<Successor>, HandOverError> {
    let peer = connection.peer_cred()?;
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() != own && peer.uid() != 0 {
        return Err(HandOverError::NotAllowed(peer.uid()));
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    match timeout(ANSWER_TIME, read_line(&mut connection, REQUEST)).await {
        Ok(Ok(Line::Expected)) => {}
        Ok(Ok(Line::Nothing)) => return Ok(None),
        Ok(Ok(Line::Other)) | Err(_) => return Err(HandOverError::Unknown),
        Ok(Err(error)) => return Err(error.into()),
    }
    tracing::info!(pid, "a new process starts, to take over");
    store.keep().await;
    let descriptors = sockets.iter().map(|it| Some(it.as_fd())).chain([None]);
    for socket in descriptors {
        let send = || descriptors::send(&connection, socket);
        connection.async_io(Interest::WRITABLE, send).await?;
    }
    match timeout(START_TIME, read_line(&mut connection, READY)).await {
        Ok(Ok(Line::Expected)) => Ok(Some(Successor { connection, pid })),
        Ok(Ok(Line::Nothing) | Err(_)) => Err(HandOverError::Ended(pid)),
        Ok(Ok(Line::Other)) => Err(HandOverError::Unknown),
        Err(_) => Err(HandOverError::TooSlow(pid)),
    }
}

enum Line {
    Expected,
    /// The connection has ended.
    Nothing,
    Other,
}

async fn read_line(connection: &mut UnixStream, expected: &str) -> io::Result<Line> {
    let mut line = vec![0; expected.len()];
    match connection.read_exact(&mut line).await {
        Ok(_) if line == expected.as_bytes() => Ok(Line::Expected),
        Ok(_) => Ok(Line::Other),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Line::Nothing),
        Err(error) => Err(error),
    }
}
