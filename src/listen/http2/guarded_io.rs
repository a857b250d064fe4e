//! A client's connection under the codec: it looks at each frame that comes, and has a deadline for a
//! client that takes nothing.
//!
//! It holds two things true that the codec by itself does not. A client that floods the connection with
//! frames that ask for nothing, or with streams that come to nothing, runs out of budget, and is told so
//! (GOAWAY) if what was written before ends where a frame does. And a stream that was opened comes to the service: the
//! codec reads all that is there before it hands over the first stream, and forgets streams that were
//! reset, or whose connection ended, by then. So a reset, the end of the connection, and frames that are
//! seen to be errors of it are held back until every stream before them was handed over.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::ConnectionActivity;
use super::frame_budget::FloodError;
use super::frame_scanner::{FrameHead, FrameKind, FrameScanner};
use super::unanswered_streams::UnansweredStreams;
use crate::deadline::Deadline;
use crate::http2::ConnectionIo;
use crate::listen::connection::ServerSettings;

/// Of increments from here on, two end the connection.
const LARGE_INCREMENT: u32 = 1 << 30;
/// Of what a client has sent after its flood was noticed, this much is read before the connection is
/// closed: closing it with something unread could take from the client what it was told.
const UNREAD_PIECES: usize = 16;

#[derive(Debug)]
pub(super) struct GuardedIo {
    io: ConnectionIo,
    activity: Rc<ConnectionActivity>,
    scanner: FrameScanner,
    /// What was written so far.
    written: FrameScanner,
    /// The latest stream that was opened, and the latest that the codec has heard of.
    last_stream: u32,
    last_shown: u32,
    unanswered: UnansweredStreams,
    block: HeaderBlock,
    /// What was read and is not to be seen yet, and how much of it was scanned.
    held: BytesMut,
    held_scanned: usize,
    /// How the connection has ended, if that is not to be seen yet.
    held_end: Option<io::Result<()>>,
    handover: Handover,
    settings: Rc<ServerSettings>,
    /// While the client takes nothing of what is to be written.
    write_deadline: Deadline,
}

/// How much of a header block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderBlock {
    None,
    /// Others of its frames are to come.
    Begun {
        opens: bool,
    },
    /// The rest of its last frame may still be to come.
    Ending {
        opens: bool,
    },
}

/// Whether streams were opened that the service may not have seen yet.
#[derive(Debug, Default)]
struct Handover {
    pending: bool,
    /// How many were opened since, and how many the codec takes at once. It would reset all others, and
    /// end the connection for that before it hands over the first.
    opened: u32,
    max_streams: u32,
    /// How many the service had seen when the codec last read.
    seen: u64,
    /// Whether there was nothing for it to read then.
    paused: bool,
}

impl HeaderBlock {
    fn new(opens: bool, ends: bool) -> Self {
        if ends { HeaderBlock::Ending { opens } } else { HeaderBlock::Begun { opens } }
    }
}

impl GuardedIo {
    pub(super) fn new(
        io: ConnectionIo,
        activity: Rc<ConnectionActivity>,
        settings: Rc<ServerSettings>,
        max_streams: u32,
    ) -> TokioIo<Self> {
        TokioIo::new(GuardedIo {
            io,
            activity,
            scanner: FrameScanner::new(),
            written: FrameScanner::of_server(),
            last_stream: 0,
            last_shown: 0,
            unanswered: UnansweredStreams::default(),
            block: HeaderBlock::None,
            held: BytesMut::new(),
            held_scanned: 0,
            held_end: None,
            handover: Handover { max_streams, ..Handover::default() },
            settings,
            write_deadline: Deadline::default(),
        })
    }

    /// Finds out whether all streams were handed over. The codec hands over one each time that there is
    /// nothing to read, so if it comes back without having done so there are none left.
    fn check_handover(&mut self) {
        let seen = self.activity.seen();
        if self.handover.pending && self.handover.paused && seen == self.handover.seen {
            self.handover.pending = false;
            self.handover.opened = 0;
        }
        self.handover.seen = seen;
    }

    /// Looks at what was just read, of which `scanned` bytes were looked at before. Returns how much of
    /// it the codec may see now.
    fn scan(&mut self, bytes: &[u8], scanned: usize) -> Result<usize, FloodError> {
        let mut at = scanned;
        while let Some((used, head)) = self.scanner.next(&bytes[at..]) {
            at += used;
            self.end_header_block()?;
            let is_held = self.handover.pending && self.may_end_streams(head, &bytes[at..]);
            self.note_frame(head)?;
            if is_held {
                // All but the last byte of its head, which was scanned.
                self.held_scanned = 1;
                return Ok(at - 1);
            }
        }
        if !self.scanner.is_within_frame() {
            self.end_header_block()?;
        }
        Ok(bytes.len())
    }

    /// Whether streams that the codec has not handed over may be lost to this frame: it resets one, or it
    /// is, or may be, an error of the connection. Of its payload the beginning may have come.
    fn may_end_streams(&self, head: FrameHead, payload: &[u8]) -> bool {
        let is_within_block = self.block != HeaderBlock::None;
        if head.is_malformed() || is_within_block != (head.kind == FrameKind::Continuation) {
            return true;
        }
        match head.kind {
            FrameKind::Reset | FrameKind::Settings | FrameKind::GoAway => true,
            // What opens no stream are trailers, if it is no error.
            FrameKind::Headers => {
                head.stream <= self.last_stream || self.handover.opened >= self.handover.max_streams
            }
            FrameKind::Data => head.stream > self.last_stream,
            FrameKind::WindowUpdate => match payload.first_chunk() {
                Some(increment) => {
                    !(1..LARGE_INCREMENT).contains(&(u32::from_be_bytes(*increment) << 1 >> 1))
                }
                None => true,
            },
            FrameKind::Continuation | FrameKind::Other => false,
        }
    }

    /// Spends and earns for a frame, of which the head has come.
    fn note_frame(&mut self, head: FrameHead) -> Result<(), FloodError> {
        match head.kind {
            FrameKind::Headers => {
                let opens = head.stream > self.last_stream;
                self.last_stream = self.last_stream.max(head.stream);
                self.block = HeaderBlock::new(opens, head.ends_headers());
            }
            FrameKind::Continuation => {
                if let HeaderBlock::Begun { opens } = self.block {
                    self.block = HeaderBlock::new(opens, head.ends_headers());
                }
                self.activity.spend_frame()?;
            }
            FrameKind::Reset if self.unanswered.remove(head.stream) => {
                self.activity.spend_stream()?;
            }
            FrameKind::Data if head.length > 0 => self.activity.earn(head.length),
            FrameKind::Data if head.ends_stream() => {}
            FrameKind::GoAway => {}
            FrameKind::Data
            | FrameKind::Reset
            | FrameKind::Settings
            | FrameKind::WindowUpdate
            | FrameKind::Other => self.activity.spend_frame()?,
        }
        Ok(())
    }

    /// Notes that all of the frame before has come.
    fn end_header_block(&mut self) -> Result<(), FloodError> {
        if let HeaderBlock::Ending { opens } = self.block {
            self.block = HeaderBlock::None;
            if opens {
                self.unanswered.insert(self.last_stream)?;
                self.activity.note_opened();
                self.handover.pending = true;
                self.handover.opened += 1;
            }
        }
        Ok(())
    }

    /// Looks at what was just written: which streams are answered, and which are reset unanswered, since
    /// they were refused or are malformed.
    fn note_written(&mut self, mut written: &[u8]) {
        while let Some((used, head)) = self.written.next(written) {
            written = &written[used..];
            let ends_waiting = matches!(head.kind, FrameKind::Headers | FrameKind::Reset)
                && self.unanswered.remove(head.stream);
            if ends_waiting && head.kind == FrameKind::Headers {
                self.activity.note_answered();
            } else if ends_waiting && let Err(flood) = self.activity.spend_stream() {
                self.activity.note_flood(flood);
            }
        }
    }

    /// Tells the client that this is the end, as far as it has room for that, and which streams were not
    /// looked at. Then there is nothing more to read.
    fn end_for(&mut self, flood: FloodError, cx: &mut Context<'_>) -> io::Error {
        self.activity.note_flood(flood);
        if !self.written.is_within_frame() {
            let io = &mut self.io;
            let told = Pin::new(&mut *io).poll_write(cx, &goaway(self.last_shown));
            if told.is_ready() && Pin::new(&mut *io).poll_flush(cx).is_ready() {
                let _ = Pin::new(&mut *io).poll_shutdown(cx);
                let mut unread = [0; 4096];
                for _ in 0..UNREAD_PIECES {
                    let mut piece = ReadBuf::new(&mut unread);
                    let read = Pin::new(&mut *io).poll_read(cx, &mut piece);
                    if !matches!(read, Poll::Ready(Ok(()))) || piece.filled().is_empty() {
                        break;
                    }
                }
            }
        }
        io::Error::other(flood)
    }

    /// Whether the client has begun something that it has to finish soon. Data has time: it may come
    /// over a slow line.
    fn is_partial(&self) -> bool {
        self.block != HeaderBlock::None || self.scanner.is_within_frame_but_data()
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(flood) = self.activity.flood() {
            return Poll::Ready(Err(self.end_for(flood, cx)));
        }
        self.check_handover();
        let is_held = !self.held.is_empty() || self.held_end.is_some();
        if is_held && self.handover.pending {
            // Once more, when the streams before it were handed over.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(end) = self.held_end.take() {
            return Poll::Ready(end);
        }
        let before = buffer.filled().len();
        let mut scanned = 0;
        if self.held.is_empty() {
            match Pin::new(&mut self.io).poll_read(cx, buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if buffer.filled().len() > before => {}
                Poll::Ready(end) if self.handover.pending => {
                    self.held_end = Some(end);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(end) => return Poll::Ready(end),
            }
        } else {
            let length = self.held.len().min(buffer.remaining());
            buffer.put_slice(&self.held[..length]);
            self.held.advance(length);
            scanned = std::mem::take(&mut self.held_scanned).min(length);
            if self.held.is_empty() {
                // Even empty it would hold on to its buffer.
                self.held = BytesMut::new();
            }
        }
        let seen = match self.scan(&buffer.filled()[before..], scanned) {
            Ok(seen) => seen,
            Err(flood) => return Poll::Ready(Err(self.end_for(flood, cx))),
        };
        self.last_shown = self.last_stream;
        self.activity.note_partial(self.is_partial());
        let end = before + seen;
        if end < buffer.filled().len() {
            let rest = &buffer.filled()[end..];
            let held = std::mem::take(&mut self.held);
            self.held.extend_from_slice(rest);
            self.held.unsplit(held);
            buffer.set_filled(end);
            if seen == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the connection if the client takes nothing for too long.
    fn check_written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Pending => {
                self.write_deadline.set_stall_timeout(self.settings.borrow().request_timeout);
                self.write_deadline.poll(cx)
            }
            Poll::Ready(result) => {
                self.write_deadline.note_progress();
                Poll::Ready(result)
            }
        }
    }
}

impl AsyncRead for GuardedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_next(cx, buffer);
        self.handover.paused = read.is_pending();
        read
    }
}

impl AsyncWrite for GuardedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        if let Poll::Ready(Ok(length)) = written {
            self.note_written(&data[..length]);
        }
        self.check_written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        if let Poll::Ready(Ok(mut length)) = written {
            for piece in pieces {
                let taken = piece.len().min(length);
                self.note_written(&piece[..taken]);
                length -= taken;
            }
        }
        self.check_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_written(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_written(cx, shut)
    }
}

/// ENHANCE_YOUR_CALM, and the last stream that may have been looked at: RFC 9113 section 6.8.
fn goaway(last_stream: u32) -> [u8; 17] {
    let mut frame = [0; 17];
    (frame[2], frame[3]) = (8, 7);
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[13..].copy_from_slice(&u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes());
    frame
}
