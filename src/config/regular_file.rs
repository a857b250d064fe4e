//! Reading the files that a configuration is made of.
//!
//! Opening a pipe waits for a writer, and a device may never end, so anything that is not a regular
//! file is an error at once.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::units::show_size;

/// The whole path that is looked up for one, so that a message shows where nothing was found.
pub(crate) fn looked_up(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// What is in a file of at most so many bytes.
///
/// # Errors
/// If it cannot be read, is larger, or is no regular file.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Without it, opening a pipe would wait; for a regular file it means nothing.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let too_large = || io::Error::other(format!("it is larger than {}", show_size(most)));
    if found.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn a_pipe_and_a_device_are_faults_at_once() {
        let folder = TestFolder::new();
        let pipe = folder.join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let fault = |path: &Path| read(path, 100).unwrap_err().to_string();
        assert_eq!(fault(&pipe), "it is not a regular file");
        assert_eq!(fault(Path::new("/dev/zero")), "it is not a regular file");
        assert_eq!(read(folder.path(), 100).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let file = folder.file("file", "12345");
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert_eq!(fault(&folder.join("gone")), "No such file or directory (os error 2)");
        assert!(read(&file, 4).unwrap_err().to_string().contains("larger than 4"));
    }
}
