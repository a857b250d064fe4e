//! The seam between listeners and the gateway, a `tower` service that fills in the
//! [`Answer`] to a request.
//!
//! There is one for each connection, since all requests of a connection share its peer and its scheme.
//! It knows no codec: an HTTP/1.1 connection calls it for one request after the other, an HTTP/2
//! connection once for each of its streams, which go on side by side.

use std::convert::Infallible;
use std::rc::Rc;

use http::Version;
use tower::Service;

use crate::caller::Peer;
use crate::gateway::{ClientExchange, ClientRequest, Gateway, RequestSignals};
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

    /// The service for one request.
    pub(super) fn one_request<'a>(
        &'a self,
    ) -> impl Service<ClientExchange<'a>, Response = (), Error = Infallible> {
        tower::service_fn(move |exchange: ClientExchange<'a>| {
            self.gateway.handle(&self.peer, self.protocol_of(exchange.client), exchange)
        })
    }

    /// Answers a request that the future owns, beside others of the connection.
    pub(super) fn answer_owned(
        &self,
        mut client: ClientRequest,
        signals: Rc<RequestSignals>,
    ) -> impl Future<Output = Answer> + 'static {
        let service = self.clone();
        async move {
            let mut answer = Answer::default();
            let exchange = ClientExchange { client: &mut client, signals, answer: &mut answer };
            let Ok(()) = service.one_request().call(exchange).await;
            answer
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
        let version = client.parts.version;
        let is_grpc = version == Version::HTTP_2 && grpc::is_grpc(&client.parts.headers);
        Protocol { version, scheme: self.scheme, is_grpc }
    }
}
