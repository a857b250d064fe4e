//! Getting to Redis and staying there: one server, a master that sentinels name, or a cluster, with
//! TLS and a login. [`session`] is what the rest of the store talks to.

pub(super) mod backoff;
pub(super) mod cluster_view;
pub(super) mod dialer;
pub(super) mod failure;
pub(super) mod hash_slot;
pub(super) mod known_nodes;
pub(super) mod nodes;
pub(super) mod reply_deadline;
pub(super) mod script_call;
pub(super) mod sentinel_watch;
pub(super) mod sentinels;
pub(super) mod server_clock;
pub(super) mod session;
