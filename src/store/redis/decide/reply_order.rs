//! Which of two replies is the newer one.
//!
//! Each worker has a connection of its own, so replies about one bucket may arrive in another order
//! than Redis gave them. A state that is noted after a newer one would forget what has been spent
//! between the two, and an outage would begin with tokens that are gone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Micros;
use crate::store::BucketId;

/// Buckets share entries. One that follows another too closely counts as the older one, which only
/// means that the deeper of two states is kept.
const ENTRIES: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct ReplyOrder {
    /// For each entry the latest instant of Redis's clock that a reply had.
    latest: Box<[AtomicU64]>,
}

impl ReplyOrder {
    pub(crate) fn new() -> Self {
        ReplyOrder { latest: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether what Redis said of a bucket at this instant is newer than all replies before.
    #[inline]
    pub(crate) fn is_newest(&self, bucket: BucketId, now: Micros) -> bool {
        let latest = &self.latest[entry_of(bucket)];
        latest.fetch_max(now.0, Ordering::Relaxed) < now.0
    }
}

fn entry_of(bucket: BucketId) -> usize {
    bucket.0 as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_was_overtaken_is_not_the_newest() {
        let order = ReplyOrder::new();
        let is_newest = |bucket, now| order.is_newest(BucketId(bucket), Micros(now));
        assert!(is_newest(1, 100) && is_newest(1, 101));
        assert!(!is_newest(1, 101), "of two at one instant either may be the newer");
        assert!(!is_newest(1, 100));
        assert!(is_newest(2, 50), "another bucket");
        assert!(is_newest(1, 102));
    }
}
