//! The body of a request or a response, on its way through the gateway.
//!
//! One type for every origin, so that listener, gateway and upstreams meet at
//! `Request<Body> → Response<Body>` without boxing. Bodies are streamed; none is held whole
//! except those Weir writes itself.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::http1::{BodyError, Framing, Wire};
use crate::listen::Inbound;
use crate::telemetry::Meter;
use crate::upstream::UpstreamBody;

#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// Written down when the body has ended or was given up.
    meter: Option<Meter>,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Client(Rc<RefCell<Inbound>>),
    Upstream(Box<UpstreamBody>),
    /// Not a body: the upstream agreed to speak another protocol from here on.
    Tunnel(Box<Wire>),
}

impl From<Kind> for Body {
    fn from(kind: Kind) -> Self {
        Body { kind, meter: None }
    }
}

impl Body {
    #[must_use]
    pub fn empty() -> Self {
        Kind::Empty.into()
    }

    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Kind::Full(bytes).into()
    }

    pub(crate) fn client(inbound: Rc<RefCell<Inbound>>) -> Self {
        Kind::Client(inbound).into()
    }

    pub(crate) fn upstream(body: Box<UpstreamBody>) -> Self {
        Kind::Upstream(body).into()
    }

    pub(crate) fn tunnel(wire: Box<Wire>) -> Self {
        Kind::Tunnel(wire).into()
    }

    pub(crate) fn attach(&mut self, meter: Meter) {
        self.meter = Some(meter);
    }

    /// How this body would be framed for the next hop.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match &self.kind {
            Kind::Empty | Kind::Tunnel(_) => Framing::Empty,
            Kind::Full(bytes) => Framing::Length(bytes.len() as u64),
            Kind::Client(inbound) => match inbound.borrow().remaining() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
            Kind::Upstream(body) => match body.remaining() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
        }
    }

    /// Whether there is nothing to send. A request without a body may be sent again.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }

    /// The other side of a tunnel, if that is what this is.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Wire>> {
        match std::mem::replace(&mut self.kind, Kind::Empty) {
            Kind::Tunnel(wire) => Some(wire),
            other => {
                self.kind = other;
                None
            }
        }
    }

    /// The next piece; `None` at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let next = match &mut self.kind {
            Kind::Empty | Kind::Tunnel(_) => None,
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.kind = Kind::Empty;
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            Kind::Client(inbound) => ready!(inbound.borrow_mut().poll_data(cx)),
            Kind::Upstream(body) => ready!(body.poll_data(cx)),
        };
        if let (Some(meter), Some(Ok(data))) = (&mut self.meter, &next) {
            meter.sent(data.len());
        }
        Poll::Ready(next)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.get_mut().poll_data(cx).map(|next| next.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.framing() == Framing::Empty
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing() {
            Framing::Empty => SizeHint::with_exact(0),
            Framing::Length(length) => SizeHint::with_exact(length),
            Framing::Chunked | Framing::UntilClose => SizeHint::default(),
        }
    }
}
