//! What tells that a file has changed, without reading it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The metadata of a file. Two that are equal are of the same content, unless somebody forged them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// Also moves when the old time of a file is restored.
    changed: (i64, i64),
}

impl FileStamp {
    /// `None` if its metadata cannot be read, which is a state like any other. A link is followed.
    pub(super) fn of(path: &Path) -> Option<FileStamp> {
        let it = std::fs::metadata(path).ok()?;
        Some(FileStamp {
            file: (it.dev(), it.ino()),
            length: it.size(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn stamps_tell_that_a_file_has_changed() {
        let folder = TestFolder::new();
        let path = folder.file("list.txt", "10.0.0.0/8\n");
        let first = FileStamp::of(&path);
        assert_eq!(first, FileStamp::of(&path));
        // Replaced, by one as long and as old.
        let other = folder.file("other.txt", "11.0.0.0/8\n");
        let old = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(&other).unwrap().set_modified(old).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let second = FileStamp::of(&path);
        assert_ne!(first, second);
        folder.file("list.txt", "10.0.0.0/8\n11.0.0.0/8\n");
        assert_ne!(second, FileStamp::of(&path));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(FileStamp::of(&path), None);
    }
}
