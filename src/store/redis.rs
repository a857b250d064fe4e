//! Buckets in Redis or Valkey: decisions as script calls, and how they are spelled.

pub mod adjustment;
pub mod batch;
pub mod msgpack;
pub mod reply;
pub mod script;
pub mod terms;
