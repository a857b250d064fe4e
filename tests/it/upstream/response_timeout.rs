//! `response_timeout`: how long an upstream may take.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::{After, Config, PATIENCE, Upstream, Weir};

#[test]
fn an_upstream_that_stops_reading_an_upload_has_one_response_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |_| {
        let _ = over.lock().unwrap().recv_timeout(2 * PATIENCE);
        After::Close
    });
    let config = Config::to(&upstream).open().upstream("response_timeout = \"4s\"\nretries = 0");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    client.wire.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut last = Instant::now();
    while client.wire.write(&[b'x'; 65_536]) {
        last = Instant::now();
    }
    assert_eq!(client.response().status, 504);
    // What it was given after the last of the body moved: once, and not twice.
    assert!(last.elapsed() < TIMEOUT * 7 / 4, "{:?}", last.elapsed());
    drop(end);
}
