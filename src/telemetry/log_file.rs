//! A log in a file that may be moved away, by others or by size, while it is written to.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

use crate::config::settings::Rotation;

pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    /// Set when others have moved it.
    reopen: Arc<AtomicBool>,
    rotation: Rotation,
    /// What is in it; `None` if it cannot be rotated: a pipe, a terminal.
    size: Option<u64>,
}

impl LogFile {
    pub(super) fn open(
        path: &Path,
        rotation: Rotation,
        reopen: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let file = append(path)?;
        let size = size_of(&file);
        Ok(LogFile { file, path: path.to_owned(), reopen, rotation, size })
    }

    /// Opens the file by its name. If that fails, the one that is open serves on.
    fn open_again(&mut self) {
        match append(&self.path) {
            Ok(file) => {
                self.size = size_of(&file);
                self.file = file;
            }
            Err(error) => tracing::error!(%error, "cannot reopen {}", self.path.display()),
        }
    }

    /// Whether a line has to go into the next file. A file that is empty takes any line.
    fn is_full(&self, line: &[u8]) -> bool {
        let full = |size: u64| size > 0 && size + line.len() as u64 > self.rotation.max_size;
        self.rotation.max_size > 0 && self.size.is_some_and(full)
    }

    /// `audit.log` becomes `audit.log.1`, that `audit.log.2`, and the last one goes.
    fn rotate(&mut self) {
        let keep = self.rotation.keep;
        let moved = (1..keep).rev().try_for_each(|number| {
            rename(&numbered(&self.path, number), &numbered(&self.path, number + 1))
        });
        let moved = moved.and_then(|()| match keep {
            0 => fs::remove_file(&self.path),
            _ => rename(&self.path, &numbered(&self.path, 1)),
        });
        if let Err(error) = moved {
            tracing::error!(%error, "cannot rotate {}", self.path.display());
            // Tried again when it has grown by as much once more.
            self.size = Some(0);
            return;
        }
        self.open_again();
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Ordering::AcqRel) {
            self.open_again();
        }
        if self.is_full(line) {
            self.rotate();
        }
        let written = self.file.write(line)?;
        self.size = self.size.map(|size| size + written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    // Opening a pipe that nobody reads would wait for a reader: so it fails. From then on writing
    // may wait, which is this thread's business alone.
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn size_of(file: &File) -> Option<u64> {
    file.metadata().ok().filter(fs::Metadata::is_file).map(|it| it.len())
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

/// What is not there need not be moved.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    fn rotated(rotation: Rotation, lines: usize) -> Vec<(String, String)> {
        let folder = TestFolder::new();
        let path = folder.file("audit.log", "old\n");
        let mut log = LogFile::open(&path, rotation, Arc::default()).unwrap();
        for number in 0..lines {
            log.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let mut files: Vec<(String, String)> = fs::read_dir(folder.path())
            .unwrap()
            .map(|it| it.unwrap())
            .map(|it| {
                let text = fs::read_to_string(it.path()).unwrap();
                (it.file_name().into_string().unwrap(), text.replace('\n', ";"))
            })
            .collect();
        files.sort();
        files
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_full_file_is_moved_aside_and_the_oldest_goes() {
        let files = rotated(Rotation { max_size: 14, keep: 2 }, 6);
        let wanted = named(&[
            ("audit.log", "line 5;"),
            ("audit.log.1", "line 3;line 4;"),
            ("audit.log.2", "line 1;line 2;"),
        ]);
        assert_eq!(files, wanted);
        let files = rotated(Rotation { max_size: 14, keep: 0 }, 6);
        assert_eq!(files, named(&[("audit.log", "line 5;")]));
    }

    #[test]
    fn without_a_size_nothing_is_moved_and_a_long_line_is_written_whole() {
        let files = rotated(Rotation::default(), 2);
        assert_eq!(files, named(&[("audit.log", "old;line 0;line 1;")]));
        let files = rotated(Rotation { max_size: 1, keep: 1 }, 2);
        assert_eq!(files, named(&[("audit.log", "line 1;"), ("audit.log.1", "line 0;")]));
    }
}
