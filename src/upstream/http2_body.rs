//! The body of a request on its way into an HTTP/2 stream to an upstream.
//!
//! hyper sends bodies in tasks of its own, but a client's body belongs to the task of its request:
//! that one hears if the client leaves, and holds the connection's deadline. So the request's task
//! feeds hyper piece by piece, each when it is asked for, through a slot that both share.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::ExchangeError;
use super::http2_uploads::{Upload, Uploads};
use crate::body::Body;
use crate::forward::field_rules::RouteFields;
use crate::http1::{BodyError, Framing, PollData};

/// How much of a body is kept until the response begins, so that a request that no server has
/// looked at can be sent again.
const MAX_KEPT: usize = 64 * 1024;
/// Pieces below this are copied together, so that a body in tiny ones has no frame and no buffer for each.
const MIN_PIECE: usize = 1024;

/// What is between the two tasks.
#[derive(Debug, Default)]
struct Slot {
    frame: Option<Frame<Bytes>>,
    /// No frame comes after the one that is there.
    ended: bool,
    /// hyper waits for a frame.
    wanted: bool,
    /// The feeder is gone, or the client's body has failed.
    aborted: bool,
    /// hyper is gone: the stream has ended.
    closed: bool,
    reader: Option<Waker>,
    feeder: Option<Waker>,
}

impl Slot {
    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_feeder(&mut self) {
        if let Some(waker) = self.feeder.take() {
            waker.wake();
        }
    }
}

/// hyper's end.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None`: there is no body.
    slot: Option<Rc<RefCell<Slot>>>,
    length: Option<u64>,
    /// Tells the connection whether it gets on.
    upload: Upload,
}

/// The request's end.
#[derive(Debug)]
pub(super) struct BodyFeeder {
    body: Body,
    slot: Rc<RefCell<Slot>>,
    /// Of the whole body.
    framing: Framing,
    /// Says what may stand behind it. `None`: nothing may.
    trailer_fields: Option<Rc<RouteFields>>,
    /// What follows the pieces that were gathered last.
    next: Option<Option<Result<Bytes, BodyError>>>,
    /// What was sent of it, while it can still be taken back.
    kept: Option<SentPieces>,
    waits_for_client: bool,
}

/// Both ends. Without a body there is nothing to feed. `trailer_fields` says what may stand behind the
/// body, if anything may.
pub(super) fn request_body(
    body: Body,
    trailer_fields: Option<Rc<RouteFields>>,
    uploads: &Rc<Uploads>,
) -> (RequestBody, Option<BodyFeeder>) {
    let (framing, upload) = (body.framing(), Upload::new(uploads));
    let length = match framing {
        Framing::Empty | Framing::Length(0) => {
            return (RequestBody { slot: None, length: Some(0), upload }, None);
        }
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    let slot = Rc::<RefCell<Slot>>::default();
    let kept = Some(SentPieces::default());
    let to_hyper = RequestBody { slot: Some(slot.clone()), length, upload };
    let (next, waits_for_client) = (None, false);
    let feeder = BodyFeeder { body, slot, framing, trailer_fields, next, kept, waits_for_client };
    (to_hyper, Some(feeder))
}

impl BodyFeeder {
    /// Hands over what hyper asks for, and says whether anything moved.
    ///
    /// # Errors
    /// If the client's body cannot be read. The stream is reset then.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, ExchangeError> {
        self.waits_for_client = false;
        {
            let mut slot = self.slot.borrow_mut();
            if !slot.wanted || slot.ended || slot.closed {
                slot.feeder = Some(cx.waker().clone());
                return Ok(false);
            }
        }
        let next = match self.poll_piece(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                self.waits_for_client = true;
                // hyper may stop to wait.
                self.slot.borrow_mut().feeder = Some(cx.waker().clone());
                return Ok(false);
            }
        };
        let trailers = if next.is_none() { self.take_trailers() } else { None };
        let mut slot = self.slot.borrow_mut();
        slot.wanted = false;
        match next {
            Some(Ok(data)) => {
                if self.kept.as_mut().is_some_and(|kept| !kept.keep(&data)) {
                    self.kept = None;
                }
                slot.frame = Some(Frame::data(data));
            }
            Some(Err(error)) => {
                slot.aborted = true;
                slot.wake_reader();
                return Err(ExchangeError::Request(error));
            }
            None => {
                slot.ended = true;
                if let Some(trailers) = trailers {
                    // They cannot be asked for twice.
                    self.kept = None;
                    slot.frame = Some(Frame::trailers(trailers));
                }
            }
        }
        slot.feeder = Some(cx.waker().clone());
        slot.wake_reader();
        Ok(true)
    }

    /// The next piece of the body. Small ones that have come already go together: as frames of their own
    /// they would look like a flood to some servers.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> PollData {
        let first = match self.next.take() {
            Some(next) => next,
            None => ready!(self.body.poll_data(cx)),
        };
        let mut piece = match first {
            Some(Ok(data)) if data.len() < MIN_PIECE => data,
            other => return Poll::Ready(other),
        };
        let mut gathered = BytesMut::new();
        while piece.len() + gathered.len() < MIN_PIECE {
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(more))) => {
                    gathered.extend_from_slice(&std::mem::replace(&mut piece, more));
                }
                Poll::Ready(other) => {
                    self.next = Some(other);
                    break;
                }
                Poll::Pending => break,
            }
        }
        if !gathered.is_empty() {
            gathered.extend_from_slice(&piece);
            piece = gathered.freeze();
        }
        Poll::Ready(Some(Ok(piece)))
    }

    /// What may be sent behind the body. A section with nothing in it is an error to some servers.
    fn take_trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = self.body.take_trailers()?;
        self.trailer_fields.as_ref()?.clean_request_trailers(&mut trailers);
        (!trailers.is_empty()).then_some(trailers)
    }

    /// Whether the server would take more than the client has sent.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// The response has begun: nothing is sent again.
    pub(super) fn forget_sent(&mut self) {
        self.kept = None;
    }

    /// The whole body again, if no more than a little of it was sent.
    pub(super) fn take_back(&mut self) -> Option<Body> {
        let mut kept = self.kept.take()?;
        match self.next.take() {
            None | Some(None) => {}
            Some(Some(Ok(data))) => kept.keep(&data).then_some(())?,
            Some(Some(Err(_))) => return None,
        }
        let sent = kept.into_bytes();
        let rest = std::mem::replace(&mut self.body, Body::empty());
        Some(if sent.is_empty() { rest } else { Body::resumed(sent, self.framing, rest) })
    }
}

/// What was sent of a body.
#[derive(Debug, Default)]
struct SentPieces {
    pieces: Vec<Bytes>,
    /// Small ones that came after these.
    small: BytesMut,
    length: usize,
}

impl SentPieces {
    /// Returns false if that is too much to keep.
    fn keep(&mut self, data: &Bytes) -> bool {
        self.length = self.length.saturating_add(data.len());
        if self.length > MAX_KEPT {
            return false;
        }
        if data.len() < MIN_PIECE {
            self.small.extend_from_slice(data);
        } else {
            if !self.small.is_empty() {
                self.pieces.push(self.small.split().freeze());
            }
            self.pieces.push(data.clone());
        }
        true
    }

    /// All of it in one piece. Copied, if there are several: requests are seldom sent again.
    fn into_bytes(mut self) -> Bytes {
        match self.pieces.as_mut_slice() {
            [] => self.small.freeze(),
            [only] if self.small.is_empty() => std::mem::take(only),
            _ => [self.pieces.concat(), self.small.to_vec()].concat().into(),
        }
    }
}

impl Drop for BodyFeeder {
    fn drop(&mut self) {
        let mut slot = self.slot.borrow_mut();
        slot.aborted |= !slot.ended;
        slot.wake_reader();
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let RequestBody { slot: Some(slot), upload, .. } = self.get_mut() else {
            return Poll::Ready(None);
        };
        upload.note_asked();
        let mut slot = slot.borrow_mut();
        if slot.aborted {
            // hyper takes the code of the reset from it.
            return Poll::Ready(Some(Err(h2::Reason::CANCEL.into())));
        }
        if let Some(frame) = slot.frame.take() {
            if frame.is_data() {
                upload.note_taken();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if slot.ended {
            return Poll::Ready(None);
        }
        slot.wanted = true;
        slot.reader = Some(cx.waker().clone());
        slot.wake_feeder();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| {
            let slot = slot.borrow();
            slot.ended && slot.frame.is_none() && !slot.aborted
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            let mut slot = slot.borrow_mut();
            slot.closed = true;
            slot.wake_feeder();
        }
    }
}

#[cfg(test)]
mod tests;
