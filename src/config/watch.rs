//! Notices when the configuration file changes, however it is replaced.
//!
//! Editors write a new file and rename it over the old one, and orchestrators swap a symbolic
//! link further up, so the file's folder is watched and not the file: a watch on the file itself
//! would stay with the one that was replaced. Events are not interpreted: the file is read again,
//! and a reader that finds the same text does nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// A file is often written in several steps; it is read when no event has come for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// In a folder that never rests, a reload is put off for no longer than this.
const MAX_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct FileWatcher {
    watcher: RecommendedWatcher,
    file: PathBuf,
    watched: BTreeSet<PathBuf>,
    events: UnboundedReceiver<()>,
    /// Events that `changed` has not returned for yet.
    pending: Option<ChangeBurst>,
}

/// When the first and the last of some events came that belong together.
#[derive(Debug, Clone, Copy)]
struct ChangeBurst {
    first: Instant,
    last: Instant,
}

impl FileWatcher {
    /// # Errors
    /// If the folder cannot be watched.
    pub(crate) fn new(file: &Path) -> notify::Result<Self> {
        let (sender, events) = unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event, too, and must not lead to another reading.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = sender.send(());
            }
        })?;
        let file = file.to_owned();
        let mut watch =
            FileWatcher { watcher, file, watched: BTreeSet::new(), events, pending: None };
        watch.follow()?;
        Ok(watch)
    }

    /// Resolves when something has changed and come to rest. It is cancel safe: no event is lost, and
    /// the time waited so far counts.
    pub(crate) async fn changed(&mut self) {
        let burst = match &mut self.pending {
            Some(burst) => burst,
            none => {
                if self.events.recv().await.is_none() {
                    return std::future::pending().await;
                }
                let now = Instant::now();
                none.insert(ChangeBurst { first: now, last: now })
            }
        };
        let at_last = burst.first + MAX_DELAY;
        let quiet = async {
            while let Ok(Some(())) = timeout_at(burst.last + QUIET_PERIOD, self.events.recv()).await
            {
                burst.last = Instant::now();
            }
        };
        let _ = timeout_at(at_last, quiet).await;
        self.pending = None;
        self.follow_or_warn();
    }

    fn follow_or_warn(&mut self) {
        if let Err(error) = self.follow() {
            // A folder may go between being found and being watched, when a link is swapped: its
            // parent tells of that, and the next time it is another folder.
            let gone = matches!(error.kind, ErrorKind::PathNotFound | ErrorKind::WatchNotFound)
                || matches!(&error.kind, ErrorKind::Io(it) if it.kind() == io::ErrorKind::NotFound);
            if !gone || !self.file.exists() {
                let file = self.file.display();
                tracing::warn!("changes of {file} may go unnoticed: {}", why(&error));
            }
        }
    }

    /// Watches where the file is now: a link on the way to it may lead elsewhere than before.
    fn follow(&mut self) -> notify::Result<()> {
        let wanted = folders(&self.file);
        for gone in self.watched.difference(&wanted) {
            // The folder may be gone itself, and its watch with it.
            let _ = self.watcher.unwatch(gone);
        }
        for folder in wanted.difference(&self.watched) {
            self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        self.watched = wanted;
        Ok(())
    }
}

/// In words of the system rather than of a library.
fn why(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::Io(error) => error.to_string(),
        ErrorKind::PathNotFound | ErrorKind::WatchNotFound => "its folder is gone".to_owned(),
        ErrorKind::MaxFilesWatch => {
            "the system's limit on watches is reached (fs.inotify.max_user_watches)".to_owned()
        }
        _ => "its folder cannot be watched".to_owned(),
    }
}

/// The folders in which a change can change what the file says: its own, as named and as found,
/// and those of all links on the way.
fn folders(file: &Path) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let links = file.ancestors().filter(|path| path.is_symlink()).map(parent);
    let real = file.canonicalize().ok().map(|real| parent(&real));
    // A folder that is not there cannot be watched; the ones above tell when it comes back.
    links.chain(real).chain([parent(file)]).filter(|folder| folder.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    /// Waits in short pieces, as a `select!` does when other branches complete.
    async fn notices_change(mut meanwhile: impl FnMut(&Path)) -> bool {
        let folder = TestFolder::new();
        let file = folder.join("c.toml");
        let mut watch = FileWatcher::new(&file).unwrap();
        std::fs::write(&file, "a").unwrap();
        for _ in 0..1000 {
            meanwhile(&file);
            if tokio::time::timeout(QUIET_PERIOD / 5, watch.changed()).await.is_ok() {
                return true;
            }
        }
        false
    }

    #[tokio::test]
    async fn a_change_is_reported_however_often_waiting_for_it_is_broken_off() {
        assert!(notices_change(|_| ()).await);
    }

    #[tokio::test]
    async fn a_folder_that_never_rests_puts_off_nothing_also_if_waiting_is_broken_off() {
        assert!(notices_change(|file| std::fs::write(file, "b").unwrap()).await);
    }

    #[test]
    fn every_link_on_the_way_is_watched() {
        let root = TestFolder::new();
        let (one, link) = (root.join("deep/one"), root.join("current"));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::write(one.join("c.toml"), "").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let found = folders(&link.join("c.toml"));
        let expected = [root.path().to_owned(), link, one.canonicalize().unwrap()];
        assert_eq!(found, BTreeSet::from(expected));
    }
}
