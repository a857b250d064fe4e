//! What the frames of one stream do to the others of its connection to an upstream: late ones, small
//! ones, wrong ones.

use std::net::TcpListener;

use crate::support::frame_server::FrameServer;
use crate::support::frames::{CANCEL, DATA, END_STREAM, FrameClient, PING, RST_STREAM, frame};
use crate::support::{Client, Config, Weir, get};

/// How many streams that it has reset the codec remembers for a second, if it is not told otherwise.
const REMEMBERED_RESETS: usize = 50;
/// How often it takes what comes for a forgotten one, in the life of a connection, if not told otherwise.
const FORGIVEN_FRAMES: usize = 1024;

/// A gateway, a client whose request is under way, and the server's side of its connection.
fn with_one_under_way() -> (Weir, Client, FrameServer, u32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::to_servers(&[listener.local_addr().unwrap()]).open();
    let weir = Weir::start(&config.upstream("http2 = true").server("workers = 1"));
    let mut client = weir.connect();
    client.send(get("/"));
    let mut server = FrameServer::accept(&listener);
    let stream = server.begin_answer();
    (weir, client, server, stream)
}

/// The answer that was under way ends as if nothing else had happened on its connection.
fn assert_answered(mut client: Client, mut server: FrameServer, stream: u32) {
    server.send(DATA, END_STREAM, stream, b"y");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (200, "xy"));
}

#[test]
fn data_that_comes_after_a_reset_ends_no_other_stream() {
    let (weir, client, mut server, kept) = with_one_under_way();
    let mut leaving = FrameClient::connect(weir.address());
    for _ in 0..FORGIVEN_FRAMES + 10 * REMEMBERED_RESETS {
        let request = leaving.get("/");
        let stream = server.begin_answer();
        while leaving.known(request).status.is_none() {
            leaving.next().unwrap();
        }
        leaving.reset(request, CANCEL);
        server.next(RST_STREAM);
        server.send(DATA, 0, stream, b"late");
        // So that the codec has dealt with it before the next one comes.
        server.send(PING, 0, 0, b"are you?");
        server.next(PING);
    }
    assert_answered(client, server, kept);
}

#[test]
fn crumbs_of_an_upload_are_passed_on_together() {
    const CRUMBS: usize = 3_000;
    let (weir, _client, mut server, _) = with_one_under_way();
    let mut client = weir.connect();
    let crumbs = "1\r\nx\r\n".repeat(CRUMBS);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{crumbs}0\r\n\r\n"
    ));
    let (mut received, mut frames) = (0, 0);
    loop {
        let data = server.next(DATA);
        (received, frames) = (received + data.payload.len(), frames + 1);
        if data.flags & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(received, CRUMBS);
    assert!(frames <= CRUMBS / 10, "{frames} frames");
}

/// DATA on no stream is an error of the connection, for which all its streams end.
#[test]
fn what_a_server_did_wrong_is_not_told_to_the_client_as_its_own_fault() {
    const INTERNAL_ERROR: u32 = 2;
    let (weir, _client, mut server, _) = with_one_under_way();
    let mut other = FrameClient::connect(weir.address());
    let request = other.get("/");
    server.begin_answer();
    while other.known(request).body.is_empty() {
        other.next().unwrap();
    }
    server.send(DATA, 0, 0, b"on no stream");
    assert_eq!(other.outcome(request).reset, Some(INTERNAL_ERROR));
    assert!(other.farewells.is_empty(), "its connection goes on");
}

#[test]
fn messages_that_a_client_does_not_read_end_no_other_stream() {
    let (weir, client, mut server, kept) = with_one_under_way();
    // Windows of no bytes: SETTINGS_INITIAL_WINDOW_SIZE is 4.
    let mut slow = FrameClient::with_settings(weir.address(), &[(4, 0)]);
    for _ in 0..20 {
        slow.get("/");
        let stream = server.begin_answer();
        // All that the gateway has room for, in pieces as small as those of a stream of events.
        let messages = frame(DATA, 0, stream, b"twelve bytes").repeat(5_000);
        assert!(server.wire.write(&messages), "the gateway is gone");
    }
    assert_answered(client, server, kept);
}
