//! Which of two replies is the newer one, and how long a bucket may go unheard that is leased.
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
    /// For each entry until when a lease may go on without another reply. Zero if there is none.
    leased_until: Box<[AtomicU64]>,
}

impl ReplyOrder {
    pub(crate) fn new() -> Self {
        let entries = || (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
        ReplyOrder { latest: entries(), leased_until: entries() }
    }

    /// Whether what Redis said of a bucket at this instant is newer than all replies before.
    #[inline]
    pub(crate) fn is_newest(&self, bucket: BucketId, now: Micros) -> bool {
        let latest = &self.latest[entry_of(bucket)];
        latest.fetch_max(now.0, Ordering::Relaxed) < now.0
    }

    /// A bucket is leased: until then Redis may not be asked for it.
    pub(crate) fn note_lease(&self, bucket: BucketId, until: Micros) {
        self.leased_until[entry_of(bucket)].fetch_max(until.0, Ordering::Relaxed);
    }

    /// When a bucket that was leased then was last heard of. Says so once for each reply about a lease.
    pub(crate) fn take_leased(&self, bucket: BucketId, at: Micros) -> Option<Micros> {
        let entry = entry_of(bucket);
        let until = self.leased_until[entry].swap(0, Ordering::Relaxed);
        (at.0 < until).then(|| Micros(self.latest[entry].load(Ordering::Relaxed)))
    }

    /// Whether [`ReplyOrder::take_leased`] may say something.
    pub(crate) fn may_be_leased(&self, bucket: BucketId) -> bool {
        self.leased_until[entry_of(bucket)].load(Ordering::Relaxed) > 0
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

    #[test]
    fn a_leased_bucket_tells_once_when_it_was_heard_of_while_its_lease_lasts() {
        let order = ReplyOrder::new();
        let take = |bucket, now| order.take_leased(BucketId(bucket), Micros(now));
        assert!(order.is_newest(BucketId(1), Micros(100)));
        assert_eq!(take(1, 101), None, "it is not leased");
        order.note_lease(BucketId(1), Micros(200));
        assert_eq!(take(2, 101), None, "another bucket");
        assert_eq!(take(1, 199), Some(Micros(100)));
        assert_eq!(take(1, 199), None, "it has been told");
        order.note_lease(BucketId(1), Micros(200));
        assert_eq!(take(1, 200), None, "the lease is over");
    }
}
