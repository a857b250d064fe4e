//! What only the slots themselves can show; the rest is in `tests/model`.

use std::time::Duration;

use super::*;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate, Retry, State};
use crate::store::{BucketHasher, Choice};

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

/// A pair on two buckets.
fn pair<'a>(names: &Names, policy: &'a Policy, keys: [u64; 2], cost: u64) -> [Check<'a>; 2] {
    let [first, second] = keys.map(|key| names.check(policy, key, cost));
    [Check { choice: Choice::First, ..first }, Check { choice: Choice::Second, ..second }]
}

/// What has been spent of some keys.
fn used(store: &MemoryStore, names: &Names, policy: &Policy, keys: &[u64]) -> Vec<u64> {
    let left = |key: &u64| {
        let mut outcomes = [CheckOutcome::default()];
        let decision = store.decide_now(&[names.check(policy, *key, 0)], &mut outcomes);
        policy.quota() - policy.report(outcomes[0].state, decision.now).remaining
    };
    keys.iter().map(left).collect()
}

#[test]
fn the_first_of_a_pair_that_admits_is_charged() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(10, Clock::manual(START));
    // Each: the cost, whether each refuses, whether the second is skipped, what is spent then.
    let history = [
        (3, [false, false], true, [3, 0]),
        (3, [true, false], false, [3, 3]),
        (2, [false, false], true, [5, 3]),
        (2, [true, false], false, [5, 5]),
        (1, [true, true], false, [5, 5]),
        (6, [true, true], false, [5, 5]),
    ];
    for (cost, refused, skipped, spent) in history {
        let mut outcomes = [CheckOutcome { skipped: true, ..CheckOutcome::default() }; 2];
        let checks = pair(&names, &five, [1, 2], cost);
        let decision = store.decide_now(&checks, &mut outcomes);
        assert_eq!(decision.admitted, !refused[1], "cost {cost}");
        assert_eq!(outcomes.map(|it| it.refused.is_some()), refused, "cost {cost}");
        assert_eq!(outcomes.map(|it| it.skipped), [false, skipped], "cost {cost}");
        assert_eq!(used(&store, &names, &five, &[1, 2]), spent, "cost {cost}");
        let charged = [0, 1].map(|at| decision.admitted && checks[at].is_charged(&outcomes[at]));
        let chosen = [!refused[0], refused[0] && !refused[1]];
        assert_eq!(charged, chosen, "cost {cost}");
    }
}

#[test]
fn a_pair_that_refuses_promises_the_earlier_instant_of_both() {
    let (names, five, eight) = (Names::new(), policy(5), policy(8));
    let store = MemoryStore::new(10, Clock::manual(START));
    let drain = [names.check(&five, 1, 5), names.check(&eight, 2, 6)];
    assert!(store.decide_now(&drain, &mut [CheckOutcome::default(); 2]).admitted);
    let asked = |cost| {
        let [first, second] = pair(&names, &five, [1, 2], cost);
        let checks = [first, Check { policy: &eight, ..second }];
        let mut outcomes = [CheckOutcome::default(); 2];
        assert!(!store.decide_now(&checks, &mut outcomes).admitted);
        outcomes.map(|it| it.refused)
    };
    let at = |seconds: u64| Some(Retry::At(Micros(START.0 + seconds * 1_000_000)));
    assert_eq!(asked(3), [at(3), at(1)]);
    assert_eq!(asked(6), [Some(Retry::Never), at(4)]);
    assert_eq!(asked(9), [Some(Retry::Never); 2]);
    assert!(
        store.decide_now(&[names.check(&eight, 2, 2)], &mut [CheckOutcome::default()]).admitted
    );
    assert_eq!(asked(4), [at(4), at(4)]);
    assert_eq!(asked(5), [at(5), at(5)]);
    // The other way round it is the first that comes back earlier.
    assert!(
        store.decide_now(&[names.check(&eight, 3, 8)], &mut [CheckOutcome::default()]).admitted
    );
    let [first, second] = pair(&names, &five, [1, 3], 5);
    let checks = [first, Check { policy: &eight, cost: 6, ..second }];
    let mut outcomes = [CheckOutcome::default(); 2];
    assert!(!store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes[1].refused, at(5));
}

#[test]
fn a_refused_request_charges_neither_of_its_pair() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(10, Clock::manual(START));
    assert!(store.decide_now(&[names.check(&five, 3, 5)], &mut [CheckOutcome::default()]).admitted);
    let [first, second] = pair(&names, &five, [1, 2], 1);
    let mut outcomes = [CheckOutcome::default(); 3];
    assert!(!store.decide_now(&[first, second, names.check(&five, 3, 1)], &mut outcomes).admitted);
    assert_eq!(outcomes.map(|it| it.refused.is_some()), [false, false, true]);
    assert_eq!(used(&store, &names, &five, &[1, 2, 3]), [0, 0, 5]);
}

/// Keys without a bucket of their own, so that two of them share one, and a third does not.
fn overflowing(names: &Names, policy: &Policy) -> ([u64; 2], u64) {
    let tag = |key: u64| {
        let check = names.check(policy, key, 1);
        decision::overflow_tag(check.limit_prefix, check.bucket)
    };
    let same = (2..).find(|key| tag(*key) == tag(1)).expect("some key");
    let other = (2..).find(|key| tag(*key) != tag(1)).expect("some key");
    ([1, same], other)
}

#[test]
fn a_pair_in_one_overflow_bucket_is_asked_for_its_cost_once() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(1, Clock::manual(START));
    assert!(store.decide_now(&[names.check(&five, 0, 5)], &mut [CheckOutcome::default()]).admitted);
    let (same, _) = overflowing(&names, &five);
    let decide = |cost| {
        let mut outcomes = [CheckOutcome::default(); 2];
        store.decide_now(&pair(&names, &five, same, cost), &mut outcomes);
        outcomes.map(|it| (it.refused, it.skipped))
    };
    assert_eq!(decide(3), [(None, false), (None, true)]);
    let at = Some(Retry::At(Micros(START.0 + 1_000_000)));
    assert_eq!(decide(3), [(at, false), (at, false)]);
    assert_eq!(used(&store, &names, &five, &same), [3, 3]);
}

#[test]
fn a_first_that_refuses_takes_nothing_from_a_check_in_its_overflow_bucket() {
    let (names, five) = (Names::new(), policy(5));
    let store = MemoryStore::new(1, Clock::manual(START));
    assert!(store.decide_now(&[names.check(&five, 0, 5)], &mut [CheckOutcome::default()]).admitted);
    let ([alone, first], second) = overflowing(&names, &five);
    let [first, second_check] = pair(&names, &five, [first, second], 4);
    let checks = [names.check(&five, alone, 2), first, second_check];
    let mut outcomes = [CheckOutcome::default(); 3];
    assert!(store.decide_now(&checks, &mut outcomes).admitted);
    assert_eq!(outcomes.map(|it| it.refused.is_some()), [false, true, false]);
    assert_eq!(used(&store, &names, &five, &[alone, second]), [2, 4]);
}
