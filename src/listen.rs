//! From the socket to the gateway: listeners, workers, the PROXY header, TLS, and connections.
//!
//! One acceptor assigns connections to the worker that has the fewest; a worker is a thread with a
//! runtime, a gateway and upstream connections of its own, so requests never cross threads.
//!
//! A connection parses requests and calls the service of [`service`], which answers in the form of no
//! protocol. By what its TLS handshake has negotiated (ALPN), or by its first bytes, it goes to the
//! HTTP/1.1 loop of [`connection`] or to hyper's HTTP/2 server in [`http2`]; both call the same service.

pub(crate) mod acceptor;
pub(crate) mod address_count;
mod connection;
mod control;
mod ending;
mod header_reuse;
mod host;
mod http2;
pub(crate) mod listener;
mod next_head;
mod opening;
mod presence;
pub(crate) mod proxy_protocol;
mod request;
mod response;
mod service;
pub(crate) mod socket;
mod tls;
pub(crate) mod worker;
