//! Buckets that outlive the process: the store's live buckets as a file, and back.
//!
//! All numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | magic `WEIRSNAP`, version | 8, 4 |
//! | secret of the [hasher](crate::store::BucketHasher) | 16 |
//! | when it was written | 8 |
//! | number of shards | 4 |
//! | for each shard, and then for the overflow: the number of its buckets | 4 |
//! | for each bucket: tag, `until`, `rest`, the number of its log's entries | 8, 8, 8, 4 |
//! | for each entry: instant, cost | 8, 8 |
//! | overrides, tenants, penalties and users, as JSON: their length, and they | 4, … |
//! | SHA-256 of everything before | 32 |
//!
//! Buckets are named by keyed hashes, so they are worth nothing without the secret. Slots keep
//! only the lower half of a name, and the upper half chose their shard: the file says which shard
//! each is in, and a store that is restored has as many shards as the one that was saved, whatever
//! `max_keys` says now.
//!
//! States are instants of a clock that is set to the wall clock at each start, so they mean the
//! same to the next process. If the wall clock was set back in between, policies clamp them as they
//! do after any step back. Slots of `concurrency` are left out: the requests that hold them end with
//! the process.
//!
//! Shards are copied one after another and not at one instant. Each bucket is as it was at some
//! instant of the writing; what a decision charged to several may be in the file in part. That is
//! less than what a crash loses anyway, and the last snapshot is written after the last decision.

mod decode;
mod encode;
mod file;

use std::io;
use std::path::PathBuf;

use super::MemoryStore;
use crate::clock::Micros;
use crate::limit::sliding_log;

pub(super) use file::{load, save, set_aside};

const MAGIC: [u8; 8] = *b"WEIRSNAP";
/// To be raised also when buckets are named in another way: no request would find these.
const VERSION: u32 = 2;
const CHECKSUM_BYTES: usize = 32;
/// More bytes than the most overrides and all users that are kept take.
const MOST_OVERRIDES: u32 = 256 << 20;

/// More than `max_keys` can ever ask for.
const MOST_SHARDS: u32 = 1 << 20;
/// A log counts so much with its debts, and each of its entries at least one.
const MOST_LOGGED: u64 = 2 * sliding_log::MAX_COUNT;

/// What a snapshot has besides buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotExtras<'a> {
    /// Of the hasher that names the buckets.
    pub(super) secret: &'a [u8; 16],
    /// As JSON.
    pub(super) overrides: &'a [u8],
}

/// What came out of a snapshot.
#[derive(Debug)]
pub(super) struct Restored {
    pub store: MemoryStore,
    /// Of the hasher that named the buckets.
    pub secret: [u8; 16],
    pub written_at: Micros,
    /// As JSON.
    pub overrides: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Why the bytes of a file are no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("is not a snapshot of Weir")]
    Magic,
    #[error("is of version {0}; this Weir reads version {VERSION}")]
    Version(u32),
    #[error("is cut off")]
    CutOff,
    #[error("says what cannot be: {0}")]
    Impossible(&'static str),
    #[error("does not match its checksum")]
    Checksum,
    #[error("goes on after its end")]
    Trailing,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub(super) struct SaveError {
    path: PathBuf,
    source: io::Error,
}

#[cfg(test)]
mod tests;
