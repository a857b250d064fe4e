//! Turns in several buckets at once, and those who give theirs up.

use super::*;
use crate::limit::Rate;

fn paced(bucket: u128) -> Paced {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    let policy = TokenBucket::new(rate, 5).expect("a bucket");
    Paced { bucket: BucketId(bucket), policy, cost: 1 }
}

fn tries(waiting: &mut Waiting<'_>, now: Instant) -> Leave {
    waiting.try_leave(now, Waker::noop())
}

#[test]
fn turns_in_several_buckets_are_taken_in_one_order_by_all() {
    let (turns, begin) = (Turns::default(), Instant::now());
    let after = |millis| begin + Duration::from_millis(millis);
    // The second has come later to the bucket that they share and leaves first.
    let mut both = turns.join(after(300), [paced(1), paced(2)].into_iter().collect());
    let mut one = turns.join(after(100), [paced(2)].into_iter().collect());
    let mut other = turns.join(after(300), [paced(2), paced(1)].into_iter().collect());
    assert_eq!(tries(&mut both, after(50)), Leave::Behind);
    assert_eq!(tries(&mut one, after(50)), Leave::At(after(100)));
    // All turns have passed by now.
    let now = after(5_000);
    assert_eq!(tries(&mut other, now), Leave::Behind);
    assert_eq!(tries(&mut one, now), Leave::Now);
    assert_eq!(tries(&mut both, now), Leave::Now, "one more for having been late");
    let Leave::At(at) = tries(&mut other, now) else { panic!("at once") };
    assert!(at > now + Duration::from_millis(90));
    assert_eq!(tries(&mut other, at), Leave::Now);
    drop((both, one, other));
    let buckets = [BucketId(1), BucketId(2)];
    assert!(turns.has(buckets, at), "its gate is closed, though nobody waits");
    assert!(!turns.has(buckets, at + Duration::from_secs(1)));
    assert!(!turns.is_used());
}

#[test]
fn whoever_gives_up_its_turn_holds_up_nobody() {
    let (turns, begin) = (Turns::default(), Instant::now());
    let first = turns.join(begin, [paced(1)].into_iter().collect());
    let mut second = turns.join(begin, [paced(1)].into_iter().collect());
    assert_eq!(tries(&mut second, begin), Leave::Behind);
    drop(first);
    assert_eq!(tries(&mut second, begin), Leave::Now);
    drop(second);
    assert!(!turns.is_used());
}
