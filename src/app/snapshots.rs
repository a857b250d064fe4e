//! The embedded store's buckets on disk: read at the start, written now and then and at the end.
//!
//! Nothing here ends the gateway or keeps it from starting. A file that is there and cannot be
//! understood is the only copy of somebody's buckets: it is moved aside, or left alone and nothing
//! is written, but never written over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::config::settings;
use crate::rulings::Book;
use crate::store::memory::snapshot::{self, LoadError, Restored};
use crate::store::{BucketHasher, MemoryStore};

/// The embedded store as a start finds it.
#[derive(Debug)]
pub struct Opened {
    pub store: Arc<MemoryStore>,
    /// Of the secret that has named the store's buckets.
    pub hasher: BucketHasher,
    /// What operators had decided.
    pub book: Arc<Book>,
    /// `None` if nothing is to be written.
    pub snapshots: Option<Snapshots>,
}

/// Where the store is written, and how often.
#[derive(Debug)]
pub struct Snapshots {
    writer: Arc<Writer>,
    interval: Duration,
}

/// Writes snapshots until it is told to finish.
#[derive(Debug)]
pub struct Keeper {
    writer: Arc<Writer>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Writer {
    store: Arc<MemoryStore>,
    secret: [u8; 16],
    book: Arc<Book>,
    path: PathBuf,
    /// Whether the last writing failed. Locked while one is under way, so that there are never two.
    failing: Mutex<bool>,
}

/// Opens the embedded store, with the buckets of its snapshot if there is one.
///
/// # Errors
/// If the system has no randomness to give.
pub fn open(settings: &settings::Store, clock: Clock) -> Result<Opened, getrandom::Error> {
    let (restored, wanted) = match &settings.snapshot {
        Some(wanted) => restore(wanted, settings.max_keys, &clock),
        None => (None, None),
    };
    let (store, hasher, book) = match restored {
        Some(it) => (it.store, BucketHasher::with_secret(&it.secret), Book::of(&it.rulings)),
        None => {
            let store = MemoryStore::new(settings.max_keys, clock);
            (store, BucketHasher::random()?, Book::default())
        }
    };
    let (store, book) = (Arc::new(store), Arc::new(book));
    let snapshots = wanted.map(|wanted| {
        let (path, secret) = (wanted.path.clone(), hasher.secret());
        let (store, book, failing) = (store.clone(), book.clone(), Mutex::new(false));
        let writer = Writer { store, secret, book, path, failing };
        Snapshots { writer: Arc::new(writer), interval: wanted.interval }
    });
    Ok(Opened { store, hasher, book, snapshots })
}

/// What there is to restore, and the wish for snapshots, if it can be granted.
fn restore<'a>(
    wanted: &'a settings::Snapshot,
    max_keys: usize,
    clock: &Clock,
) -> (Option<Restored>, Option<&'a settings::Snapshot>) {
    let path = wanted.path.display();
    let damage = match snapshot::load(&wanted.path, max_keys, clock.clone()) {
        Ok(None) => {
            tracing::info!("no snapshot at {path} yet");
            return (None, Some(wanted));
        }
        Ok(Some(restored)) => {
            let buckets = restored.store.buckets();
            let buckets = buckets.own + buckets.overflow;
            let age = clock.now().since(restored.written_at).as_secs();
            tracing::info!(buckets, "snapshot {path} read, written {age} s ago");
            return (Some(restored), Some(wanted));
        }
        Err(LoadError::Damaged(damage)) => damage,
        Err(error @ LoadError::Unreadable(_)) => {
            tracing::warn!(
                "the snapshot {path} {error}; all buckets start full, the file is left alone, and \
                 no snapshots are written until a start can read or no longer finds it"
            );
            return (None, None);
        }
    };
    match snapshot::set_aside(&wanted.path) {
        Ok(aside) => {
            tracing::warn!(
                "the snapshot {path} {damage}; all buckets start full, the file is now {}",
                aside.display()
            );
            (None, Some(wanted))
        }
        Err(error) => {
            tracing::warn!(
                "the snapshot {path} {damage} and cannot be set aside: {error}; all buckets start \
                 full, the file is left alone, and no snapshots are written until a start no \
                 longer finds it"
            );
            (None, None)
        }
    }
}

impl Snapshots {
    /// Writes one now, which shows at once whether it can be, and then one each interval. Has to
    /// be called on a runtime.
    #[must_use]
    pub fn start(self) -> Keeper {
        let Snapshots { writer, interval } = self;
        let for_task = writer.clone();
        let task = tokio::spawn(async move {
            let mut due = tokio::time::interval(interval);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                for_task.clone().write().await;
            }
        });
        Keeper { writer, task }
    }
}

impl Keeper {
    /// Writes the last one.
    pub async fn finish(self) {
        self.task.abort();
        self.writer.write().await;
    }
}

impl Writer {
    /// Disks take their time, so this has a thread of its own.
    async fn write(self: Arc<Self>) {
        let written = tokio::task::spawn_blocking(move || self.write_now()).await;
        if let Err(error) = written {
            tracing::error!(%error, "no snapshot was written");
        }
    }

    /// Complains of the first failure in a row only.
    fn write_now(&self) {
        let mut failing = self.failing.lock();
        match snapshot::save(&self.store, (&self.secret, &self.book.text()), &self.path) {
            Ok(buckets) => {
                tracing::debug!(buckets, "snapshot written");
                if std::mem::take(&mut *failing) {
                    tracing::info!("snapshots are written again");
                }
            }
            Err(error) if !*failing => {
                *failing = true;
                tracing::warn!("{error}; the snapshot before stays, and the next is tried in time");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
