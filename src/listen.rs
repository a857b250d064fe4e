//! From the socket to the gateway: listeners, workers, the PROXY header, and HTTP/1.1 connections.
//!
//! One acceptor assigns connections to the worker that has the fewest; a worker is a thread with a
//! runtime, a gateway and upstream connections of its own, so requests never cross threads.
//!
//! A connection parses requests and calls the service of [`service`], which answers in the form of no
//! protocol. HTTP/2 would attach in `worker`, where a connection is served: by what its TLS handshake
//! has negotiated (ALPN), or by its first bytes, it goes to this HTTP/1.1 loop or to hyper's HTTP/2
//! server, which calls the same service.

pub(crate) mod acceptor;
mod connection;
mod control;
mod ending;
mod next_head;
mod presence;
pub(crate) mod proxy_protocol;
mod request;
mod response;
mod service;
pub(crate) mod worker;
