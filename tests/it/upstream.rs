//! Upstream servers: connections to them, and what their failures look like to the client.

mod connection_reuse;
mod error_metrics;
mod faults;
mod file_descriptors;
mod response_timeout;
mod unreachable;
