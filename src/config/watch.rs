//! Notices when the configuration file changes, however it is replaced.
//!
//! Editors write a new file and rename it over the old one, and orchestrators swap a symbolic
//! link further up, so the file's folder is watched and not the file: a watch on the file itself
//! would stay with the one that was replaced. What an event means is not asked; the file is
//! simply read again, and a reader that finds the same text does nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// A file is often written in several steps; it is read when they have come to rest.
const REST: Duration = Duration::from_millis(50);
/// A folder that never rests does not put off a reload for longer than this.
const AT_MOST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Watch {
    watcher: RecommendedWatcher,
    file: PathBuf,
    watched: BTreeSet<PathBuf>,
    events: UnboundedReceiver<()>,
    /// What has changed and was not told yet.
    untold: Option<Unrest>,
}

/// Events that belong together, by when they were heard.
#[derive(Debug, Clone, Copy)]
struct Unrest {
    first: Instant,
    last: Instant,
}

impl Watch {
    /// # Errors
    /// If the folder cannot be watched.
    pub fn new(file: &Path) -> notify::Result<Self> {
        let (sender, events) = unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event, too, and must not lead to another reading.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = sender.send(());
            }
        })?;
        let file = file.to_owned();
        let mut watch = Watch { watcher, file, watched: BTreeSet::new(), events, untold: None };
        watch.follow()?;
        Ok(watch)
    }

    /// Resolves when something has changed and come to rest. If waiting for it is broken off,
    /// nothing is lost, and what has been waited for is not waited for again.
    pub async fn changed(&mut self) {
        let unrest = match &mut self.untold {
            Some(unrest) => unrest,
            none => {
                if self.events.recv().await.is_none() {
                    return std::future::pending().await;
                }
                let now = Instant::now();
                none.insert(Unrest { first: now, last: now })
            }
        };
        let at_last = unrest.first + AT_MOST;
        let settle = async {
            while let Ok(Some(())) = timeout_at(unrest.last + REST, self.events.recv()).await {
                unrest.last = Instant::now();
            }
        };
        let _ = timeout_at(at_last, settle).await;
        self.untold = None;
        self.follow_or_say_so();
    }

    fn follow_or_say_so(&mut self) {
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

    /// Waits as somebody does to whom something else keeps happening, who drops the wait each time.
    async fn is_told(name: &str, mut meanwhile: impl FnMut(&Path)) -> bool {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("c.toml");
        let mut watch = Watch::new(&file).unwrap();
        std::fs::write(&file, "a").unwrap();
        let mut told = false;
        for _ in 0..1000 {
            meanwhile(&file);
            told = tokio::time::timeout(REST / 5, watch.changed()).await.is_ok();
            if told {
                break;
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        told
    }

    #[tokio::test]
    async fn a_change_is_told_however_often_waiting_for_it_is_broken_off() {
        assert!(is_told("broken-off", |_| ()).await);
    }

    #[tokio::test]
    async fn a_folder_that_never_rests_puts_off_nothing_also_if_waiting_is_broken_off() {
        assert!(is_told("restless", |file| std::fs::write(file, "b").unwrap()).await);
    }

    #[test]
    fn every_link_on_the_way_is_watched() {
        let root = std::env::temp_dir().join(format!("weir-watch-{}", std::process::id()));
        let (one, link) = (root.join("deep/one"), root.join("current"));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::write(one.join("c.toml"), "").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let found = folders(&link.join("c.toml"));
        let expected = [root.clone(), link, one.canonicalize().unwrap()];
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, BTreeSet::from(expected));
    }
}
