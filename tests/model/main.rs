//! The engine against its semantics: vectors, random histories, many threads.
//!
//! Whatever decides implements [`decider::Decider`]; what it should say comes from the naive
//! models in [`reference`], which share no code with the engine.

#[path = "../support/programs.rs"]
#[allow(dead_code, reason = "made for the black-box tests")]
mod programs;
#[path = "../support/scratch.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "made for the black-box tests")]
mod scratch;

/// What is under test, behind one face.
mod decider;
/// The Lua scripts on a Redis of the test's own, as such.
mod lua;
/// The policies on a plain map, as such.
mod plain;
/// The semantics once more, written to be obvious and not to be fast.
mod reference;
/// Random limits, costs and times.
mod strategies;
/// Random turns of limits that change, for Rust and Lua together.
mod turns;

/// A log's promise, over all windows.
mod any_window;
/// At most `burst + rate × t` over any interval, and hardly less.
mod bound;
/// Numbers that hold for one bucket by turns.
mod by_turns;
/// Days and months of a time zone.
mod calendar;
/// Limits that change under their buckets.
mod changes;
/// Many threads at once.
mod concurrency;
/// Calls whose replies get lost.
mod fence;
/// A table that is full.
mod full_table;
/// Charges that are given back.
mod give_back;
/// Random histories, step by step against the models.
mod histories;
/// Places that workers of many gateways hold in Redis.
mod holders;
/// What is under a key in Redis: expiry, wrong types, garbage.
mod keys;
/// Callers who come later than they were promised.
mod late;
/// When requests leave a leaky bucket.
mod leaky;
/// Counting the nodes that share a Redis.
mod nodes;
/// Before, during and after an outage of Redis, as one node lives it.
mod outage;
/// Shared buckets, while many threads want them and time goes on.
mod overflow;
/// Places that requests hold.
mod places;
/// Buckets that refill at whole periods, several of which stand for one.
mod refills;
/// Nodes that decide alone, each by its share.
mod shares;
/// Random histories of a table with hardly a place.
mod small_table;
/// Rust and Lua, step by step and bit for bit.
mod twins;
/// Fixed histories from `vectors.toml`.
mod vectors;
/// Checks that only watch, and checks that spend nothing.
mod watching;
