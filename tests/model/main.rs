//! The engine against its semantics: vectors, random histories, many threads.
//!
//! Whatever decides implements [`decider::Decider`]; what it should say comes from the naive
//! models in [`reference`], which share no code with the engine.

/// What is under test, behind one face.
mod decider;
/// The semantics once more, written to be obvious and not to be fast.
mod reference;
/// Random limits, costs and times.
mod strategies;

/// At most `burst + rate × t` over any interval, and hardly less.
mod bound;
/// Limits that change under their buckets.
mod changes;
/// Many threads at once.
mod concurrency;
/// A table that is full.
mod full_table;
/// Random histories, step by step against the models.
mod histories;
/// Shared buckets, while many threads want them and time goes on.
mod overflow;
/// Random histories of a table with hardly a place.
mod small_table;
/// Fixed histories from `vectors.toml`.
mod vectors;
