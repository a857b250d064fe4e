//! Slots that another process holds, in the buckets of this one.

use super::*;
use crate::clock::Clock;
use crate::limit::Policy;
use crate::limit::concurrency::Concurrency;
use crate::store::{BucketId, Check, CheckOutcome};

const NOW: Micros = Micros(1_700_000_000_000_000);
const NAMING: u64 = 7;

fn store(max_keys: usize) -> MemoryStore {
    MemoryStore::new(max_keys, Clock::manual(NOW))
}

fn slots(count: u64) -> Policy {
    Policy::Concurrency(Concurrency::new(count).expect("a limit"))
}

/// How many more requests of a key pass.
fn passes(store: &MemoryStore, policy: &Policy, key: u128) -> u64 {
    let check = Check::new(policy, 0, BucketId(key), 1);
    let pass = || store.decide_now(&[check], &mut [CheckOutcome::default()]).admitted;
    std::iter::repeat_with(pass).take_while(|passed| *passed).count() as u64
}

fn take_one(store: &MemoryStore, policy: &Policy, key: u128) -> CheckOutcome {
    let mut outcome = CheckOutcome::default();
    let check = Check::new(policy, 0, BucketId(key), 1);
    assert!(store.decide_now(&[check], std::slice::from_mut(&mut outcome)).admitted);
    outcome
}

#[test]
fn slots_of_the_process_before_are_counted_until_it_releases_them() {
    let (old, new, inherited) = (store(100), store(100), InheritedSlots::default());
    let five = slots(5);
    let held = [0; 3].map(|_| take_one(&old, &five, 1));
    assert!(inherited.replace(&new, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&new, &five, 1), 2);
    assert_eq!(passes(&new, &five, 2), 5, "another key");
    old.refund(&Check::new(&five, 0, BucketId(1), 1), &held[0]);
    assert!(inherited.replace(&new, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&new, &five, 1), 1);
    take_one(&old, &five, 1);
    assert!(inherited.replace(&new, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&new, &five, 1), 0);
    assert!(inherited.replace(&new, NAMING, None), "it has ended");
    assert_eq!(passes(&new, &five, 1), 2, "those that were its own are still held");
}

#[test]
fn keys_that_share_a_bucket_share_what_it_inherits() {
    let (old, new, inherited) = (store(1), store(1), InheritedSlots::default());
    let five = slots(5);
    for store in [&old, &new] {
        take_one(store, &five, 1);
    }
    let shared = take_one(&old, &five, 2);
    assert!(shared.shared, "the table is full");
    assert!(inherited.replace(&new, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&new, &five, 2), 4);
    assert!(inherited.replace(&new, NAMING, None));
    assert_eq!(passes(&new, &five, 2), 1);
    assert_eq!(passes(&new, &five, 1), 4);
}

#[test]
fn what_finds_no_room_is_not_released_later() {
    let (old, new, inherited) = (store(10), store(1), InheritedSlots::default());
    let five = slots(5);
    take_one(&old, &five, 1);
    take_one(&new, &five, 2);
    assert!(inherited.replace(&new, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&new, &five, 2), 4);
    assert!(inherited.replace(&new, NAMING, None));
    assert_eq!(passes(&new, &five, 2), 0);
}

#[test]
fn buckets_that_are_named_or_spread_otherwise_are_not_mistaken() {
    let (old, inherited) = (store(100), InheritedSlots::default());
    let five = slots(5);
    take_one(&old, &five, 1);
    let other = store(1_000_000);
    assert!(!inherited.replace(&other, NAMING, Some(&old.held_slots(NAMING))));
    assert_eq!(passes(&other, &five, 1), 5);
    let other = store(100);
    assert!(!inherited.replace(&other, NAMING, Some(&old.held_slots(NAMING + 1))));
    assert_eq!(passes(&other, &five, 1), 5);
}
