//! Notices when the configuration file changes, however it is replaced.
//!
//! Editors write a new file and rename it over the old one, and orchestrators swap a symbolic
//! link further up, so the file's folder is watched and not the file: a watch on the file itself
//! would stay with the one that was replaced. For the same reason the folders above are watched:
//! the folder may be replaced as a whole. Events are not interpreted: the file is read again,
//! and a reader that finds the same text does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
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
    /// Folders, and which one was found under each name.
    watched: BTreeMap<PathBuf, FolderId>,
    surroundings: Arc<Mutex<Surroundings>>,
    events: UnboundedReceiver<()>,
    /// Events that `changed` has not returned for yet.
    pending: Option<ChangeBurst>,
}

/// Device and inode: another folder under the same name has to be watched anew.
type FolderId = (u64, u64);

/// Where a change can change what the file says.
#[derive(Debug, Default)]
struct Surroundings {
    /// Anything in these.
    folders: BTreeSet<PathBuf>,
    /// These themselves: the folders on the way to the file.
    on_the_way: BTreeSet<PathBuf>,
}

impl Surroundings {
    fn of(file: &Path) -> Self {
        let absolute = std::path::absolute(file).ok();
        let real = file.canonicalize().ok();
        let ways = absolute.iter().chain(&real);
        let above = |way: &PathBuf| way.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
        Surroundings { folders: folders(file), on_the_way: ways.flat_map(above).collect() }
    }

    /// The folders to watch, with what is there now. One that is not there cannot be watched; those
    /// above tell when it comes back.
    fn to_watch(&self) -> BTreeMap<PathBuf, FolderId> {
        let found = |folder: &PathBuf| {
            let found = folder.metadata().ok().filter(|it| it.is_dir())?;
            Some((folder.clone(), (found.dev(), found.ino())))
        };
        self.folders.iter().chain(&self.on_the_way).filter_map(found).collect()
    }

    fn concerns(&self, path: &Path) -> bool {
        let inside = path.parent().is_some_and(|folder| self.folders.contains(folder));
        inside || self.folders.contains(path) || self.on_the_way.contains(path)
    }
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
        let surroundings = Arc::new(Mutex::new(Surroundings::default()));
        let around = surroundings.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let around = around.lock();
            // Without a path it tells of events that were lost.
            let concerns =
                event.paths.is_empty() || event.paths.iter().any(|it| around.concerns(it));
            // Reading the file is an event, too, and must not lead to another reading.
            if concerns && !event.kind.is_access() {
                let _ = sender.send(());
            }
        })?;
        let (file, watched) = (file.to_owned(), BTreeMap::new());
        let mut watch = FileWatcher { watcher, file, watched, surroundings, events, pending: None };
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

    /// Watches where the file is now: a link on the way to it may lead elsewhere than before, and a
    /// folder may be another one.
    fn follow(&mut self) -> notify::Result<()> {
        let around = Surroundings::of(&self.file);
        let (mut wanted, own) = (around.to_watch(), around.folders.clone());
        *self.surroundings.lock() = around;
        for (folder, id) in &self.watched {
            if wanted.get(folder) != Some(id) {
                // The folder may be gone itself, and its watch with it.
                let _ = self.watcher.unwatch(folder);
            }
        }
        let mut failed = None;
        wanted.retain(|folder, id| {
            if self.watched.get(folder) == Some(id) {
                return true;
            }
            let watched = self.watcher.watch(folder, RecursiveMode::NonRecursive);
            let good = watched.is_ok();
            // Some folders above may be nobody's to read; that they are replaced is rare.
            failed = watched.err().filter(|_| own.contains(folder)).or(failed.take());
            good
        });
        self.watched = wanted;
        failed.map_or(Ok(()), Err)
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

    async fn is_noticed(watch: &mut FileWatcher) -> bool {
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, watch.changed()).await.is_ok()
    }

    /// What was done until now may still be told of.
    async fn come_to_rest(watch: &mut FileWatcher) {
        while tokio::time::timeout(QUIET_PERIOD * 4, watch.changed()).await.is_ok() {}
    }

    #[tokio::test]
    async fn a_folder_that_is_replaced_is_watched_on() {
        let root = TestFolder::new();
        // The folder itself, and one further up.
        for (of_file, replaced) in [("conf", "conf"), ("a/b/conf", "a")] {
            let file = root.join(of_file).join("c.toml");
            let make = |text: &str| {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, text).unwrap();
            };
            make("one");
            let mut watch = FileWatcher::new(&file).unwrap();
            for round in 0..3 {
                let old = root.join(&format!("old-{round}-{replaced}"));
                std::fs::rename(root.join(replaced), &old).unwrap();
                make("another");
                assert!(is_noticed(&mut watch).await, "{replaced} is another one");
                come_to_rest(&mut watch).await;
                std::fs::write(&file, "and another").unwrap();
                assert!(is_noticed(&mut watch).await, "and so is the file in it");
                come_to_rest(&mut watch).await;
            }
        }
    }

    #[tokio::test]
    async fn what_happens_beside_the_folder_is_no_change() {
        let root = TestFolder::new();
        let file = root.join("conf/c.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        let mut watch = FileWatcher::new(&file).unwrap();
        come_to_rest(&mut watch).await;
        std::fs::write(root.join("other.toml"), "").unwrap();
        assert!(tokio::time::timeout(QUIET_PERIOD * 4, watch.changed()).await.is_err());
        std::fs::write(&file, "a").unwrap();
        assert!(is_noticed(&mut watch).await);
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
