use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::test_folder::TestFolder;

fn bind(path: &Path) -> io::Result<ListeningSocket> {
    ListeningSocket::bind(&ListenAddress::Unix { path: path.to_owned(), mode: 0o600 })
}

#[test]
fn a_socket_has_its_permissions_and_nothing_is_left_beside_it() {
    let folder = TestFolder::new();
    let path = folder.join("s");
    let _socket = bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn a_socket_that_somebody_listens_on_stays() {
    let folder = TestFolder::new();
    let path = folder.join("s");
    let first = bind(&path).unwrap();
    assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(first);
    // Its file is still there, and nobody listens.
    let second = bind(&path).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    let accepted = second.try_accept().unwrap();
    assert_eq!(accepted.peer.ip(), UNIX_PEER);
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let folder = TestFolder::new();
    let path = folder.file("s", "precious");
    assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}
