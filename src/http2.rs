//! HTTP/2 as hyper speaks it: what the client's side and the upstream's side have in common.
//!
//! hyper reads and writes the frames; a stream's message becomes the same `Request<Body>` or
//! `Response<Content>` as one of HTTP/1.1. Everything runs on the worker's own thread.

mod connection_io;
mod incoming_body;
mod local_executor;
mod unread_body;

pub(crate) use connection_io::ConnectionIo;
pub(crate) use incoming_body::IncomingBody;
pub(crate) use local_executor::LocalExecutor;
