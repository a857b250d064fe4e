//! `http2` of `[server]`: a boolean, or a table with what differs from the defaults.

use super::server::read;
use crate::config::file::Section;
use crate::config::settings::Http2;

/// RFC 9113 section 6.5.2 advises against fewer than 100; one at a time is slow, but serves.
const STREAMS: std::ops::RangeInclusive<u64> = 1..=1024;
/// Below a frame every body would crawl; above this a connection pins too much memory.
const WINDOW: std::ops::RangeInclusive<u64> = 16 << 10..=16 << 20;

/// `None`: HTTP/1.1 only.
pub(super) fn http2(server: &mut Section<'_>) -> Option<Http2> {
    let (value, mut table) = server.value_or_section("http2");
    let default = Http2::default();
    let streams = u64::from(default.max_streams);
    let max_streams = read(&mut table, "max_streams", streams, |it| it.integer(STREAMS));
    let window = u64::from(default.stream_window);
    let stream_window = read(&mut table, "stream_window", window, |it| it.size(WINDOW));
    let wanted = match value.filter(|value| !value.is_table()) {
        Some(value) => value.boolean().unwrap_or(true),
        None => true,
    };
    // Both are in their ranges, which `u32` holds.
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    wanted.then(|| Http2 { max_streams: number(max_streams), stream_window: number(stream_window) })
}
