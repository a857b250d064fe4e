//! A table that is full: live buckets stay, dead ones make room, and who finds none shares.

use std::time::Duration;

use weir::clock::Micros;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};

use crate::decider::{Ask, Decider, Embedded, Outcome};

const NOW: Micros = Micros(1_700_000_000_000_000);
const SECOND: u64 = 1_000_000;

/// Five tokens, one a second.
fn policy() -> Policy {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket"))
}

fn spend(decider: &mut Embedded, at: Micros, policy: &Policy, key: u64, cost: u64) -> Outcome {
    decider.decide(at, &[Ask { policy, key, cost }])
}

/// A table of this size with this many live buckets in it: keys from zero, one token left each.
fn filled(max_keys: usize, policy: &Policy) -> Embedded {
    let mut decider = Embedded::new(max_keys);
    for key in 0..max_keys as u64 {
        assert!(spend(&mut decider, NOW, policy, key, 4).admitted);
    }
    decider
}

#[test]
fn nobody_is_forgotten_to_make_room() {
    let policy = policy();
    for max_keys in [1, 100, 8_000] {
        let mut decider = filled(max_keys, &policy);
        assert_eq!(decider.store.buckets().own, max_keys);
        assert_eq!(decider.store.buckets().overflow, 0);
        for key in 0..20_000 {
            spend(&mut decider, NOW, &policy, 1_000_000 + key, 1);
        }
        assert_eq!(decider.store.buckets().own, max_keys);
        assert!(decider.store.buckets().overflow <= 64);
        for key in 0..max_keys as u64 {
            assert!(spend(&mut decider, NOW, &policy, key, 1).admitted);
            assert!(!spend(&mut decider, NOW, &policy, key, 1).admitted);
        }
    }
}

#[test]
fn new_keys_share_a_fixed_set_of_buckets() {
    let policy = policy();
    let mut decider = filled(100, &policy);
    let admitted = (0..5_000)
        .filter(|key| spend(&mut decider, NOW, &policy, 1_000_000 + key, 1).admitted)
        .count();
    assert_eq!(admitted, 64 * 5);
    assert_eq!(decider.store.buckets().overflow, 64);
}

#[test]
fn buckets_that_are_full_again_make_room() {
    let policy = policy();
    for max_keys in [1, 100, 8_000] {
        let mut decider = filled(max_keys, &policy);
        let later = Micros(NOW.0 + 4 * SECOND);
        for key in 0..max_keys as u64 {
            assert!(spend(&mut decider, later, &policy, 1_000_000 + key, 5).admitted);
        }
        assert_eq!(decider.store.buckets().own, max_keys);
        assert_eq!(decider.store.buckets().overflow, 0);
    }
}

#[test]
fn a_key_that_leaves_the_overflow_takes_what_was_spent_there_along() {
    let policy = policy();
    let mut decider = filled(1, &policy);
    assert!(spend(&mut decider, NOW, &policy, 7, 5).admitted);
    // The only bucket is full again after four seconds, so now there is room for key 7.
    let later = Micros(NOW.0 + 4 * SECOND);
    assert!(!spend(&mut decider, later, &policy, 7, 5).admitted);
    assert!(spend(&mut decider, later, &policy, 7, 4).admitted);
    assert!(!spend(&mut decider, later, &policy, 7, 1).admitted);
    assert_eq!(decider.store.buckets().own, 1);
}

#[test]
fn a_refusal_takes_no_place() {
    let policy = policy();
    let mut decider = Embedded::new(3);
    assert!(spend(&mut decider, NOW, &policy, 0, 5).admitted);
    for key in 1..1_000 {
        let asks =
            [Ask { policy: &policy, key, cost: 1 }, Ask { policy: &policy, key: 0, cost: 1 }];
        assert!(!decider.decide(NOW, &asks).admitted);
        assert!(!spend(&mut decider, NOW, &policy, key, 6).admitted);
    }
    assert_eq!(decider.store.buckets().own, 1);
    assert_eq!(decider.store.buckets().overflow, 0);
}

#[test]
fn a_table_without_places_still_decides() {
    let policy = policy();
    let mut decider = Embedded::new(0);
    assert!(spend(&mut decider, NOW, &policy, 1, 5).admitted);
    assert!(!spend(&mut decider, NOW, &policy, 1, 1).admitted);
    assert_eq!(decider.store.buckets().own, 0);
}
