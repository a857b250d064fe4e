//! Which of two replies is the newer one, and how long a bucket may go unheard that is leased.
//!
//! Each worker has a connection of its own, so replies about one bucket may arrive in another order
//! than Redis gave them. A state that is noted after a newer one would forget what has been spent
//! between the two, and an outage would begin with tokens that are gone.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Micros;
use crate::store::BucketId;

/// Buckets share entries. One that follows another too closely counts as the older one, which only
/// means that the deeper of two states is kept.
const ENTRIES: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct ReplyOrder {
    /// For each entry the latest instant of Redis's clock that a reply had.
    latest: Box<[AtomicU64]>,
    /// For each entry the lease that was heard of last.
    leases: Box<[Mutex<Option<LeaseNote>>]>,
}

/// What a reply about a lease has said.
#[derive(Debug, Clone, Copy)]
struct LeaseNote {
    bucket: BucketId,
    heard: Micros,
    /// Until when the lease may go on without another reply.
    until: Micros,
}

impl ReplyOrder {
    pub(crate) fn new() -> Self {
        ReplyOrder {
            latest: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            leases: (0..ENTRIES).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Whether what Redis said of a bucket at this instant is newer than all replies before.
    #[inline]
    pub(crate) fn is_newest(&self, bucket: BucketId, now: Micros) -> bool {
        let latest = &self.latest[entry_of(bucket)];
        latest.fetch_max(now.0, Ordering::Relaxed) < now.0
    }

    /// A bucket is leased, as was heard at that instant: for so long Redis may not be asked for it.
    pub(crate) fn note_lease(&self, bucket: BucketId, heard: Micros, unheard: u64) {
        let until = Micros(heard.0.saturating_add(unheard));
        *self.leases[entry_of(bucket)].lock() = Some(LeaseNote { bucket, heard, until });
    }

    /// When a bucket that was leased then was last heard of. Says so once for each reply about a lease.
    pub(crate) fn take_leased(&self, bucket: BucketId, at: Micros) -> Option<Micros> {
        let mut lease = self.leases[entry_of(bucket)].lock();
        let noted = lease.take_if(|it| it.bucket == bucket)?;
        (at < noted.until).then_some(noted.heard)
    }

    /// Whether [`ReplyOrder::take_leased`] may say something.
    pub(crate) fn may_be_leased(&self, bucket: BucketId) -> bool {
        self.leases[entry_of(bucket)].lock().is_some_and(|it| it.bucket == bucket)
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
        assert_eq!(take(1, 101), None, "it is not leased");
        order.note_lease(BucketId(1), Micros(100), 100);
        assert_eq!(take(2, 101), None, "another bucket");
        let same_entry = ENTRIES as u128 + 1;
        assert!(order.is_newest(BucketId(same_entry), Micros(150)));
        assert_eq!(take(same_entry, 160), None, "another one in the same entry");
        assert_eq!(take(1, 199), Some(Micros(100)));
        assert_eq!(take(1, 199), None, "it has been told");
        order.note_lease(BucketId(1), Micros(100), 100);
        assert_eq!(take(1, 200), None, "the lease is over");
    }
}
