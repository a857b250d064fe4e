//! The body of an answer on its way to an HTTP/2 client, in pieces of a bounded size.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::stream_progress::StreamProgress;
use crate::body::Body;
use crate::gateway::RequestEnd;
use crate::http1::{BodyError, Framing};

/// The codec takes over a whole piece as soon as the client has room for one byte of it, so this and
/// the piece behind it are what a client that stops reading pins for each stream.
const PIECE: usize = 16 * 1024;

/// Pieces of the body, then its trailers, if it has any.
#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Body,
    ended: bool,
    /// What is left of a larger piece.
    rest: Bytes,
    progress: StreamProgress,
    /// What ends with the request. Declared after the body, so that it is dropped after it.
    end: Option<RequestEnd>,
}

impl AnswerBody {
    pub(super) fn new(body: Body, end: Option<RequestEnd>, progress: StreamProgress) -> Self {
        let ended = matches!(body.framing(), Framing::Empty | Framing::Length(0));
        AnswerBody { body, ended, rest: Bytes::new(), progress, end }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // What was handed out before has been sent, or there is room for it.
        self.progress.note_taken();
        if self.rest.is_empty() {
            if self.ended {
                return Poll::Ready(None);
            }
            let Some(data) = ready!(self.body.poll_data(cx)) else {
                self.ended = true;
                return Poll::Ready(self.body.take_trailers().map(|it| Ok(Frame::trailers(it))));
            };
            self.rest = data?;
            let length = self.rest.len();
            if let Some(end) = &mut self.end {
                end.note_sent(length);
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.progress.note_handed_out(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.ended
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.framing() {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Length(length) => SizeHint::with_exact(length),
            Framing::Chunked | Framing::UntilClose => SizeHint::default(),
        }
    }
}
