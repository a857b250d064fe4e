//! Weir, an HTTP reverse proxy that exists to limit rates exactly.
//!
//! # Layout
//!
//! The modules stand in the order a request meets them:
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | TOML with its spans, diagnostics, validated settings, reload |
//! | [`listen`] | sockets, workers, connections |
//! | [`http1`] | the strict codec both sides share |
//! | [`gateway`] | the whole way of a request in one place |
//! | [`route`] | paths in one spelling, and the table of routes |
//! | [`caller`] | who sent the request |
//! | [`limit`] | policies as pure functions, and keys |
//! | [`store`] | where buckets live and decisions are taken |
//! | [`respond`] | refusals, faults, rate headers |
//! | [`forward`] | headers, retries, tunnels, the echo |
//! | [`upstream`] | servers, connections, balance |
//! | [`telemetry`] | metrics, access log, audit log, log |
//! | [`rulings`] | what operators decide at run time |
//! | [`admin`] | `/metrics`, `/healthz`, `/readyz`, `/v1` |
//! | [`app`] | assembly, reload, drain |

pub mod admin;
pub mod app;
pub mod body;
pub mod caller;
pub mod cli;
pub mod clock;
pub mod config;
pub mod forward;
pub mod gateway;
pub mod http1;
pub mod limit;
pub mod listen;
pub mod respond;
pub mod route;
pub mod rulings;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod upstream;
