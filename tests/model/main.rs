//! The engine against its semantics: vectors, random histories, many threads.
//!
//! Whatever decides implements [`decider::Decider`]; what it should say comes from the naive
//! models in [`reference_model`], which share no code with the engine.

#[path = "../support/programs.rs"]
#[allow(dead_code, reason = "made for the black-box tests")]
mod programs;
#[path = "../support/scratch.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "made for the black-box tests")]
mod scratch;

/// What is under test, behind one interface.
mod decider;
/// The Lua scripts on a Redis of the test's own, as such.
mod lua;
/// The policies on a plain map, as such.
mod map_store;
/// The semantics once more, written to be obvious and not to be fast.
mod reference_model;
/// Random limits, costs and times.
mod strategies;
/// Random steps under limits that change, for Rust and Lua together.
mod twin_steps;

/// Numbers that follow a caller's trust.
mod adaptive_numbers;
/// Several sets of numbers that alternate on one bucket.
mod alternating_numbers;
/// At most `burst + rate × t` over any interval, and hardly less.
mod bucket_bound;
/// Days and months of a time zone.
mod calendar;
/// Pairs of buckets, of which the first that admits is charged.
mod choice;
/// Calls whose replies get lost.
mod fence;
/// A table that is full.
mod full_table;
/// Guards of several gateways.
mod guards;
/// Random histories, step by step against the models.
mod histories;
/// When requests leave a leaky bucket.
mod leaky_bucket;
/// Gateways that hold leases, in virtual time: delays, crashes, partitions, clocks.
mod lease_simulation;
/// Units that are taken in advance, in Rust and in Lua.
mod leases;
/// Limits that change under their buckets.
mod limit_changes;
/// A log's promise, over all windows.
mod log_bound;
/// Counting the nodes that share a Redis.
mod node_count;
/// Nodes that decide alone, each by its share.
mod node_shares;
/// Checks that are not enforced, and checks that spend nothing.
mod not_enforced;
/// Before, during and after an outage of Redis, as one node lives it.
mod outage;
/// Shared buckets, while many threads want them and time goes on.
mod overflow_buckets;
/// What is under a key in Redis: expiry, wrong types, garbage.
mod redis_keys;
/// Buckets that refill at whole periods, several of which stand for one.
mod refill_bucket;
/// Charges that are refunded.
mod refunds;
/// Slots that workers of many gateways hold in Redis.
mod slot_holders;
/// Slots that requests hold.
mod slots;
/// Random histories of a table with hardly any room.
mod small_table;
/// Trees of tenants, against what each tenant by itself says.
mod tenant_tree;
/// Requests of tenants, as the gateway plans them.
mod tenants;
/// Many threads at once.
mod threads;
/// What is known of users, in Rust and in Lua.
mod trust_records;
/// Each algorithm is one file in Rust and one in Lua, with the same functions.
mod twin_files;
/// Rust and Lua, step by step and bit for bit.
mod twins;
/// Fixed histories from `vectors.toml`.
mod vectors;
/// Requests that are decided later than they were due.
mod waited;
