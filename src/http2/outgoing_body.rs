//! A body on its way into an HTTP/2 stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::body::Body;
use crate::http1::{BodyError, Framing};

/// Pieces of the body, then its trailers, if it has any.
#[derive(Debug)]
pub(crate) struct OutgoingBody {
    body: Body,
    ended: bool,
}

impl OutgoingBody {
    pub(crate) fn new(body: Body) -> Self {
        let ended = matches!(body.framing(), Framing::Empty | Framing::Length(0));
        OutgoingBody { body, ended }
    }
}

impl HttpBody for OutgoingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.body.poll_data(cx)) {
            Some(data) => Poll::Ready(Some(data.map(Frame::data))),
            None => {
                self.ended = true;
                Poll::Ready(self.body.take_trailers().map(|it| Ok(Frame::trailers(it))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.framing() {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Length(length) => SizeHint::with_exact(length),
            Framing::Chunked | Framing::UntilClose => SizeHint::default(),
        }
    }
}
