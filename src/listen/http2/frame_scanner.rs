//! Follows the frames in what goes one way, however its bytes are cut: RFC 9113 section 4.1.
//!
//! The codec reads them; this only sees where each begins and what it is.

/// What a client sends before its first frame.
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// The largest payload: RFC 9113 section 4.2, which the settings do not change.
const MAX_PAYLOAD: u32 = 1 << 14;

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: u32,
    pub(super) kind: FrameKind,
    code: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Data,
    Headers,
    Reset,
    Settings,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Those that only keep a connection going, and those that mean nothing.
    Other,
}

impl FrameHead {
    fn parse(head: [u8; HEAD]) -> Self {
        let [high, middle, low, kind, flags, a, b, c, d] = head;
        FrameHead {
            length: u32::from_be_bytes([0, high, middle, low]),
            kind: match kind {
                0 => FrameKind::Data,
                1 => FrameKind::Headers,
                3 => FrameKind::Reset,
                4 => FrameKind::Settings,
                7 => FrameKind::GoAway,
                8 => FrameKind::WindowUpdate,
                9 => FrameKind::Continuation,
                _ => FrameKind::Other,
            },
            code: kind,
            flags,
            stream: u32::from_be_bytes([a & 0x7f, b, c, d]),
        }
    }

    /// Whether it is none that a client may send, by its head alone.
    pub(super) fn is_malformed(&self) -> bool {
        let is_malformed = match self.code {
            0 | 9 => self.stream == 0,
            // The streams of clients have odd numbers.
            1 => self.stream.is_multiple_of(2),
            2 => self.stream == 0 || self.length != 5,
            3 => self.stream == 0 || self.length != 4,
            4 => self.stream != 0 || !self.length.is_multiple_of(6),
            // Clients push nothing.
            5 => true,
            6 => self.stream != 0 || self.length != 8,
            7 => self.stream != 0 || self.length < 8,
            8 => self.length != 4,
            _ => false,
        };
        is_malformed || self.length > MAX_PAYLOAD
    }

    /// Whether a header block ends with it.
    pub(super) fn ends_headers(&self) -> bool {
        self.flags & 0x4 != 0
    }

    /// Whether what the client has to say on the stream ends with it.
    pub(super) fn ends_stream(&self) -> bool {
        self.flags & 0x1 != 0
    }
}

#[derive(Debug)]
pub(super) struct FrameScanner {
    /// Of the preface or of a frame's payload: what is still to come.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    is_data: bool,
}

impl FrameScanner {
    /// Of what the client sends.
    pub(super) fn new() -> Self {
        FrameScanner { skip: PREFACE, ..FrameScanner::of_server() }
    }

    /// Of what the server sends, which has no preface but frames.
    pub(super) fn of_server() -> Self {
        FrameScanner { skip: 0, head: [0; HEAD], filled: 0, is_data: false }
    }

    /// Goes through `bytes` to the end of the next frame's head, and says how far that was. `None`: the
    /// bytes end before one does.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<(usize, FrameHead)> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let rest = &bytes[skipped..];
        let taken = rest.len().min(HEAD - self.filled);
        self.head[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
        self.filled += taken;
        if self.filled < HEAD {
            return None;
        }
        let head = FrameHead::parse(self.head);
        self.filled = 0;
        self.skip = head.length as usize;
        self.is_data = head.kind == FrameKind::Data;
        Some((skipped + taken, head))
    }

    /// Whether the bytes so far end within a frame.
    pub(super) fn is_within_frame(&self) -> bool {
        self.skip > 0 || self.filled > 0
    }

    /// The same, unless that is a piece of a body.
    pub(super) fn is_within_frame_but_data(&self) -> bool {
        self.filled > 0 || (self.skip > 0 && !self.is_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> Vec<u8> {
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        wire.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        wire.extend_from_slice(&[0, 0, 3, 1, 5, 0, 0, 0, 1, 7, 7, 7]);
        wire.extend_from_slice(&[0, 0, 4, 3, 0, 0x80, 0, 0, 1, 0, 0, 0, 8]);
        wire
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let wire = wire();
        for size in 1..=wire.len() {
            let (mut scanner, mut found) = (FrameScanner::new(), Vec::new());
            for piece in wire.chunks(size) {
                let mut rest = piece;
                while let Some((used, head)) = scanner.next(rest) {
                    found.push((head.kind, head.length, head.stream));
                    rest = &rest[used..];
                }
            }
            let expected =
                [(FrameKind::Settings, 0, 0), (FrameKind::Headers, 3, 1), (FrameKind::Reset, 4, 1)];
            assert_eq!(found, expected, "in pieces of {size}");
            assert!(!scanner.is_within_frame());
        }
    }

    #[test]
    fn frames_that_clients_may_not_send_are_told_by_their_heads() {
        let is_malformed = |kind, length, stream| {
            FrameHead::parse([0, 0, length, kind, 0, 0, 0, 0, stream]).is_malformed()
        };
        let good = [(0, 0, 1), (1, 9, 3), (2, 5, 1), (3, 4, 1), (4, 12, 0), (6, 8, 0), (8, 4, 0)];
        for (kind, length, stream) in good {
            assert!(!is_malformed(kind, length, stream), "{kind}");
        }
        let bad = [(0, 1, 0), (1, 9, 2), (2, 4, 1), (3, 5, 1), (4, 7, 0), (5, 9, 1), (6, 8, 1)];
        for (kind, length, stream) in bad {
            assert!(is_malformed(kind, length, stream), "{kind}");
        }
        assert!(FrameHead::parse([0, 0x40, 1, 0, 0, 0, 0, 0, 1]).is_malformed());
    }

    #[test]
    fn end_of_a_head_is_where_its_payload_begins() {
        let (mut scanner, wire) = (FrameScanner::new(), wire());
        let (settings, _) = scanner.next(&wire).unwrap();
        assert_eq!(settings, 33);
        let (headers, head) = scanner.next(&wire[settings..]).unwrap();
        assert_eq!((headers, head.ends_headers(), head.ends_stream()), (9, true, true));
        let (reset, _) = scanner.next(&wire[settings + headers..]).unwrap();
        assert_eq!(reset, 3 + 9);
    }
}
