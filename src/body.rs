//! The body of a request or a response, on its way through the gateway.
//!
//! One type for every origin, so that listeners, gateway and upstreams exchange bodies without boxing
//! them. Bodies are streamed; none is held whole except those Weir writes itself. Each codec adds its
//! bodies here, as a kind of their own.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::http1::{BodyError, Framing, Inbound, PollData};
use crate::http2::IncomingBody;
use crate::respond::Scratch;
use crate::upstream::{Http2Body, UpstreamBody};

#[derive(Debug)]
pub struct Body {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Text(Scratch),
    Client(Rc<RefCell<Inbound>>),
    /// Of a request that came over HTTP/2.
    Http2(Box<IncomingBody>),
    /// A client's body of which the beginning was read ahead.
    ReadAhead(Box<ReadAhead>),
    Upstream(Box<UpstreamBody>),
    UpstreamHttp2(Box<Http2Body>),
}

#[derive(Debug)]
struct ReadAhead {
    beginning: Bytes,
    /// Of the whole body.
    framing: Framing,
    rest: Kind,
}

impl From<Kind> for Body {
    fn from(kind: Kind) -> Self {
        Body { kind }
    }
}

impl Body {
    pub fn empty() -> Self {
        Kind::Empty.into()
    }

    pub fn full(bytes: Bytes) -> Self {
        Kind::Full(bytes).into()
    }

    /// A short body that Weir has written itself.
    pub fn text(text: Scratch) -> Self {
        Kind::Text(text).into()
    }

    pub(crate) fn client(inbound: Rc<RefCell<Inbound>>) -> Self {
        Kind::Client(inbound).into()
    }

    pub(crate) fn http2(body: IncomingBody) -> Self {
        Kind::Http2(Box::new(body)).into()
    }

    pub(crate) fn upstream(body: Box<UpstreamBody>) -> Self {
        Kind::Upstream(body).into()
    }

    pub(crate) fn upstream_http2(body: Box<Http2Body>) -> Self {
        Kind::UpstreamHttp2(body).into()
    }

    /// A body of which the beginning was read before; `framing` is that of the whole.
    pub(crate) fn resumed(beginning: Bytes, framing: Framing, rest: Body) -> Self {
        Kind::ReadAhead(Box::new(ReadAhead { beginning, framing, rest: rest.kind })).into()
    }

    /// How this body would be framed for the next hop.
    pub fn framing(&self) -> Framing {
        match &self.kind {
            Kind::Empty => Framing::Empty,
            Kind::Full(bytes) => Framing::Length(bytes.len() as u64),
            Kind::Text(text) => Framing::Length(text.len() as u64),
            Kind::ReadAhead(ahead) => ahead.framing,
            Kind::Client(inbound) => framing_of(inbound.borrow().remaining()),
            Kind::Http2(body) => framing_of(body.remaining()),
            Kind::Upstream(body) => framing_of(body.remaining()),
            Kind::UpstreamHttp2(body) => framing_of(body.remaining()),
        }
    }

    /// Whether there is nothing to send. A request without a body may be sent again.
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }

    /// Has a client's body be no larger than that, whatever was said before.
    pub fn set_max(&mut self, max: Option<u64>) {
        match &mut self.kind {
            Kind::Client(inbound) => inbound.borrow_mut().set_max_body(max),
            Kind::Http2(body) => body.set_max_length(max),
            _ => {}
        }
    }

    /// Refuses a body whose declared length is above the maximum. Neither it nor what follows it on
    /// the connection is read then.
    ///
    /// # Errors
    /// `TooLarge`, if it is.
    pub fn reject_too_large(&self) -> Result<(), BodyError> {
        match &self.kind {
            Kind::Client(inbound) => inbound.borrow_mut().reject_too_large(),
            Kind::Http2(body) => body.reject_too_large(),
            _ => Ok(()),
        }
    }

    /// Reads the beginning of a client's body, up to about `most` bytes. All of it is still there
    /// to be forwarded, framed as it came.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn read_ahead(&mut self, most: usize) -> Result<Bytes, BodyError> {
        if let Kind::ReadAhead(ahead) = &self.kind {
            return Ok(ahead.beginning.clone());
        }
        if !matches!(self.kind, Kind::Client(_) | Kind::Http2(_)) {
            return Ok(Bytes::new());
        }
        let framing = self.framing();
        let mut read = BytesMut::new();
        while read.len() < most {
            match poll_fn(|cx| self.poll_data(cx)).await {
                None => break,
                Some(data) => read.extend_from_slice(&data?),
            }
        }
        let beginning = read.freeze();
        if !beginning.is_empty() {
            let rest = std::mem::replace(&mut self.kind, Kind::Empty);
            let ahead = ReadAhead { beginning: beginning.clone(), framing, rest };
            self.kind = Kind::ReadAhead(Box::new(ahead));
        }
        Ok(beginning)
    }

    /// Appends a body that Weir has written itself to `out`, without copying it into shared memory
    /// first, and says how long it was. `None` if the body is of another kind.
    #[must_use = "if `None` the body is still to be sent"]
    pub fn append_text(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let Kind::Text(text) = &self.kind else { return None };
        let length = text.len();
        out.extend_from_slice(text);
        self.kind = Kind::Empty;
        Some(length)
    }

    /// The next piece; `None` at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> PollData {
        Poll::Ready(match &mut self.kind {
            Kind::Empty => None,
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.kind = Kind::Empty;
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            Kind::Text(text) => {
                let text = Bytes::copy_from_slice(text);
                self.kind = Kind::Empty;
                (!text.is_empty()).then_some(Ok(text))
            }
            Kind::Client(inbound) => ready!(inbound.borrow_mut().poll_data(cx)),
            Kind::ReadAhead(ahead) => {
                let beginning = std::mem::take(&mut ahead.beginning);
                self.kind = std::mem::replace(&mut ahead.rest, Kind::Empty);
                Some(Ok(beginning))
            }
            Kind::Http2(body) => ready!(body.poll_data(cx)),
            Kind::Upstream(body) => ready!(body.poll_data(cx)),
            Kind::UpstreamHttp2(body) => ready!(body.poll_data(cx)),
        })
    }

    /// What stood behind the body, once it has ended. Trailers of HTTP/1.1 are not passed on: nothing
    /// says which of them may be.
    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.kind {
            Kind::Http2(body) => body.take_trailers(),
            Kind::UpstreamHttp2(body) => body.take_trailers(),
            _ => None,
        }
    }
}

/// By the number of bytes that are left, if that is known.
fn framing_of(remaining: Option<u64>) -> Framing {
    remaining.map_or(Framing::Chunked, Framing::Length)
}
