//! How a gateway leaves, and how another takes its place.

use std::path::PathBuf;
use std::time::Duration;

use super::faults::each_refused;
use super::{good, with_route};
use crate::test_folder::TestFolder;

#[test]
fn a_delay_comes_before_the_drain() {
    let server = good(&with_route("[server]\ndrain_delay = \"15s\"")).settings.server;
    assert_eq!(server.drain_delay, Duration::from_secs(15));
    assert_eq!(good(&with_route("")).settings.server.drain_delay, Duration::ZERO);
}

#[test]
fn a_takeover_has_a_socket_in_a_folder_that_is_there() {
    let folder = TestFolder::new();
    let path = folder.join("t.sock");
    let text = with_route(&format!("[server]\ntakeover = {path:?}"));
    assert_eq!(good(&text).settings.server.takeover, Some(path));
    let here = good(&with_route("[server]\ntakeover = \"t.sock\"")).settings.server;
    assert_eq!(here.takeover, Some(PathBuf::from("t.sock")));
    assert_eq!(good(&with_route("")).settings.server.takeover, None);
}

#[test]
fn a_takeover_has_a_socket_of_its_own() {
    let folder = TestFolder::new();
    folder.file("t.txt", b"mine");
    let path = folder.join("t.txt");
    let socket = folder.join("a.sock");
    let shared = format!("[server]\nlisten = \"unix:{0}\"\ntakeover = \"{0}\"", socket.display());
    each_refused(&[
        (
            with_route(&format!("[server]\ntakeover = {path:?}")),
            "`takeover` names a file that is no socket: ",
        ),
        (with_route(&shared), "is listened on already; give one of the two another path"),
    ]);
}

#[test]
fn faults_of_drain_and_takeover_say_what_to_write() {
    let server = |keys: &str| with_route(&format!("[server]\n{keys}"));
    let long = format!("takeover = \"/tmp/{}\"", "x".repeat(92));
    each_refused(&[
        (server("drain_delay = 15"), "write it with its unit, such as `\"15s\"`"),
        (server("takeover = true"), "must be a string, not a boolean"),
        (server("takeover = \"\""), "is not the path of a socket"),
        (server("takeover = \"/tmp/\""), "write the path of a socket, such as `/run/weir/"),
        (server("takeover = \"/no/such/folder/t.sock\""), "is in a folder that does not exist"),
        (server(&long), "is too long for a socket: 97 bytes; write a path of at most 96 bytes"),
    ]);
}
