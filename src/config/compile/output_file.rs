//! Files that Weir writes: logs and snapshots.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::config::file::Value;
use crate::config::regular_file;
use crate::config::suggest::quote;

/// The file is made if it is not there; its folder is not, since a misspelled one would be.
pub(super) fn output_path(path: &str, value: &Value<'_>) -> Option<PathBuf> {
    let file = PathBuf::from(path);
    if let Some(fault) = missing_folder(&file) {
        value.error(&fault, "create the folder first, or name a file in one that is there");
        return None;
    }
    Some(file)
}

/// What to say of a file whose folder is not there.
pub(super) fn missing_folder(file: &Path) -> Option<String> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.filter(|it| is_gone(it))?;
    let folder = regular_file::looked_up(folder);
    Some(format!("is in a folder that does not exist: {}", quote(&folder.to_string_lossy())))
}

/// One name for each file, whichever way its path goes; nothing for what is no plain file, of which
/// several may well be one: devices, pipes. `/dev/stdout` is a file or none by how Weir was started,
/// which is no matter of the configuration.
pub(super) fn file_identity(path: &Path) -> Option<PathBuf> {
    if path.starts_with("/dev") {
        return None;
    }
    if let Ok(file) = path.canonicalize() {
        return path.metadata().is_ok_and(|it| it.is_file()).then_some(file);
    }
    let path = std::path::absolute(path).ok()?;
    let folder = path.parent()?.canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// Whatever else is in the way shows when the file is opened.
fn is_gone(folder: &Path) -> bool {
    match folder.metadata() {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}
