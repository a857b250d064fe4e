//! A server of HTTP/2 that sends exactly the frames it is told to, one value for each connection.

use std::net::TcpListener;

use super::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, SETTINGS, frame, read_frame,
    settings_payload,
};
use super::wait_until;
use super::wire::Wire;

#[derive(Debug)]
pub(crate) struct FrameServer {
    pub(crate) wire: Wire,
}

impl FrameServer {
    /// Waits for a gateway to connect, and says what it allows.
    #[track_caller]
    pub(crate) fn accept(listener: &TcpListener) -> FrameServer {
        FrameServer::with_settings(listener, &[])
    }

    #[track_caller]
    pub(crate) fn with_settings(listener: &TcpListener, settings: &[(u16, u32)]) -> FrameServer {
        listener.set_nonblocking(true).unwrap();
        let mut accepted = None;
        wait_until("the gateway connects", || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut server = FrameServer { wire: Wire::new(stream) };
        assert_eq!(server.wire.take(PREFACE.len()).unwrap(), PREFACE);
        server.send(SETTINGS, 0, 0, &settings_payload(settings));
        server
    }

    #[track_caller]
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert!(self.wire.write(&frame(kind, flags, stream, payload)), "the gateway is gone");
    }

    /// The next frame of that kind.
    #[track_caller]
    pub(crate) fn next(&mut self, kind: u8) -> Frame {
        loop {
            let next = read_frame(&mut self.wire).expect("the gateway says nothing more");
            if next.kind == SETTINGS && next.flags & ACK == 0 {
                self.send(SETTINGS, ACK, 0, &[]);
            }
            if next.kind == kind {
                return next;
            }
        }
    }

    /// Answers the next request with a head and the beginning of a body.
    #[track_caller]
    pub(crate) fn begin_answer(&mut self) -> u32 {
        let stream = self.next(HEADERS).stream;
        // 0x88 is `:status: 200`: RFC 7541, appendix A.
        self.send(HEADERS, END_HEADERS, stream, &[0x88]);
        self.send(DATA, 0, stream, b"x");
        stream
    }

    /// Answers the next request.
    #[track_caller]
    pub(crate) fn answer(&mut self) {
        let stream = self.begin_answer();
        self.send(DATA, END_STREAM, stream, b"y");
    }
}
