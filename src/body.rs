//! The body of a request or a response, on its way through the gateway.
//!
//! One type for every origin, so that listeners, gateway and upstreams exchange bodies without boxing
//! them. Bodies are streamed; none is held whole except those Weir writes itself. A codec beside
//! HTTP/1.1 adds its bodies here, as another kind.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use crate::gateway::RequestEnd;
use crate::http1::{BodyError, Framing, Inbound};
use crate::respond::Scratch;
use crate::upstream::UpstreamBody;

#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// What ends with the request, if this is its answer's body.
    end: Option<RequestEnd>,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Text(Scratch),
    Client(Rc<RefCell<Inbound>>),
    /// A client's body of which the beginning was read ahead.
    ReadAhead(Box<ReadAhead>),
    Upstream(Box<UpstreamBody>),
}

#[derive(Debug)]
struct ReadAhead {
    beginning: Bytes,
    /// Of the whole body.
    framing: Framing,
    rest: Rc<RefCell<Inbound>>,
}

impl From<Kind> for Body {
    fn from(kind: Kind) -> Self {
        Body { kind, end: None }
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

    pub(crate) fn upstream(body: Box<UpstreamBody>) -> Self {
        Kind::Upstream(body).into()
    }

    /// Has the request end with this body.
    pub(crate) fn attach(&mut self, end: RequestEnd) {
        self.end = Some(end);
    }

    /// How this body would be framed for the next hop.
    pub fn framing(&self) -> Framing {
        match &self.kind {
            Kind::Empty => Framing::Empty,
            Kind::Full(bytes) => Framing::Length(bytes.len() as u64),
            Kind::Text(text) => Framing::Length(text.len() as u64),
            Kind::Client(inbound) => match inbound.borrow().remaining() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
            Kind::ReadAhead(ahead) => ahead.framing,
            Kind::Upstream(body) => match body.remaining() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
        }
    }

    /// Whether there is nothing to send. A request without a body may be sent again.
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Empty)
    }

    /// Refuses a body whose declared length is above the maximum. Neither it nor what follows it on
    /// the connection is read then.
    ///
    /// # Errors
    /// `TooLarge`, if it is.
    pub fn refuse_too_large(&self) -> Result<(), BodyError> {
        match &self.kind {
            Kind::Client(inbound) => inbound.borrow_mut().refuse_too_large(),
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
        let Kind::Client(inbound) = &self.kind else { return Ok(Bytes::new()) };
        let (rest, framing) = (inbound.clone(), self.framing());
        let mut read = BytesMut::new();
        while read.len() < most {
            match poll_fn(|cx| rest.borrow_mut().poll_data(cx)).await {
                None => break,
                Some(data) => read.extend_from_slice(&data?),
            }
        }
        let beginning = read.freeze();
        if !beginning.is_empty() {
            let ahead = ReadAhead { beginning: beginning.clone(), framing, rest };
            self.kind = Kind::ReadAhead(Box::new(ahead));
        }
        Ok(beginning)
    }

    /// Appends a body that Weir has written itself to `out`, without copying it into shared memory
    /// first. False if the body is of another kind.
    #[must_use = "if false the body is still to be sent"]
    pub fn append_text(&mut self, out: &mut Vec<u8>) -> bool {
        let Kind::Text(text) = &self.kind else { return false };
        out.extend_from_slice(text);
        if let Some(RequestEnd { meter, .. }) = &mut self.end {
            meter.sent(text.len());
        }
        self.kind = Kind::Empty;
        true
    }

    /// The next piece; `None` at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let next = match &mut self.kind {
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
                self.kind = Kind::Client(ahead.rest.clone());
                Some(Ok(beginning))
            }
            Kind::Upstream(body) => ready!(body.poll_data(cx)),
        };
        if let (Some(RequestEnd { meter, .. }), Some(Ok(data))) = (&mut self.end, &next) {
            meter.sent(data.len());
        }
        Poll::Ready(next)
    }
}
