//! Which keys are asked for often: a small table of fixed size, whatever keys arrive.
//!
//! Each key has one entry that it may share with others. Within an interval the key that comes more
//! often than all the others of its entry holds it in the end.

use crate::clock::Micros;
use crate::store::BucketId;

const ENTRIES: usize = 4_096;
/// So many decisions within an interval make a key hot.
const HOT: u32 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Part of the key's name.
    tag: u32,
    count: u32,
    interval: u32,
}

#[derive(Debug)]
pub(super) struct HotKeys {
    entries: Box<[Entry]>,
    /// In microseconds.
    interval: u64,
}

impl HotKeys {
    pub(super) fn new(interval: u64) -> Self {
        HotKeys { entries: vec![Entry::default(); ENTRIES].into_boxed_slice(), interval }
    }

    /// Counts a decision. Says how many there were if the key is hot.
    pub(super) fn count(&mut self, bucket: BucketId, now: Micros) -> Option<u32> {
        let interval = (now.0 / self.interval) as u32;
        let tag = (bucket.0 >> 64) as u32;
        let entry = &mut self.entries[bucket.0 as usize % ENTRIES];
        if entry.interval != interval {
            *entry = Entry { tag, count: 0, interval };
        }
        if entry.tag == tag {
            entry.count += 1;
        } else if entry.count > 1 {
            entry.count -= 1;
            return None;
        } else {
            *entry = Entry { tag, count: 1, interval };
        }
        (entry.count >= HOT).then_some(entry.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 100_000;

    #[test]
    fn key_is_hot_by_its_decisions_within_one_interval() {
        let mut hot = HotKeys::new(INTERVAL);
        let key = BucketId(7 << 64 | 5);
        let counts = [0; 5].map(|_| hot.count(key, Micros(INTERVAL)));
        assert_eq!(counts, [None, None, None, Some(4), Some(5)]);
        assert_eq!(hot.count(key, Micros(2 * INTERVAL)), None, "another interval");
    }

    #[test]
    fn of_keys_that_share_an_entry_the_frequent_one_is_hot() {
        let mut hot = HotKeys::new(INTERVAL);
        let (key, other) = (BucketId(7 << 64 | 5), |it: u128| BucketId((100 + it) << 64 | 5));
        let mut was_hot = false;
        for round in 0..20 {
            hot.count(other(round), Micros(INTERVAL));
            was_hot |= hot.count(key, Micros(INTERVAL)).is_some();
            was_hot |= hot.count(key, Micros(INTERVAL)).is_some();
        }
        assert!(was_hot);
        let mut cold = HotKeys::new(INTERVAL);
        assert!((0..10_000).all(|it| cold.count(other(it), Micros(INTERVAL)).is_none()));
    }
}
