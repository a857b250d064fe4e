//! Weir, an HTTP reverse proxy that exists to limit rates exactly.

pub mod clock;
pub mod config;
pub mod limit;
pub mod store;
