//! `response_timeout`: how long an upstream may take.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::{After, Config, PATIENCE, Upstream, Weir, get, wait_until};

#[test]
fn an_upstream_that_stops_reading_an_upload_has_one_response_timeout() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |_| {
        let _ = over.lock().unwrap().recv_timeout(2 * PATIENCE);
        After::Close
    });
    let config = Config::to(&upstream)
        .open()
        .server("workers = 1")
        .upstream("response_timeout = \"4s\"\nretries = 0")
        .route("all", "/*", &[])
        .route("later", "/later", &[])
        .route_lines("timeout = \"6s\"")
        .also("[telemetry]\naccess_log = \"stdout\"");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    client.wire.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while client.wire.write(&[b'x'; 65_536]) {}
    // It begins when the body has come to a halt, and has more time than the upload and less than
    // twice as much: the worker ends them in that order, however busy the machine is.
    let mut later = weir.connect();
    later.send(get("/later"));
    assert_eq!(client.response().status, 504);
    assert_eq!(later.response().status, 504);
    let at = |path: &str| weir.output().find(&format!("\"path\":\"{path}\""));
    wait_until("both are logged", || at("/upload").is_some() && at("/later").is_some());
    assert!(at("/upload") < at("/later"), "{}", weir.output());
    drop(end);
}
