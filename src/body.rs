//! The body of a request or a response, on its way through the gateway.
//!
//! One type for every origin, so that listener, gateway and upstreams meet at
//! `Request<Body> → Response<Body>` without boxing. Bodies are streamed; none is held whole
//! except those Weir writes itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use crate::http1::{BodyError, Framing, Inbound, Wire};
use crate::respond::Scratch;
use crate::telemetry::Meter;
use crate::upstream::{Slot, UpstreamBody};

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
    Text(Scratch),
    Client(Rc<RefCell<Inbound>>),
    /// The same, of which the beginning was looked at, and how it came.
    Begun(Bytes, Framing, Rc<RefCell<Inbound>>),
    Upstream(Box<UpstreamBody>),
    /// Not a body: the upstream agreed to speak another protocol from here on.
    Tunnel(Box<Wire>, Slot),
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

    /// A short body that Weir has written itself.
    #[must_use]
    pub fn text(text: Scratch) -> Self {
        Kind::Text(text).into()
    }

    pub(crate) fn client(inbound: Rc<RefCell<Inbound>>) -> Self {
        Kind::Client(inbound).into()
    }

    pub(crate) fn upstream(body: Box<UpstreamBody>) -> Self {
        Kind::Upstream(body).into()
    }

    pub(crate) fn tunnel(wire: Box<Wire>, slot: Slot) -> Self {
        Kind::Tunnel(wire, slot).into()
    }

    pub(crate) fn attach(&mut self, meter: Meter) {
        self.meter = Some(meter);
    }

    /// How this body would be framed for the next hop.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match &self.kind {
            Kind::Empty | Kind::Tunnel(..) => Framing::Empty,
            Kind::Full(bytes) => Framing::Length(bytes.len() as u64),
            Kind::Text(text) => Framing::Length(text.len() as u64),
            Kind::Client(inbound) => match inbound.borrow().remaining() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
            Kind::Begun(_, framing, _) => *framing,
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

    /// Refuses a body that is announced to be larger than it may be. Nothing of it is read then, nor
    /// what is behind it.
    ///
    /// # Errors
    /// If it is.
    pub fn refuse_too_large(&self) -> Result<(), BodyError> {
        match &self.kind {
            Kind::Client(inbound) => inbound.borrow_mut().refuse_too_large(),
            _ => Ok(()),
        }
    }

    /// Reads the beginning of a client's body, up to about so many bytes. All of it is still there
    /// to be forwarded, framed as it came.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn look(&mut self, most: usize) -> Result<Bytes, BodyError> {
        if let Kind::Begun(read, ..) = &self.kind {
            return Ok(read.clone());
        }
        let Kind::Client(inbound) = &self.kind else { return Ok(Bytes::new()) };
        let (inbound, framing) = (inbound.clone(), self.framing());
        let mut read = BytesMut::new();
        while read.len() < most {
            match poll_fn(|cx| inbound.borrow_mut().poll_data(cx)).await {
                None => break,
                Some(data) => read.extend_from_slice(&data?),
            }
        }
        let read = read.freeze();
        if !read.is_empty() {
            self.kind = Kind::Begun(read.clone(), framing, inbound);
        }
        Ok(read)
    }

    /// The other side of a tunnel, if that is what this is.
    pub(crate) fn take_tunnel(&mut self) -> Option<(Box<Wire>, Slot)> {
        match std::mem::replace(&mut self.kind, Kind::Empty) {
            Kind::Tunnel(wire, slot) => Some((wire, slot)),
            other => {
                self.kind = other;
                None
            }
        }
    }

    /// Appends a body that is a text to `out`, without the detour through shared memory. False if
    /// it is none.
    pub fn append_text(&mut self, out: &mut Vec<u8>) -> bool {
        let Kind::Text(text) = &self.kind else { return false };
        out.extend_from_slice(text);
        if let Some(meter) = &mut self.meter {
            meter.sent(text.len());
        }
        self.kind = Kind::Empty;
        true
    }

    /// The next piece; `None` at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let next = match &mut self.kind {
            Kind::Empty | Kind::Tunnel(..) => None,
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
            Kind::Begun(read, _, inbound) => {
                let (read, inbound) = (std::mem::take(read), inbound.clone());
                self.kind = Kind::Client(inbound);
                Some(Ok(read))
            }
            Kind::Upstream(body) => ready!(body.poll_data(cx)),
        };
        if let (Some(meter), Some(Ok(data))) = (&mut self.meter, &next) {
            meter.sent(data.len());
        }
        Poll::Ready(next)
    }
}
