//! The body of an answer on its way to an HTTP/2 client, in pieces of a bounded size.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::stream_progress::StreamProgress;
use crate::body::Body;
use crate::http1::BodyError;
use crate::http2::OutgoingBody;

/// The codec takes over a whole piece as soon as the client has room for one byte of it, so this and
/// the piece behind it are what a client that stops reading pins for each stream.
const PIECE: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct AnswerBody {
    body: OutgoingBody,
    /// What is left of a larger piece.
    rest: Bytes,
    progress: StreamProgress,
}

impl AnswerBody {
    pub(super) fn new(body: Body, progress: StreamProgress) -> Self {
        AnswerBody { body: OutgoingBody::new(body), rest: Bytes::new(), progress }
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
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.progress.note_handed_out(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
