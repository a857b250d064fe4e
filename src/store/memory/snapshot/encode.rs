//! From the store to bytes: one shard at a time, whose lock is held only to copy it.

use std::io::{self, Write};

use aws_lc_rs::digest::{Context, SHA256};

use super::{MAGIC, SnapshotExtras, VERSION};
use crate::clock::Micros;
use crate::limit::concurrency;
use crate::store::MemoryStore;
use crate::store::memory::shard::Shard;

/// Writes all live buckets, and says how many there were.
pub(super) fn encode(
    store: &MemoryStore,
    extras: SnapshotExtras<'_>,
    to: &mut impl Write,
) -> io::Result<usize> {
    let SnapshotExtras { secret, overrides } = extras;
    let now = store.clock.now();
    let mut to = Summed { to, sum: Context::new(&SHA256) };
    to.put(&MAGIC)?;
    to.put(&VERSION.to_le_bytes())?;
    to.put(secret)?;
    to.put(&now.0.to_le_bytes())?;
    to.put(&(store.shards.len() as u32).to_le_bytes())?;
    let mut buckets = 0;
    let mut bytes = Vec::new();
    for shard in &store.shards {
        buckets += copy(&shard.0.lock(), now, &mut bytes);
        to.put(&bytes)?;
    }
    // Last: a key that moves from a shared bucket into one of its own in the meantime is then in
    // the shared one at least, which keeps what was charged to it.
    buckets += copy(&store.overflow.lock(), now, &mut bytes);
    to.put(&bytes)?;
    to.put(&(overrides.len() as u32).to_le_bytes())?;
    to.put(overrides)?;
    to.finish()?;
    Ok(buckets)
}

/// Replaces `bytes` by those of a shard, and says how many buckets they hold.
fn copy(shard: &Shard, now: Micros, bytes: &mut Vec<u8>) -> usize {
    bytes.clear();
    bytes.extend([0; 4]);
    let mut count = 0_u32;
    for (tag, state, log) in shard.live(now) {
        if state.ends_at >= concurrency::HELD {
            continue;
        }
        count += 1;
        bytes.extend(tag.to_le_bytes());
        bytes.extend(state.ends_at.0.to_le_bytes());
        bytes.extend(state.rest.to_le_bytes());
        bytes.extend((log.map_or(0, |log| log.entries().len()) as u32).to_le_bytes());
        for (at, cost) in log.into_iter().flat_map(|log| log.entries()) {
            bytes.extend(at.0.to_le_bytes());
            bytes.extend(cost.to_le_bytes());
        }
    }
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    count as usize
}

/// Sums up what passes.
struct Summed<'a, W> {
    to: &'a mut W,
    sum: Context,
}

impl<W: Write> Summed<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }

    fn finish(self) -> io::Result<()> {
        self.to.write_all(self.sum.finish().as_ref())
    }
}
