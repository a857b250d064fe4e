//! The file itself. At any instant the old snapshot or the new one is there, whole: a new one is
//! written beside it, brought to the disk, and only then takes its name.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{LoadError, Restored, SaveError, SnapshotExtras, decode, encode};
use crate::clock::Clock;
use crate::store::MemoryStore;

const BUFFER_BYTES: usize = 128 * 1024;

/// Writes all live buckets, the secret that names them and overrides, and says how many buckets there
/// were. Takes as long as the disk does.
///
/// # Errors
/// If it cannot; then the old file is still there.
pub(in crate::store::memory) fn save(
    store: &MemoryStore,
    extras: SnapshotExtras<'_>,
    path: &Path,
) -> Result<usize, SaveError> {
    replace(path, |file| encode::encode(store, extras, file))
        .map_err(|source| SaveError { path: path.to_owned(), source })
}

/// Opens a store with what a file says; `None` if there is no file.
///
/// # Errors
/// If the file cannot be read, or is damaged.
pub(in crate::store::memory) fn load(
    path: &Path,
    max_keys: usize,
    clock: Clock,
) -> Result<Option<Restored>, LoadError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        // Opening a pipe would block until something is written into it.
        Ok(it) if !it.is_file() => return Err(io::Error::other("it is not a plain file").into()),
        Ok(_) => {}
    }
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    decode::decode(file, max_keys, clock).map(Some)
}

/// Gives a damaged file another name, one that no file has, and says which.
///
/// # Errors
/// If it cannot; then the file is where it was.
pub(in crate::store::memory) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = beside(path, ".damaged");
    let mut number = 1;
    while aside.symlink_metadata().is_ok() {
        number += 1;
        aside = beside(path, &format!(".damaged-{number}"));
    }
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Replaces a file as a whole by what `write` writes.
fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    let fresh = beside(path, ".new");
    let written = create(&fresh).and_then(|file| {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let written = write(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&fresh, path)?;
        Ok(written)
    });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    let written = written?;
    // A name is on the disk once its folder is.
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(written)
}

/// For this user's eyes only, since it holds a secret. What a crash has left there may be for
/// others' as well, so it is not written to but removed.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
