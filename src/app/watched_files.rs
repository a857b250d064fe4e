//! The files that a configuration names and that are watched: lists, clients, tenants, certificates.
//!
//! They are polled. One that has changed is read once all of them are at rest: a file that is
//! rewritten in place is empty first and incomplete then, a key is replaced after its certificate, and
//! a `deny` list must not be in force like that.

mod file_stamp;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use crate::config::settings::Settings;
use file_stamp::FileStamp;

/// A file that never rests, because somebody adds to it all the time, is read after so many polls.
const MAX_POLLS_WAITED: u32 = 5;

#[derive(Debug)]
pub(crate) struct WatchedFiles {
    files: Vec<WatchedFile>,
    /// For how many polls a change has waited to be read.
    polls_waited: u32,
}

#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    kind: FileKind,
    /// Its state when what is served was read from it, when it was last read or given up on, and when
    /// it was last polled.
    read: Option<FileStamp>,
    seen: Option<FileStamp>,
    polled: Option<FileStamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// A certificate, a key, or authorities.
    Certificate,
    /// What takes a whole configuration to be understood: a list, clients, tenants.
    Part,
}

/// The state of files at one instant.
#[derive(Debug)]
pub(crate) struct FileStamps(HashMap<PathBuf, Option<FileStamp>>);

/// Files that are to be read again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangedFiles {
    pub(crate) certificates: Vec<PathBuf>,
    /// Whether any others are among them.
    pub(crate) parts: bool,
}

impl WatchedFiles {
    /// Those of a configuration that is about to be read.
    pub(crate) fn of(settings: &Settings) -> Self {
        let access = settings.access.allow.files.iter().chain(&settings.access.deny.files);
        let (clients, tenants) = (&settings.identity.clients_files, &settings.tenants.files);
        let parts = access.chain(clients).chain(tenants).map(|path| (path, FileKind::Part));
        let listeners = settings.server.listen.iter().filter_map(|it| it.tls.as_ref());
        let listeners = listeners.flat_map(|tls| tls.files());
        let upstreams = settings.upstreams.iter().filter_map(|it| it.tls.as_ref());
        let upstreams = upstreams.flat_map(|tls| tls.files().all());
        let certificates = listeners.chain(upstreams).map(|path| (path, FileKind::Certificate));
        let mut files: Vec<WatchedFile> = Vec::new();
        let mut known = HashSet::new();
        for (path, kind) in parts.chain(certificates).filter(|(path, _)| known.insert(*path)) {
            let now = FileStamp::of(path);
            let path = path.clone();
            files.push(WatchedFile { path, kind, read: now, seen: now, polled: now });
        }
        WatchedFiles { files, polls_waited: 0 }
    }

    /// The state of all files now.
    pub(crate) fn stamps(&self) -> FileStamps {
        let stamp = |it: &WatchedFile| (it.path.clone(), FileStamp::of(&it.path));
        FileStamps(self.files.iter().map(stamp).collect())
    }

    /// Whether one is not as it was when it was last read or given up on.
    pub(crate) fn have_changed(&self) -> bool {
        self.files.iter().any(|it| FileStamp::of(&it.path) != it.seen)
    }

    /// Whether all are what is served, and none was given up on.
    pub(crate) fn are_as_read(&self) -> bool {
        self.files.iter().all(|it| FileStamp::of(&it.path) == it.read)
    }

    /// The files that have changed, once they have come to rest.
    pub(crate) fn poll(&mut self) -> Option<ChangedFiles> {
        let mut changed = ChangedFiles { certificates: Vec::new(), parts: false };
        let mut at_rest = true;
        for file in &mut self.files {
            let now = FileStamp::of(&file.path);
            at_rest &= now == file.polled;
            file.polled = now;
            match file.kind {
                _ if now == file.seen => {}
                FileKind::Certificate => changed.certificates.push(file.path.clone()),
                FileKind::Part => changed.parts = true,
            }
        }
        let any = changed.parts || !changed.certificates.is_empty();
        self.polls_waited = if any { self.polls_waited + 1 } else { 0 };
        (any && (at_rest || self.polls_waited > MAX_POLLS_WAITED)).then_some(changed)
    }

    /// All of them were read, or given up on, after they were in that state.
    pub(crate) fn note_seen(&mut self, before: &FileStamps) {
        self.polls_waited = 0;
        for file in &mut self.files {
            file.seen = before.of(file);
        }
    }

    /// What is served was read from all of them after they were in that state.
    pub(crate) fn note_read(&mut self, before: &FileStamps) {
        self.note_seen(before);
        for file in &mut self.files {
            file.read = before.of(file);
        }
    }

    /// The same of some of them.
    pub(crate) fn note_some_read(&mut self, paths: &[PathBuf], before: &FileStamps) {
        for file in self.files.iter_mut().filter(|it| paths.contains(&it.path)) {
            file.read = before.of(file);
        }
    }
}

impl FileStamps {
    /// A file that another configuration did not name is as it was when this one was read.
    fn of(&self, file: &WatchedFile) -> Option<FileStamp> {
        self.0.get(&file.path).copied().unwrap_or(file.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    /// A list and a certificate, as a configuration that is served names them.
    fn watched(folder: &TestFolder) -> WatchedFiles {
        let file = |name: &str, kind| {
            let path = folder.file(name, "1");
            let now = FileStamp::of(&path);
            WatchedFile { path, kind, read: now, seen: now, polled: now }
        };
        let files = vec![file("list", FileKind::Part), file("cert", FileKind::Certificate)];
        WatchedFiles { files, polls_waited: 0 }
    }

    fn changed(certificates: &[PathBuf], parts: bool) -> Option<ChangedFiles> {
        Some(ChangedFiles { certificates: certificates.to_vec(), parts })
    }

    #[test]
    fn changed_files_are_told_by_kind_once_they_are_at_rest() {
        let folder = TestFolder::new();
        let mut files = watched(&folder);
        assert_eq!(files.poll(), None);
        let cert = folder.file("cert", "22");
        assert_eq!(files.poll(), None, "it may still be written");
        folder.file("list", "22");
        assert_eq!(files.poll(), None, "a file beside it is still written");
        let both = changed(std::slice::from_ref(&cert), true);
        assert_eq!(files.poll(), both);
        assert_eq!(files.poll(), both, "until they are read");
        let before = files.stamps();
        files.note_seen(&before);
        assert_eq!(files.poll(), None);
        assert!(!files.have_changed() && !files.are_as_read());
        files.note_some_read(&[cert], &before);
        assert!(!files.are_as_read(), "the list was given up on");
        files.note_read(&before);
        assert!(files.are_as_read());
    }

    #[test]
    fn a_file_that_never_rests_is_told_in_the_end() {
        let folder = TestFolder::new();
        let mut files = watched(&folder);
        for length in 2..7 {
            folder.file("list", "x".repeat(length));
            assert_eq!(files.poll(), None);
        }
        folder.file("list", "");
        assert_eq!(files.poll(), changed(&[], true));
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_told_again() {
        let folder = TestFolder::new();
        let mut files = watched(&folder);
        folder.file("list", "22");
        let before = files.stamps();
        folder.file("list", "333");
        files.note_read(&before);
        assert!(files.have_changed());
        assert_eq!([files.poll(), files.poll()], [None, changed(&[], true)]);
    }
}
