//! `http2` of `[server]`.

use super::faults::each_refused;
use super::{good, with_route};
use crate::config::settings::Http2;

#[test]
fn http2_is_spoken_unless_it_is_turned_off() {
    let http2 = |line: &str| good(&with_route(&format!("[server]\n{line}"))).settings.server.http2;
    assert_eq!(http2(""), Some(Http2::default()));
    assert_eq!(http2("http2 = true"), Some(Http2::default()));
    assert_eq!(http2("http2 = false"), None);
    let some = Http2 { max_streams: 16, stream_window: 64 << 10 };
    assert_eq!(http2("http2 = { max_streams = 16, stream_window = \"64KiB\" }"), Some(some));
    assert_eq!(http2("[server.http2]\nmax_streams = 1").map(|it| it.max_streams), Some(1));
}

#[test]
fn faults_of_http2_say_what_to_write() {
    let server = |line: &str| with_route(&format!("[server]\n{line}"));
    each_refused(&[
        (server("http2 = \"on\""), "`http2` must be a boolean, not a string; write `true` or"),
        (server("http2 = { max_streams = 0 }"), "write a number from 1 to 1024"),
        (server("http2 = { stream_window = \"1KiB\" }"), "write a size from 16KiB to 16MiB"),
        (server("http2 = { max_stream = 1 }"), "did you mean `max_streams`?"),
    ]);
}
