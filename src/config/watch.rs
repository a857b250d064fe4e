//! Notices when the configuration file changes, however it is replaced.
//!
//! Editors write a new file and rename it over the old one, and orchestrators swap a symbolic
//! link further up, so the file's folder is watched and not the file: a watch on the file itself
//! would stay with the one that was replaced. What an event means is not asked; the file is
//! simply read again, and a reader that finds the same text does nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A file is often written in several steps; it is read when they have come to rest.
const REST: Duration = Duration::from_millis(50);
/// A folder that never rests does not put off a reload for longer than this.
const AT_MOST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Watch {
    /// Watches as long as it lives.
    _watcher: RecommendedWatcher,
    events: UnboundedReceiver<()>,
}

impl Watch {
    /// # Errors
    /// If the folder cannot be watched.
    pub fn new(file: &Path) -> notify::Result<Self> {
        let (sender, events) = unbounded_channel();
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Reading the file is an event, too, and must not lead to another reading.
                if event.is_ok_and(|event| !event.kind.is_access()) {
                    let _ = sender.send(());
                }
            })?;
        for folder in folders(file) {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        }
        Ok(Watch { _watcher: watcher, events })
    }

    /// Resolves when something has changed and come to rest.
    pub async fn changed(&mut self) {
        if self.events.recv().await.is_none() {
            return std::future::pending().await;
        }
        let settle = async {
            while let Ok(Some(())) = tokio::time::timeout(REST, self.events.recv()).await {}
        };
        let _ = tokio::time::timeout(AT_MOST, settle).await;
    }
}

/// The folder of the file as named, and of the file it leads to.
fn folders(file: &Path) -> Vec<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let named = parent(file);
    let real = file.canonicalize().map(|real| parent(&real));
    match real {
        Ok(real) if named.canonicalize().is_ok_and(|named| named != real) => vec![named, real],
        _ => vec![named],
    }
}
