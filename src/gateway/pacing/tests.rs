//! PacedQueues in several buckets at once, and those who give theirs up.

use super::*;
use crate::limit::Rate;

fn paced(bucket: u128) -> PacedCheck {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    let policy = LeakyBucket::new(rate, 5).expect("a bucket");
    PacedCheck { bucket: BucketId(bucket), policy, cost: 1 }
}

fn tries(waiting: &mut PacingTicket<'_>, now: Instant) -> Departure {
    waiting.try_leave(now, Waker::noop())
}

#[test]
fn turns_in_several_buckets_are_taken_in_one_order_by_all() {
    let (queues, begin) = (PacedQueues::default(), Instant::now());
    let after = |millis| begin + Duration::from_millis(millis);
    // The second has come later to the bucket that they share and leaves first.
    let mut both = queues.join(after(300), [paced(1), paced(2)].into_iter().collect());
    let mut one = queues.join(after(100), [paced(2)].into_iter().collect());
    let mut other = queues.join(after(300), [paced(2), paced(1)].into_iter().collect());
    assert_eq!(tries(&mut both, after(50)), Departure::Behind);
    assert_eq!(tries(&mut one, after(50)), Departure::At(after(100)));
    // All turns have passed by now.
    let now = after(5_000);
    assert_eq!(tries(&mut other, now), Departure::Behind);
    assert_eq!(tries(&mut one, now), Departure::Now);
    assert_eq!(tries(&mut both, now), Departure::Now, "one more for having been late");
    let Departure::At(at) = tries(&mut other, now) else { panic!("at once") };
    assert!(at > now + Duration::from_millis(90));
    assert_eq!(tries(&mut other, at), Departure::Now);
    drop((both, one, other));
    let buckets = [BucketId(1), BucketId(2)];
    assert!(queues.has(buckets, at), "its gate is closed, though nobody waits");
    assert!(!queues.has(buckets, at + Duration::from_secs(1)));
    assert!(!queues.is_used());
}

#[test]
fn a_turn_that_is_given_up_holds_up_no_other() {
    let (queues, begin) = (PacedQueues::default(), Instant::now());
    let first = queues.join(begin, [paced(1)].into_iter().collect());
    let mut second = queues.join(begin, [paced(1)].into_iter().collect());
    assert_eq!(tries(&mut second, begin), Departure::Behind);
    drop(first);
    assert_eq!(tries(&mut second, begin), Departure::Now);
    drop(second);
    assert!(!queues.is_used());
}
