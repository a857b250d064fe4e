//! The seam between listeners and the gateway: a [`tower::Service`] from request to [`Answer`].
//!
//! There is one for each connection, since all requests of a connection share its peer and its scheme.
//! It knows no codec: what an HTTP/1.1 connection calls one request at a time, an HTTP/2 connection
//! would call once for each of its streams.

use std::convert::Infallible;
use std::rc::Rc;

use tower::Service;

use crate::caller::Peer;
use crate::gateway::{ClientRequest, Gateway};
use crate::protocol::{Protocol, Scheme};
use crate::respond::Answer;

pub(super) fn of_connection<'a>(
    gateway: &'a Rc<Gateway>,
    peer: &'a Peer,
    scheme: Scheme,
) -> impl Service<ClientRequest, Response = Answer, Error = Infallible> + 'a {
    tower::service_fn(move |client: ClientRequest| {
        let protocol = Protocol { version: client.request.version(), scheme };
        gateway.handle(peer, protocol, client)
    })
}
