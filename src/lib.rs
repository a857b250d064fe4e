//! Weir, an HTTP reverse proxy that exists to limit rates exactly.
//!
//! # Layout
//!
//! The modules stand in the order a request meets them:
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`config`] | TOML with its spans, diagnostics, validated settings, reload |
//! | [`listen`] | sockets, workers, connections |
//! | [`stream`] | what is under a connection: TCP, TLS, a Unix socket |
//! | [`tls`] | certificates, and what TLS is on both sides |
//! | [`http1`] | the strict codec both sides share |
//! | [`http2`] | what hyper needs to speak HTTP/2 on either side |
//! | [`body`] | a body, whatever it comes from |
//! | [`deadline`] | the one deadline of a connection |
//! | [`protocol`] | the version and the scheme of a request |
//! | [`gateway`] | the whole way of a request in one place |
//! | [`route`] | paths in one spelling, and the table of routes |
//! | [`caller`] | who sent the request |
//! | [`clock`] | time, which everything is handed as a value |
//! | [`limit`] | policies as pure functions, and keys |
//! | [`store`] | where buckets live and decisions are taken |
//! | [`respond`] | refusals, faults, rate headers |
//! | [`forward`] | headers, retries, tunnels, the echo |
//! | [`upstream`] | servers, connections, balance |
//! | [`telemetry`] | metrics, access log, audit log, log |
//! | [`violations`] | who was refused or flooded, for logs and operators |
//! | [`guards`] | who floods: counts, warnings and blocks |
//! | [`trust`] | how calls of users have ended lately |
//! | [`overrides`] | what operators set for single callers at run time |
//! | [`tenants`] | tenants that operators make at run time |
//! | [`admin`] | `/metrics`, `/healthz`, `/readyz`, `/v1` |
//! | [`app`] | assembly, reload, drain |

// The documentation is made with private items: it is for those who change Weir.
#![allow(rustdoc::private_intra_doc_links)]

mod admin;
mod app;
mod body;
mod bounded_table;
mod byte_set;
pub mod caller;
pub mod cli;
pub mod clock;
pub mod config;
mod deadline;
mod field_class;
mod forward;
pub mod gateway;
pub mod guards;
mod http1;
mod http2;
pub mod limit;
mod listen;
pub mod overrides;
mod protocol;
mod respond;
pub mod route;
mod served_changes;
mod shutdown;
pub mod store;
mod stream;
pub mod telemetry;
pub mod tenants;
#[cfg(test)]
mod test_folder;
#[cfg(test)]
mod test_log;
mod tls;
pub mod trust;
mod upstream;
pub mod violations;
