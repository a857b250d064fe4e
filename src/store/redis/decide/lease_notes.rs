//! Which buckets are leased, as the replies about their leases have said: when one was last heard of,
//! and how long it may go unheard.
//!
//! A bucket of which units are leased is decided in memory, so that Redis is not asked for it. Where an
//! outage begins meanwhile, what is known of it is as old as that reply.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Micros;
use crate::store::BucketId;

/// Leased buckets are told apart, and share sets of entries. Where more share one than it has room for,
/// the lease that would be over first is forgotten.
const LEASE_SETS: usize = 1 << 13;
const LEASES_PER_SET: usize = 4;

type LeaseSet = [Option<LeaseNote>; LEASES_PER_SET];

#[derive(Debug, Default)]
pub(crate) struct LeaseNotes {
    /// Filled by the first lease: there are none without `hybrid`.
    sets: OnceLock<Box<[Mutex<LeaseSet>]>>,
}

/// What a reply about a lease has said.
#[derive(Debug, Clone, Copy)]
struct LeaseNote {
    bucket: BucketId,
    heard: Micros,
    /// Until when the lease may go on without another reply.
    until: Micros,
}

impl LeaseNotes {
    /// A bucket is leased, as was heard at that instant: Redis may not be asked for it for `max_unheard`.
    pub(crate) fn note_lease(&self, bucket: BucketId, heard: Micros, max_unheard: Duration) {
        let until = Micros(heard.0.saturating_add(max_unheard.as_micros() as u64));
        let sets = self.sets.get_or_init(|| (0..LEASE_SETS).map(|_| Mutex::default()).collect());
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

    /// When a reply about the lease of a bucket last came, if it was leased at that instant. Removes the
    /// note, so that an outage is told once.
    pub(crate) fn take_leased(&self, bucket: BucketId, at: Micros) -> Option<Micros> {
        let mut set = set_of(self.sets.get()?, bucket).lock();
        let noted = set.iter_mut().find_map(|it| it.take_if(|it| it.bucket == bucket))?;
        (at < noted.until).then_some(noted.heard)
    }

    /// Whether [`LeaseNotes::take_leased`] may say something.
    pub(crate) fn may_be_leased(&self, bucket: BucketId) -> bool {
        let Some(sets) = self.sets.get() else { return false };
        set_of(sets, bucket).lock().iter().flatten().any(|it| it.bucket == bucket)
    }
}

fn set_of(sets: &[Mutex<LeaseSet>], bucket: BucketId) -> &Mutex<LeaseSet> {
    &sets[bucket.0 as usize % LEASE_SETS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leased_bucket_tells_once_when_it_was_heard_of_while_its_lease_lasts() {
        let notes = LeaseNotes::default();
        let take = |bucket, now| notes.take_leased(BucketId(bucket), Micros(now));
        assert_eq!(take(1, 101), None, "it is not leased");
        notes.note_lease(BucketId(1), Micros(100), Duration::from_micros(100));
        assert_eq!(take(2, 101), None, "another bucket");
        assert_eq!(take(LEASE_SETS as u128 + 1, 160), None, "another one in the same set");
        assert_eq!(take(1, 199), Some(Micros(100)));
        assert_eq!(take(1, 199), None, "it has been told");
        notes.note_lease(BucketId(1), Micros(100), Duration::from_micros(100));
        assert_eq!(take(1, 200), None, "the lease is over");
    }

    #[test]
    fn leases_that_share_a_set_are_kept_as_long_as_there_is_room_and_then_the_longest() {
        let notes = LeaseNotes::default();
        let bucket = |number: u64| BucketId(u128::from(number) * LEASE_SETS as u128 + 7);
        let room = LEASES_PER_SET as u64;
        for number in 0..room {
            notes.note_lease(bucket(number), Micros(100), Duration::from_micros(100 + number));
        }
        notes.note_lease(bucket(1), Micros(110), Duration::from_micros(200));
        assert!((0..room).all(|number| notes.may_be_leased(bucket(number))));
        notes.note_lease(bucket(room), Micros(120), Duration::from_micros(200));
        assert!(!notes.may_be_leased(bucket(0)), "it would be over first");
        assert!((1..=room).all(|number| notes.may_be_leased(bucket(number))));
        assert_eq!(notes.take_leased(bucket(1), Micros(199)), Some(Micros(110)));
    }
}
