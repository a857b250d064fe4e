//! What only the slots themselves can show; the rest is in `tests/model`.

use std::time::Duration;

use super::*;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate, Retry, State};
use crate::store::BucketHasher;

const START: Micros = Micros(1_700_000_000_000_000);

fn policy(burst: u64) -> Policy {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

/// Buckets by number, under one limit.
struct Names(BucketHasher, u64);

impl Names {
    fn new() -> Self {
        let hasher = BucketHasher::with_secret(&[3; 16]);
        let limit = hasher.limit_prefix("test", "token_bucket");
        Self(hasher, limit)
    }

    fn check<'a>(&self, policy: &'a Policy, key: u64, cost: u64) -> Check<'a> {
        let mut name = self.0.start(self.1);
        name.part(0, &key.to_be_bytes());
        Check::new(policy, self.1, name.finish(), cost)
    }
}

fn contents(store: &MemoryStore) -> Vec<Vec<(u64, State)>> {
    let own = store.shards.iter().map(|shard| shard.0.lock().states());
    own.chain([store.overflow.lock().states()]).collect()
}

#[test]
fn a_refusal_leaves_every_slot_as_it_was() {
    let (names, five, one) = (Names::new(), policy(5), policy(1));
    let store = MemoryStore::new(100_000, Clock::manual(START));
    assert!(store.decide_now(&[names.check(&one, 0, 1)], &mut [CheckOutcome::default()]).admitted);
    assert!(store.decide_now(&[names.check(&five, 1, 2)], &mut [CheckOutcome::default()]).admitted);
    let before = (contents(&store), store.buckets());

    let checks = [names.check(&five, 1, 1), names.check(&one, 0, 1), names.check(&five, 2, 1)];
    let mut outcomes = [CheckOutcome::default(); 3];
    assert!(!store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes.map(|it| it.refused.is_some()), [false, true, false]);
    assert_eq!((contents(&store), store.buckets()), before);

    assert!(!store.decide_now(&[names.check(&one, 0, 1)], &mut [CheckOutcome::default()]).admitted);
    assert_eq!((contents(&store), store.buckets()), before);
}

#[test]
fn checks_on_one_bucket_are_one_check_with_the_sum() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(10, Clock::manual(START));
    let checks = [names.check(&five, 1, 2), names.check(&five, 1, 3)];
    let mut outcomes = [CheckOutcome::default(); 2];
    assert!(store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes[0].state, outcomes[1].state);
    assert_eq!(five.report(outcomes[0].state, START).remaining, 0);

    let checks = [names.check(&five, 1, 1), names.check(&five, 1, 1)];
    let mut outcomes = [CheckOutcome::default(); 2];
    assert!(!store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes[1].refused, Some(Retry::At(Micros(START.0 + 2_000_000))));

    let checks = [names.check(&five, 2, 3), names.check(&five, 2, 3)];
    let mut outcomes = [CheckOutcome::default(); 2];
    assert!(!store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes[1].refused, Some(Retry::Never));
}

#[test]
fn a_peek_makes_no_bucket() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(10, Clock::manual(START));
    assert!(store.decide_now(&[names.check(&five, 1, 0)], &mut [CheckOutcome::default()]).admitted);
    assert_eq!(store.buckets(), Buckets { own: 0, overflow: 0 });
}

#[test]
fn the_last_entry_goes_to_a_dead_bucket_of_the_same_decision_only_once() {
    let (names, five) = (Names::new(), policy(5));
    let clock = Clock::manual(START);
    let store = MemoryStore::new(2, clock.clone());
    assert!(
        store
            .decide_now(
                &[names.check(&five, 1, 1), names.check(&five, 2, 1)],
                &mut [CheckOutcome::default(); 2]
            )
            .admitted
    );
    clock.advance(Duration::from_secs(1));
    // Key 1 is dead but about to be charged again: only key 2 may make room.
    let checks = [names.check(&five, 1, 1), names.check(&five, 3, 1), names.check(&five, 4, 1)];
    let mut outcomes = [CheckOutcome::default(); 3];
    assert!(store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(store.buckets(), Buckets { own: 2, overflow: 1 });
}

#[test]
fn a_shrunken_limit_refills_from_empty_and_not_from_its_old_debt() {
    let (names, large, small) = (Names::new(), policy(1_000), policy(2));
    let clock = Clock::manual(START);
    let store = MemoryStore::new(10, clock.clone());
    assert!(
        store.decide_now(&[names.check(&large, 1, 1_000)], &mut [CheckOutcome::default()]).admitted
    );
    assert!(
        !store.decide_now(&[names.check(&small, 1, 1)], &mut [CheckOutcome::default()]).admitted
    );
    clock.advance(Duration::from_micros(999_999));
    assert!(
        !store.decide_now(&[names.check(&small, 1, 1)], &mut [CheckOutcome::default()]).admitted
    );
    clock.advance(Duration::from_micros(1));
    assert!(
        store.decide_now(&[names.check(&small, 1, 1)], &mut [CheckOutcome::default()]).admitted
    );
}

#[test]
fn a_full_table_that_churns_keeps_its_size_however_many_buckets_a_request_takes() {
    let (names, five) = (Names::new(), policy(5));
    for checks in 1..=3_u64 {
        let clock = Clock::manual(START);
        let store = MemoryStore::new(KEYS_PER_SHARD, clock.clone());
        // A bucket lives for a second, so some 3,125 are live and one dies for each that comes.
        for request in 0..20 * KEYS_PER_SHARD as u64 / checks {
            let keys = request * checks..(request + 1) * checks;
            let checks: Vec<_> = keys.map(|key| names.check(&five, key, 1)).collect();
            let mut outcomes = vec![CheckOutcome::default(); checks.len()];
            assert!(store.decide_now(&checks, &mut outcomes).admitted);
            clock.advance(Duration::from_micros(320 * checks.len() as u64));
        }
        let buckets = store.buckets();
        assert!(buckets.own > KEYS_PER_SHARD - 100 && buckets.overflow == 0, "{buckets:?}");
        let bytes = store.shards[0].0.lock().bytes();
        assert!(bytes <= 33 * KEYS_PER_SHARD, "{checks} checks: {bytes} bytes");
    }
}

#[test]
fn a_dead_bucket_of_another_shard_makes_room() {
    let (names, five) = (Names::new(), policy(5));
    let clock = Clock::manual(START);
    let store = MemoryStore::new(KEYS_PER_SHARD + 1, clock.clone());
    assert_eq!(store.shards.len(), 2);
    let shard = |key| shard_of(names.check(&five, key, 1).bucket, 2);
    // Those of the first shard are full again after one second, the others after five.
    for key in 0..=KEYS_PER_SHARD as u64 {
        let cost = if shard(key) == 0 { 1 } else { 5 };
        assert!(
            store
                .decide_now(&[names.check(&five, key, cost)], &mut [CheckOutcome::default()])
                .admitted
        );
    }
    clock.advance(Duration::from_secs(1));
    let new = (1_000_000..).find(|key| shard(*key) == 1).expect("some key");
    assert!(
        store.decide_now(&[names.check(&five, new, 1)], &mut [CheckOutcome::default()]).admitted
    );
    assert!(
        store.decide_now(&[names.check(&five, new, 4)], &mut [CheckOutcome::default()]).admitted
    );
    let own = store.shards.iter().map(|shard| shard.0.lock().len()).sum();
    assert_eq!(store.buckets(), Buckets { own, overflow: 0 });
}

/// A request that could have passed a second ago may have the token of that second too, if it is known
/// that the bucket was full by then.
#[test]
fn what_refilled_while_a_caller_was_late_is_spent_once() {
    let (names, one) = (Names::new(), policy(1));
    for (known, passed) in [(false, 1), (true, 2)] {
        let clock = Clock::manual(START);
        let store = MemoryStore::new(10, clock.clone());
        if known {
            assert!(
                store
                    .decide_now(&[names.check(&one, 1, 1)], &mut [CheckOutcome::default()])
                    .admitted
            );
            clock.advance(Duration::from_secs(5));
            // A cost of zero takes nothing from it.
            assert!(
                store
                    .decide_now(&[names.check(&one, 1, 0)], &mut [CheckOutcome::default()])
                    .admitted
            );
        }
        let late = || Check { waited: 1_000_000, ..names.check(&one, 1, 1) };
        let mut admitted = 0;
        for _ in 0..10 {
            admitted +=
                u32::from(store.decide_now(&[late()], &mut [CheckOutcome::default()]).admitted);
        }
        assert_eq!(admitted, passed, "one of now, and one a second late");
    }
}
