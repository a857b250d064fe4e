//! What the gateway answers, in the form of no protocol: the codec of the client's connection frames
//! and writes it.

use http::Response;

use super::{Fault, Fields, grpc};
use crate::body::Body;
use crate::config::settings::HeaderEdits;
use crate::forward::tunnel::Tunnel;
use crate::gateway::RequestEnd;
use crate::http1::Framing;
use crate::protocol::Protocol;

/// A response, and the fields that Weir adds to it.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Content>,
    pub fields: Fields,
    /// What ends with the request, once all of this is sent.
    pub end: Option<RequestEnd>,
}

/// What follows the head of an answer.
#[derive(Debug)]
pub enum Content {
    Body(Body),
    /// The upstream has agreed to another protocol: the connection carries its bytes from here on.
    Tunnel(Box<Tunnel>),
}

impl Answer {
    /// What a request gets that came by this protocol and cannot be served.
    pub(crate) fn of_fault(fault: Fault, protocol: Protocol) -> Self {
        let mut fields = Fields::default();
        if protocol.is_grpc {
            grpc::describe(&fault, &mut fields);
        }
        Answer { fields, ..Answer::from(fault) }
    }

    /// Sets and removes what the route says, whether Weir or the upstream has written it.
    pub fn edit(&mut self, edits: &HeaderEdits) {
        let headers = self.response.headers_mut();
        for name in &edits.remove {
            headers.remove(name);
            self.fields.remove(name);
        }
        for (name, value) in &edits.set {
            headers.insert(name.clone(), value.clone());
            self.fields.remove(name);
        }
    }
}

impl Default for Answer {
    fn default() -> Self {
        Response::new(Content::Body(Body::empty())).into()
    }
}

impl From<Response<Content>> for Answer {
    fn from(response: Response<Content>) -> Self {
        Answer { response, fields: Fields::default(), end: None }
    }
}

impl From<Fault> for Answer {
    fn from(fault: Fault) -> Self {
        fault.into_response().into()
    }
}

impl Content {
    /// How it would be framed for the next hop.
    pub fn framing(&self) -> Framing {
        match self {
            Content::Body(body) => body.framing(),
            Content::Tunnel(_) => Framing::Empty,
        }
    }
}

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        Content::Body(body)
    }
}
