use super::*;
use crate::limit::concurrency::Concurrency;

fn policy() -> Policy {
    Policy::Concurrency(Concurrency::new(5).expect("a limit"))
}

fn chunk(held_slots: &HeldSlots, asked: &[u128]) -> Vec<SlotReport> {
    held_slots.take_chunk(clock::now(), asked.iter().map(|bucket| BucketId(*bucket)))
}

/// The next chunk, as bucket and count.
fn next(held_slots: &HeldSlots) -> Vec<(u128, u64)> {
    next_at(held_slots, clock::now())
}

fn next_at(held_slots: &HeldSlots, now: Instant) -> Vec<(u128, u64)> {
    let chunk = held_slots.take_chunk(now, std::iter::empty());
    let mut reported: Vec<_> = chunk.iter().map(|it| (it.bucket.0, it.count)).collect();
    if !chunk.is_empty() {
        held_slots.finish_chunk(&chunk, true);
    }
    reported.sort_unstable();
    reported
}

#[test]
fn what_is_dirty_is_reported_once_as_it_is() {
    let (policy, held_slots) = (policy(), HeldSlots::new(10));
    for bucket in [1, 2] {
        held_slots.take(BucketId(bucket), b"name", &policy, 2);
    }
    assert!(held_slots.is_synced(), "Redis knows");
    held_slots.release(BucketId(1), b"name", &policy, 1);
    held_slots.mark_dirty(BucketId(3), b"name", &policy);
    assert!(held_slots.is_due());
    assert_eq!(next(&held_slots), [(1, 1), (3, 0)]);
    assert_eq!(next(&held_slots), []);
    held_slots.mark_all_dirty();
    assert_eq!(next(&held_slots), [(1, 1), (2, 2)], "the third holds nothing");
}

#[test]
fn what_was_taken_and_released_without_redis_leaves_nothing() {
    let (policy, held_slots) = (policy(), HeldSlots::new(10));
    for bucket in 0..100_000 {
        held_slots.take_alone(BucketId(bucket), b"name", &policy, 1);
        held_slots.release(BucketId(bucket), b"name", &policy, 1);
    }
    assert!(held_slots.is_empty() && held_slots.is_synced());
    assert!(held_slots.table.borrow().changes.len() <= CHANGES);
}

#[test]
fn buckets_that_only_redis_knows_slots_of_are_bounded() {
    let (policy, held_slots) = (policy(), HeldSlots::new(10));
    held_slots.take(BucketId(0), b"name", &policy, 1);
    for bucket in 1..10_000 {
        held_slots.take(BucketId(bucket), b"name", &policy, 1);
        held_slots.release(BucketId(bucket), b"name", &policy, 1);
    }
    assert_eq!(held_slots.table.borrow().held.len(), 11, "ten, and one that is held");
    assert!(held_slots.table.borrow().changes.len() <= CHANGES + 22);
    assert_eq!(next(&held_slots).len(), 10);
    held_slots.mark_all_dirty();
    assert_eq!(next(&held_slots), [(0, 1)]);
}

#[test]
fn a_chunk_has_what_is_asked_for_first_and_no_more_than_may_be() {
    let (policy, held_slots) = (policy(), HeldSlots::new(10_000));
    for bucket in 0..2_000 {
        held_slots.mark_dirty(BucketId(bucket), b"name", &policy);
    }
    let first = chunk(&held_slots, &[1_999, 5_000]);
    assert_eq!((first[0].bucket.0, first.len()), (1_999, CHANGES));
    // While it is in flight, only what is asked for is reported.
    let asked = chunk(&held_slots, &[1_998]);
    assert_eq!(asked.iter().map(|it| it.bucket.0).collect::<Vec<_>>(), [1_998]);
    assert!(!held_slots.is_due());
    held_slots.finish_chunk(&asked, true);
    held_slots.finish_chunk(&first, false);
    let mut reported = Vec::new();
    while held_slots.is_due() {
        reported.extend(next(&held_slots));
    }
    reported.sort_unstable();
    let expected: Vec<_> = (0..2_000).filter(|it| *it != 1_998).map(|it| (it, 0)).collect();
    assert_eq!(reported, expected, "what was not received is reported again, the rest once");
    assert!(held_slots.is_synced() && held_slots.is_empty());
}

#[test]
fn leases_are_renewed_in_time_and_not_all_at_once() {
    const BUCKETS: u128 = 10_000;
    let (policy, held_slots) = (policy(), HeldSlots::new(10));
    let start = clock::now();
    for bucket in 0..BUCKETS {
        // Names are hashes.
        held_slots.take(BucketId(bucket * 7_919), b"name", &policy, 1);
    }
    let mut renewed: HashMap<u128, Instant> = HashMap::new();
    let (mut now, mut most) = (start, 0);
    while now < start + 3 * LEASE {
        now += SWEEP;
        held_slots.sweep(now);
        let mut due = Vec::new();
        while held_slots.is_due() {
            let chunk = next_at(&held_slots, now);
            assert!(chunk.len() <= RENEWALS);
            due.extend(chunk);
        }
        most = most.max(due.len());
        for (bucket, count) in due {
            let before = renewed.insert(bucket, now).unwrap_or(start);
            assert!(count == 1 && now - before < LEASE / 2, "a lease lapses");
        }
    }
    assert_eq!(renewed.len() as u128, BUCKETS);
    assert!(renewed.values().all(|it| now - *it < LEASE / 2));
    assert!(most < BUCKETS as usize / 8, "{most} at once");
}

#[test]
fn a_slot_taken_while_a_chunk_is_on_its_way_is_not_reported_again() {
    let (policy, held_slots) = (policy(), HeldSlots::new(10));
    held_slots.take(BucketId(1), b"name", &policy, 2);
    held_slots.release(BucketId(1), b"name", &policy, 1);
    let chunk = chunk(&held_slots, &[]);
    // The decision came behind the chunk, on the same way.
    held_slots.take(BucketId(1), b"name", &policy, 1);
    held_slots.finish_chunk(&chunk, true);
    assert!(held_slots.is_synced(), "Redis has set one and added one");
    held_slots.release(BucketId(1), b"name", &policy, 2);
    assert_eq!(next(&held_slots), [(1, 0)]);
    assert!(held_slots.is_empty());
}
