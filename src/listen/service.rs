//! The seam between listeners and the gateway: from request to [`Answer`].
//!
//! There is one for each connection, since all requests of a connection share its peer and its scheme.
//! It knows no codec: an HTTP/1.1 connection calls it for one request after the other, an HTTP/2
//! connection once for each of its streams, which go on side by side.

use std::convert::Infallible;
use std::rc::Rc;

use http::Version;
use tower::Service;

use crate::caller::Peer;
use crate::gateway::{ClientRequest, Gateway};
use crate::protocol::{Protocol, Scheme};
use crate::respond::{Answer, Fault, grpc};

#[derive(Debug, Clone)]
pub(super) struct ConnectionService {
    gateway: Rc<Gateway>,
    peer: Rc<Peer>,
    scheme: Scheme,
}

impl ConnectionService {
    pub(super) fn new(gateway: Rc<Gateway>, peer: Peer, scheme: Scheme) -> Self {
        ConnectionService { gateway, peer: Rc::new(peer), scheme }
    }

    /// For requests that come one after the other.
    pub(super) fn sequential(
        &self,
    ) -> impl Service<ClientRequest, Response = Answer, Error = Infallible> {
        tower::service_fn(move |client: ClientRequest| {
            self.gateway.handle(&self.peer, self.protocol_of(&client), client)
        })
    }

    /// For requests that go on side by side, each in a task of its own.
    pub(super) fn answer(
        &self,
        client: ClientRequest,
    ) -> impl Future<Output = Result<Answer, Infallible>> + 'static {
        let service = self.clone();
        async move {
            let protocol = service.protocol_of(&client);
            service.gateway.handle(&service.peer, protocol, client).await
        }
    }

    /// Measures a request that could not be parsed.
    pub(super) fn note_unparsed(&self, fault: &Fault) {
        self.gateway.note_unparsed(&self.peer, fault);
    }

    /// Counts a connection that was ended for a flood.
    pub(super) fn note_flood(&self, reason: &str) {
        self.gateway.note_flood(reason);
    }

    fn protocol_of(&self, client: &ClientRequest) -> Protocol {
        let version = client.request.version();
        let is_grpc = version == Version::HTTP_2 && grpc::is_grpc(client.request.headers());
        Protocol { version, scheme: self.scheme, is_grpc }
    }
}
