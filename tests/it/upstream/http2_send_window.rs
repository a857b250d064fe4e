//! Uploads that share a connection with one that the server does not read.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::support::frame_server::FrameServer;
use crate::support::frames::{DATA, HEADERS, RST_STREAM, WINDOW_UPDATE};
use crate::support::{Client, Config, Weir, get, post};

/// What a connection may be sent before the server asks for more, unless it says otherwise: RFC 9113
/// section 6.9.2.
const CONNECTION_WINDOW: usize = 65_535;
/// SETTINGS_INITIAL_WINDOW_SIZE, so that the connection's window is what runs out.
const STREAM_WINDOW: (u16, u32) = (4, 1 << 20);

/// A gateway, and the server's side of a connection whose window an upload has used up.
struct StalledUpload {
    weir: Weir,
    listener: TcpListener,
    uploading: Client,
    server: FrameServer,
}

/// `more` is what the client sends beyond the window.
fn stalled_upload(upstream_lines: &str, more: usize) -> StalledUpload {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::to_servers(&[listener.local_addr().unwrap()]).open();
    let lines = format!("http2 = true\n{upstream_lines}");
    let weir = Weir::start(&config.upstream(&lines).server("workers = 1"));
    let mut uploading = weir.connect();
    uploading.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    uploading.send("x".repeat(CONNECTION_WINDOW + more));
    let mut server = FrameServer::with_settings(&listener, &[STREAM_WINDOW]);
    server.next(HEADERS);
    let mut received = 0;
    while received < CONNECTION_WINDOW {
        received += server.next(DATA).payload.len();
    }
    StalledUpload { weir, listener, uploading, server }
}

/// Until what stands still counts as stalled. That time passes is the condition.
fn stand_still() {
    thread::sleep(Duration::from_millis(500));
}

/// A client whose request has been sent.
fn asking(weir: &Weir, request: String) -> Client {
    let mut client = weir.connect();
    client.send(request);
    client
}

#[test]
fn an_upload_that_the_server_does_not_read_stops_no_other() {
    let StalledUpload { weir, listener, mut uploading, mut server } = stalled_upload("", 100_000);
    stand_still();
    let mut second = asking(&weir, post("/", "hello"));
    let mut other = FrameServer::accept(&listener);
    other.answer();
    assert_eq!(second.response().status, 200);
    // What has no body needs no window.
    let mut bodiless = asking(&weir, get("/"));
    server.answer();
    assert_eq!(bodiless.response().status, 200);
    // Once it moves again, it takes uploads as before.
    server.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 20).to_be_bytes());
    server.next(DATA);
    uploading.send("x".repeat(100_000));
    let mut received = 0;
    while received < 150_000 {
        received += server.next(DATA).payload.len();
    }
    let mut third = asking(&weir, post("/", "hello"));
    server.answer();
    assert_eq!(third.response().status, 200);
}

/// The first upload is not held up itself, so nothing shows that the window is gone until the next one is.
#[test]
fn an_upload_that_pauses_when_the_window_is_used_up_stops_one_other() {
    let StalledUpload { weir, listener, mut server, uploading: _uploading } = stalled_upload("", 0);
    let held_up = asking(&weir, post("/", "hello"));
    server.next(HEADERS);
    stand_still();
    let mut next = asking(&weir, post("/", "hello"));
    let mut other = FrameServer::accept(&listener);
    other.answer();
    assert_eq!(next.response().status, 200);
    // That it has left says nothing of the window.
    held_up.wire.reset();
    server.next(RST_STREAM);
    let mut last = asking(&weir, post("/", "hello"));
    other.answer();
    assert_eq!(last.response().status, 200);
}

#[test]
fn where_no_other_connection_may_be_made_uploads_share_the_one_there_is() {
    let StalledUpload { weir, mut server, uploading: _uploading, .. } =
        stalled_upload("max_connections = 1", 100_000);
    stand_still();
    let mut second = asking(&weir, post("/", "hello"));
    server.answer();
    assert_eq!(second.response().status, 200);
}
