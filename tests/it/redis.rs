//! Gateways that share their buckets over Redis, and everything that can fail on the way.

mod cluster;
mod cluster_clocks;
mod cluster_takeover;
mod connection;
mod delayed_requests;
mod failover;
mod faults;
mod guards;
mod hybrid;
mod hybrid_outages;
mod joint_recovery;
mod keys;
mod on_error;
mod operation;
mod overrides;
mod pairs;
mod refunds;
mod refusal_cache;
mod regression;
mod sentinel;
mod shared_limits;
mod slots;
mod test_servers;
mod trust;
