//! Changes that are made at run time, until all workers serve them.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// How often something has changed, and up to which of these changes it is served.
#[derive(Debug, Default)]
pub struct ServedChanges {
    changed: Notify,
    changes: AtomicU64,
    served: watch::Sender<u64>,
}

impl ServedChanges {
    /// There is one more.
    pub fn note(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Resolves when there is another change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A number for what holds now, to say later that it is [served](ServedChanges::note_served).
    pub fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Says that all workers serve what held at that version.
    pub fn note_served(&self, version: u64) {
        self.served.send_if_modified(|served| {
            let newer = version > *served;
            *served = version.max(*served);
            newer
        });
    }

    /// Resolves when all workers serve what holds now.
    pub async fn is_served(&self) {
        let version = self.version();
        // Cannot fail: the sender is a field of this.
        let _ = self.served.subscribe().wait_for(|served| *served >= version).await;
    }
}
