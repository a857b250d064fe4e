//! A directory of one test's own, gone when the test is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::within(&std::env::temp_dir())
    }

    /// One that is no disk's, where there is memory for files. Sentinels and nodes of a cluster write
    /// down every change before they go on, and stand still for seconds while a disk is busy.
    pub(crate) fn in_memory() -> Scratch {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Scratch::within(memory) } else { Scratch::new() }
    }

    fn within(parent: &Path) -> Scratch {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-it-{}-{number}", std::process::id());
        let path = parent.join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
