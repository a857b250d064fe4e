//! Which of two replies is the newer one, and how long a bucket may go unheard that is leased.
//!
//! Each worker has a connection of its own, so replies about one bucket may arrive in another order
//! than Redis gave them. A state that is noted after a newer one would forget what has been spent
//! between the two, and an outage would begin with tokens that are gone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Micros;
use crate::store::BucketId;

/// Buckets share entries. One that follows another too closely counts as the older one, which only
/// means that the deeper of two states is kept.
const ENTRIES: usize = 1 << 14;

/// Leased buckets are told apart, and share sets of entries. Where more share one than it has room for,
/// the lease that would be over first is forgotten.
const LEASE_SETS: usize = 1 << 13;
const LEASES_PER_SET: usize = 4;

type LeaseSet = [Option<LeaseNote>; LEASES_PER_SET];

#[derive(Debug)]
pub(crate) struct ReplyOrder {
    /// For each entry the latest instant of Redis's clock that a reply had.
    latest: Box<[AtomicU64]>,
    /// Filled by the first lease: there are none without `hybrid`.
    leases: OnceLock<Box<[Mutex<LeaseSet>]>>,
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
            leases: OnceLock::new(),
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
        let sets = self.leases.get_or_init(|| (0..LEASE_SETS).map(|_| Mutex::default()).collect());
        let mut set = set_of(sets, bucket).lock();
        let worth = |it: &Option<LeaseNote>| match it {
            Some(it) if it.bucket == bucket => None,
            Some(it) => Some(it.until),
            None => Some(Micros(0)),
        };
        if let Some(place) = set.iter_mut().min_by_key(|it| worth(it)) {
            *place = Some(LeaseNote { bucket, heard, until });
        }
    }

    /// When a reply about the lease of a bucket that was leased then last came. Says so once for each
    /// such reply.
    pub(crate) fn take_leased(&self, bucket: BucketId, at: Micros) -> Option<Micros> {
        let mut set = set_of(self.leases.get()?, bucket).lock();
        let noted = set.iter_mut().find_map(|it| it.take_if(|it| it.bucket == bucket))?;
        (at < noted.until).then_some(noted.heard)
    }

    /// Whether [`ReplyOrder::take_leased`] may say something.
    pub(crate) fn may_be_leased(&self, bucket: BucketId) -> bool {
        let Some(sets) = self.leases.get() else { return false };
        set_of(sets, bucket).lock().iter().flatten().any(|it| it.bucket == bucket)
    }
}

fn set_of(sets: &[Mutex<LeaseSet>], bucket: BucketId) -> &Mutex<LeaseSet> {
    &sets[bucket.0 as usize % LEASE_SETS]
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

    #[test]
    fn leases_that_share_a_set_are_kept_as_long_as_there_is_room_and_then_the_longest() {
        let order = ReplyOrder::new();
        let bucket = |number: u64| BucketId(u128::from(number) * LEASE_SETS as u128 + 7);
        let room = LEASES_PER_SET as u64;
        for number in 0..room {
            order.note_lease(bucket(number), Micros(100), 100 + number);
        }
        order.note_lease(bucket(1), Micros(110), 200);
        assert!((0..room).all(|number| order.may_be_leased(bucket(number))));
        order.note_lease(bucket(room), Micros(120), 200);
        assert!(!order.may_be_leased(bucket(0)), "it would be over first");
        assert!((1..=room).all(|number| order.may_be_leased(bucket(number))));
        assert_eq!(order.take_leased(bucket(1), Micros(199)), Some(Micros(110)));
    }
}
