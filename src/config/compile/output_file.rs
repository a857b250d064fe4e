//! Files that Weir writes: logs and snapshots.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::config::file::Value;
use crate::config::suggest::quote;

/// The file is made if it is not there; its folder is not, since a misspelled one would be.
pub(super) fn output_path(path: &str, value: &Value<'_>) -> Option<PathBuf> {
    let file = PathBuf::from(path);
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|it| is_gone(it)) {
        value.error(
            &format!("is in a folder that does not exist: {}", quote(&folder.to_string_lossy())),
            "create the folder first, or name a file in one that is there",
        );
        return None;
    }
    Some(file)
}

/// Whatever else is in the way shows when the file is opened.
fn is_gone(folder: &Path) -> bool {
    match folder.metadata() {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}
