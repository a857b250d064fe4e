//! Black-box tests: the real binary on real sockets, spoken to in raw bytes.
//!
//! One binary, one file a subject. Every test starts its own gateway and its own upstreams on
//! free ports, so that all of them may run at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

#[path = "../support/support.rs"]
mod support;

// What a request is: framing, and how connections carry it.
mod chunked;
mod framing;
mod host;
mod methods;
mod pipelining;
mod slow;

// Which route it takes, who it counts as, whether it may pass.
mod access;
mod addresses;
mod api_keys;
mod callers;
mod credentials;
mod forms;
mod identity;
mod limits;
mod oauth;
mod plans;
mod proxy_protocol;
mod routing;
mod token_keys;
mod tokens;

// What a limit can do: how it counts, what it charges, what becomes of those it does not admit.
mod absent;
mod algorithms;
mod awaited;
mod concurrency;
mod costs;
mod degrade;
mod departing;
mod later;
mod leaving;
mod mixture;
mod queue;
mod queue_overrides;
mod shadow;
mod stalls;
mod switches;
mod told_costs;
mod waiting;

// On to upstream and back.
mod bodies;
mod claims;
mod deadlines;
mod exhausted;
mod forwarding;
mod reuse;
mod unreachable;
mod upgrade;
mod upstream_errors;
mod upstream_faults;

// What the caller is told.
mod answers;
mod curl;

// Running it.
mod access_log;
mod admin;
mod admin_token;
mod audit;
mod cli;
mod control_plane;
mod health;
mod lifecycle;
mod names;
mod panels;
mod reload;
mod rulings;
mod snapshot;

// Many gateways that share one store.
mod redis;
mod redis_charges;
mod redis_cluster;
mod redis_connect;
mod redis_failover;
mod redis_faults;
mod redis_keys;
mod redis_on_error;
mod redis_operation;
mod redis_places;
mod redis_refusals;
mod redis_regression;
mod redis_rulings;
mod redis_sentinel;
mod redis_takeover;

// All of it at scale, and around failures.
mod adversary;

// The servers that the tests of a shared store start.
mod servers;

// What once went wrong and belongs to none of these.
mod regression;
