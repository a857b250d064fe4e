//! `server.takeover`: the path of a Unix socket.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use super::address::{ListenAddresses, UNIX};
use super::output_file;
use crate::config::file::Value;
use crate::config::suggest::{quote, shown};

/// What the system has room for (`sun_path`), less the end of the name under which a socket is made
/// before it takes its place: a dot and a process id.
const MAX_BYTES: usize = 96;

/// A path that no listener has.
pub(super) fn socket_path(value: &Value<'_>, addresses: &mut ListenAddresses) -> Option<PathBuf> {
    let path = value.text("/run/weir/takeover.sock")?;
    if let Some(path) = path.strip_prefix(UNIX) {
        let path = shown(path);
        value.error(
            "is always a Unix socket",
            format!("write its path without `{UNIX}`: `\"{path}\"`"),
        );
        return None;
    }
    let help = "write the path of a socket, such as `/run/weir/takeover.sock`";
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        value.error(&format!("is not the path of a socket: {}", quote(path)), help);
        return None;
    }
    if path.len() > MAX_BYTES {
        let fault = format!("is too long for a socket: {} bytes", path.len());
        value.error(&fault, format!("write a path of at most {MAX_BYTES} bytes"));
        return None;
    }
    let is_other = |found: fs::Metadata| !found.file_type().is_socket();
    if fs::symlink_metadata(path).is_ok_and(is_other) {
        value.error(
            &format!("names a file that is no socket: {}", quote(path)),
            "name another path, or remove the file",
        );
        return None;
    }
    let path = output_file::output_path(path, value)?;
    addresses.claim_path(path, value)
}
