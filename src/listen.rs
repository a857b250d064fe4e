//! From the socket to the gateway: listeners, workers, who a connection speaks for, and HTTP served
//! on it.
//!
//! One acceptor deals connections to the worker that has the fewest; a worker is a thread with a
//! runtime, a gateway and upstream connections of its own, so requests never cross threads.

pub mod acceptor;
pub mod connection;
mod ending;
mod presence;
pub mod proxy_protocol;
pub mod request;
pub mod response;
pub mod worker;
