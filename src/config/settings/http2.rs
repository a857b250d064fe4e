//! `http2` of `[server]`: what one HTTP/2 connection of a client may take.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2 {
    /// Requests under way at a time on one connection.
    pub max_streams: u32,
    /// How much of one request's body may wait in memory, while no upstream takes it.
    pub stream_window: u32,
}

impl Default for Http2 {
    fn default() -> Self {
        Http2 { max_streams: 128, stream_window: 64 << 10 }
    }
}
