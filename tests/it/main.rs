//! Black-box tests: the real binary on real sockets, spoken to in raw bytes.
//!
//! One binary, one folder a subject. Every test starts its own gateway and its own upstreams on
//! free ports, so that all of them may run at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

#[path = "../support/support.rs"]
mod support;

// What a request is on the wire, which route it takes, what its answer looks like.
mod http;

// Who it counts as, and whether it may pass.
mod identity;

// How limits count, what they charge, what becomes of requests they do not admit.
mod limits;

// Gateways that share one store, and its failures.
mod redis;

// On to the upstream and back.
mod upstream;

// Running a gateway: command line, reload, admin listener, logs, snapshots.
mod operations;

// All of it at scale, and around failures.
mod adversary;
