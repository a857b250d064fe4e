//! A table that is full: live buckets stay, dead ones make room, and who finds none shares.

use std::time::Duration;

use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};

use crate::decider::{Ask, Decider, Embedded, Outcome};

/// Twenty seconds into a minute.
const NOW: Micros = Micros(1_700_000_000_000_000);

fn after(seconds: u64) -> Micros {
    Micros(NOW.0 + seconds * 1_000_000)
}

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Duration::from_secs(seconds)).expect("a rate")
}

/// Five tokens, one a second.
fn bucket() -> Policy {
    Policy::TokenBucket(TokenBucket::new(rate(1, 1), 5).expect("a bucket"))
}

/// Five in so many seconds.
fn windows(seconds: u64) -> [Policy; 3] {
    let rate = rate(5, seconds);
    [
        Policy::FixedWindow(FixedWindow::new(rate)),
        Policy::SlidingWindow(SlidingWindow::new(rate)),
        Policy::SlidingLog(SlidingLog::new(rate).expect("a log")),
    ]
}

/// Five at once, whatever the algorithm.
fn policies() -> [Policy; 6] {
    let [fixed, sliding, log] = windows(60);
    let leaky = TokenBucket::new(rate(1, 1), 5).expect("a bucket");
    let refill = RefillBucket::new(Duration::from_secs(1), 2, 5).expect("a bucket");
    let (leaky, refill) = (Policy::LeakyBucket(leaky.into()), Policy::RefillBucket(refill));
    [bucket(), fixed, sliding, log, leaky, refill]
}

fn spend(decider: &mut Embedded, at: Micros, policy: &Policy, key: u64, cost: u64) -> Outcome {
    decider.decide(at, &[Ask { policy, key, cost }])
}

/// A table of this size with this many live buckets in it, and the instant at which all are full
/// again: keys from zero, one unit left each.
fn filled(max_keys: usize, policy: &Policy) -> (Embedded, Micros) {
    let mut decider = Embedded::new(max_keys);
    let mut full = NOW;
    for key in 0..max_keys as u64 {
        let outcome = spend(&mut decider, NOW, policy, key, 4);
        assert!(outcome.admitted);
        full = outcome.answers[0].report.full_at;
    }
    (decider, full)
}

#[test]
fn nobody_is_forgotten_to_make_room() {
    let sizes = [1, 100, 8_000];
    let cases = policies().into_iter().flat_map(|policy| sizes.map(|size| (policy, size)));
    for (policy, max_keys) in cases {
        let policy = &policy;
        let (mut decider, _) = filled(max_keys, policy);
        assert_eq!(decider.store.buckets().own, max_keys);
        assert_eq!(decider.store.buckets().overflow, 0);
        for key in 0..20_000 {
            spend(&mut decider, NOW, policy, 1_000_000 + key, 1);
        }
        assert_eq!(decider.store.buckets().own, max_keys);
        assert!(decider.store.buckets().overflow <= 64);
        for key in 0..max_keys as u64 {
            assert!(spend(&mut decider, NOW, policy, key, 1).admitted);
            assert!(!spend(&mut decider, NOW, policy, key, 1).admitted);
        }
    }
}

#[test]
fn new_keys_share_a_fixed_set_of_buckets() {
    for policy in &policies() {
        let (mut decider, _) = filled(100, policy);
        let admitted = (0..5_000)
            .filter(|key| spend(&mut decider, NOW, policy, 1_000_000 + key, 1).admitted)
            .count();
        assert_eq!(admitted, 64 * 5);
        assert_eq!(decider.store.buckets().overflow, 64);
    }
}

#[test]
fn buckets_that_are_full_again_make_room() {
    for policy in &policies() {
        for max_keys in [1, 100, 8_000] {
            let (mut decider, full) = filled(max_keys, policy);
            for key in 0..max_keys as u64 {
                assert!(spend(&mut decider, full, policy, 1_000_000 + key, 5).admitted);
            }
            assert_eq!(decider.store.buckets().own, max_keys);
            assert_eq!(decider.store.buckets().overflow, 0);
        }
    }
}

#[test]
fn a_key_that_leaves_the_overflow_takes_what_was_spent_there_along() {
    let policy = bucket();
    let (mut decider, full) = filled(1, &policy);
    assert!(spend(&mut decider, NOW, &policy, 7, 5).admitted);
    // The only bucket is full again after four seconds, so now there is room for key 7.
    assert_eq!(full, after(4));
    assert!(!spend(&mut decider, full, &policy, 7, 5).admitted);
    assert!(spend(&mut decider, full, &policy, 7, 4).admitted);
    assert!(!spend(&mut decider, full, &policy, 7, 1).admitted);
    assert_eq!(decider.store.buckets().own, 1);
}

#[test]
fn a_key_that_leaves_the_overflow_takes_its_window_along() {
    for policy in windows(60) {
        let (mut decider, full) = filled(1, &bucket());
        assert!(spend(&mut decider, NOW, &policy, 7, 4).admitted);
        assert_eq!(decider.store.buckets().overflow, 1);
        assert!(!spend(&mut decider, full, &policy, 7, 2).admitted);
        assert!(spend(&mut decider, full, &policy, 7, 1).admitted);
        assert!(!spend(&mut decider, full, &policy, 7, 1).admitted);
        assert_eq!(decider.store.buckets().own, 1);
        let again = Micros(full.0 + 120_000_000);
        assert!(spend(&mut decider, again, &policy, 7, 5).admitted);
    }
}

/// Under a longer window the shared bucket ends later than when it was last charged, though only
/// refusals have seen it since.
#[test]
fn a_key_that_leaves_the_overflow_takes_a_lengthened_window_along() {
    for (minute, hour) in windows(60).iter().zip(&windows(3_600)) {
        let (mut decider, full) = filled(1, &bucket());
        assert!(spend(&mut decider, NOW, minute, 7, 5).admitted);
        assert!(!spend(&mut decider, after(1), hour, 7, 1).admitted);
        // Two minutes later the minute's own end has passed, and there is room in the table.
        assert!(full < after(120));
        assert!(!spend(&mut decider, after(120), hour, 7, 1).admitted);
        assert_eq!(decider.store.buckets().overflow, 1);
    }
}

#[test]
fn a_refusal_takes_no_room() {
    for policy in &policies() {
        let mut decider = Embedded::new(3);
        assert!(spend(&mut decider, NOW, policy, 0, 5).admitted);
        for key in 1..1_000 {
            let asks = [Ask { policy, key, cost: 1 }, Ask { policy, key: 0, cost: 1 }];
            assert!(!decider.decide(NOW, &asks).admitted);
            assert!(!spend(&mut decider, NOW, policy, key, 6).admitted);
        }
        assert_eq!(decider.store.buckets().own, 1);
        assert_eq!(decider.store.buckets().overflow, 0);
    }
}

#[test]
fn a_table_without_room_still_decides() {
    for policy in &policies() {
        let mut decider = Embedded::new(0);
        assert!(spend(&mut decider, NOW, policy, 1, 5).admitted);
        assert!(!spend(&mut decider, NOW, policy, 1, 1).admitted);
        assert_eq!(decider.store.buckets().own, 0);
    }
}
