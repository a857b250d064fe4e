//! Bytes and back, and bytes that are none of ours. What the file does is in `file/tests.rs`.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::refill_bucket::RefillBucket;
use crate::limit::sliding_log::{Log, SlidingLog};
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate, State};
use crate::store::memory::{Buckets, KEYS_PER_SHARD, Overflow, Shard, shard_of};
use crate::store::{BucketHasher, Check, CheckOutcome};

const NOW: Micros = Micros(1_700_000_000_000_000);
const SECRET: [u8; 16] = *b"a secret of ours";

fn rate() -> Rate {
    Rate::new(5, Duration::from_secs(60)).expect("a rate")
}

/// Five a minute by each algorithm, some with room for debts.
fn policies() -> [Policy; 7] {
    let bucket = TokenBucket::new(rate(), 5).expect("a bucket");
    let log = Policy::SlidingLog(SlidingLog::new(rate()).expect("a log"));
    [
        Policy::TokenBucket(bucket),
        Policy::RefillBucket(RefillBucket::new(Duration::from_secs(7), 3, 5).expect("a bucket")),
        Policy::SlidingWindow(SlidingWindow::new(rate())),
        log,
        log.with_debt(20),
        Policy::FixedWindow(FixedWindow::new(rate())),
        Policy::LeakyBucket(bucket.into()).with_debt(20),
    ]
}

fn check<'a>(policy: &'a Policy, key: u64, cost: u64) -> Check<'a> {
    let hasher = BucketHasher::with_secret(&SECRET);
    let limit = hasher.limit_prefix("test", policy.kind());
    let mut name = hasher.start(limit);
    name.part(0, &key.to_be_bytes());
    Check::new(policy, limit, name.finish(), cost)
}

fn bytes(store: &MemoryStore) -> Vec<u8> {
    let mut bytes = Vec::new();
    let extras = SnapshotExtras { secret: &SECRET, overrides: b"[]" };
    encode::encode(store, extras, &mut bytes).expect("memory takes everything");
    bytes
}

fn read(bytes: &[u8], max_keys: usize, now: Micros) -> Result<Restored, LoadError> {
    decode::decode(bytes, max_keys, Clock::manual(now))
}

/// The store that comes out of what this one writes, at the same instant.
fn again(store: &MemoryStore, max_keys: usize) -> MemoryStore {
    let restored = read(&bytes(store), max_keys, store.clock.now()).expect("a snapshot");
    assert_eq!((restored.secret, restored.written_at), (SECRET, store.clock.now()));
    restored.store
}

type Contents = Vec<(u64, State, Option<Log>)>;

fn contents(store: &MemoryStore) -> Vec<Contents> {
    let of = |shard: &Shard| {
        let bucket = |(tag, state)| (tag, state, shard.log(tag).cloned());
        shard.states().into_iter().map(bucket).collect()
    };
    let own = store.shards.iter().map(|shard| of(&shard.0.lock()));
    own.chain([of(&store.overflow.lock())]).collect()
}

/// Two shards, a log, and shared buckets.
fn sample() -> MemoryStore {
    let [token, .., log, _, _] = policies();
    let clock = Clock::manual(NOW);
    let store = MemoryStore { max_keys: 6, ..MemoryStore::new(KEYS_PER_SHARD + 1, clock.clone()) };
    for key in 0..8 {
        assert!(
            store.decide_now(&[check(&token, key % 4, 1)], &mut [CheckOutcome::default()]).admitted
        );
        assert!(
            store.decide_now(&[check(&log, key % 5, 1)], &mut [CheckOutcome::default()]).admitted
        );
        clock.advance(Duration::from_millis(10));
    }
    assert_eq!((store.shards.len(), store.buckets()), (2, Buckets { own: 6, overflow: 3 }));
    store
}

/// The same bytes with a checksum that fits them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    let sum = digest(&SHA256, &bytes);
    bytes.extend(sum.as_ref());
    bytes
}

fn damage(bytes: &[u8]) -> Option<Damage> {
    match read(bytes, 10, NOW) {
        Ok(_) => None,
        Err(LoadError::Damaged(damage)) => Some(damage),
        Err(LoadError::Unreadable(error)) => panic!("memory can be read: {error}"),
    }
}

#[test]
fn a_restored_store_decides_as_the_old_one_would_have() {
    for policy in policies() {
        let clock = Clock::manual(NOW);
        let old = MemoryStore::new(100, clock.clone());
        for key in 0..20_u64 {
            assert!(
                old.decide_now(&[check(&policy, key, 1 + key % 5)], &mut [CheckOutcome::default()])
                    .admitted
            );
            old.charge_one_after(&check(&policy, key, key % 7));
            clock.advance(Duration::from_millis(777));
        }
        let new = decode::decode(&*bytes(&old), 100, clock.clone()).expect("a snapshot").store;
        for step in 0..200_u64 {
            let asked = [check(&policy, step % 23, 1)];
            let (mut one, mut other) = ([CheckOutcome::default()], [CheckOutcome::default()]);
            let decided = (old.decide_now(&asked, &mut one), new.decide_now(&asked, &mut other));
            assert_eq!(decided.0, decided.1, "{} at step {step}", policy.kind());
            assert_eq!((one[0].state, one[0].refused), (other[0].state, other[0].refused));
            clock.advance(Duration::from_millis(431));
        }
    }
}

#[test]
fn shards_logs_and_shared_buckets_come_back_as_they_were() {
    let store = sample();
    let restored = again(&store, 6);
    assert_eq!(contents(&restored), contents(&store));
    assert_eq!(restored.buckets(), store.buckets());
    assert_eq!(restored.overflow.until(), store.overflow.until());
    assert!(contents(&restored).iter().flatten().any(|(_, _, log)| log.is_some()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_live_comes_back(
        shards in prop::collection::vec(random_shard(), 1..5),
        shared in random_shard(),
        max_keys in 0..20_usize,
    ) {
        let fill = |buckets: &Contents| {
            let mut shard = Shard::new();
            for (tag, state, log) in buckets {
                if shard.put(*tag, *state) && let Some(log) = log {
                    shard.put_log(*tag, log.clone());
                }
            }
            shard
        };
        let own = shards.iter().map(fill).collect();
        let store = MemoryStore::of(own, Overflow::of(fill(&shared)), 1, Clock::manual(NOW));
        let restored = again(&store, max_keys);
        if restored.shards.len() == store.shards.len() {
            prop_assert_eq!(contents(&restored), contents(&store));
        } else {
            prop_assert_eq!(store.buckets().own, 0);
            prop_assert_eq!(contents(&restored).pop(), contents(&store).pop());
        }
        prop_assert_eq!(restored.buckets(), store.buckets());
    }
}

fn random_shard() -> impl Strategy<Value = Contents> {
    let log = prop::collection::vec((0..1_000_000_u64, 1..1_000_u64), 1..20).prop_map(|entries| {
        let mut log = Log::default();
        let mut at = NOW.0;
        for (later, cost) in entries {
            at += later;
            log.push(Micros(at), cost);
        }
        log
    });
    let until = NOW.0 + 1..crate::limit::concurrency::HELD.0;
    let bucket = (any::<u64>(), until, any::<u64>(), prop::option::of(log));
    let bucket =
        bucket.prop_map(|(tag, until, rest, log)| (tag, State::new(Micros(until), rest), log));
    prop::collection::vec(bucket, 0..10)
}

#[test]
fn what_has_ended_is_neither_written_nor_kept() {
    let [token, ..] = policies();
    let clock = Clock::manual(NOW);
    let store = MemoryStore::new(100, clock.clone());
    assert!(
        store
            .decide_now(
                &[check(&token, 1, 1), check(&token, 2, 2)],
                &mut [CheckOutcome::default(); 2]
            )
            .admitted
    );
    let both = bytes(&store);
    clock.advance(Duration::from_secs(12));
    assert_eq!(store.buckets().own, 2, "nothing sweeps");
    assert_eq!(both.len() - bytes(&store).len(), 28);
    let restored = read(&both, 100, clock.now()).expect("a snapshot").store;
    assert_eq!(restored.buckets().own, 1);
    assert_eq!(restored.state(check(&token, 1, 1).bucket), None);
}

#[test]
fn slots_of_requests_in_flight_end_with_the_process() {
    let one = Policy::Concurrency(Concurrency::new(1).expect("a limit"));
    let [token, ..] = policies();
    // The second of each finds no room of its own.
    let store = MemoryStore { max_keys: 2, ..MemoryStore::new(100, Clock::manual(NOW)) };
    for key in [1, 2] {
        assert!(
            store
                .decide_now(
                    &[check(&one, key, 1), check(&token, key, 5)],
                    &mut [CheckOutcome::default(); 2]
                )
                .admitted
        );
    }
    assert_eq!(store.buckets(), Buckets { own: 2, overflow: 2 });
    let restored = again(&store, 2);
    assert_eq!(restored.buckets(), Buckets { own: 1, overflow: 1 });
    for key in [1, 2] {
        assert!(
            restored.decide_now(&[check(&one, key, 1)], &mut [CheckOutcome::default()]).admitted
        );
        assert!(
            !restored.decide_now(&[check(&token, key, 1)], &mut [CheckOutcome::default()]).admitted
        );
    }
}

#[test]
fn nothing_live_is_forgotten_when_max_keys_has_shrunk() {
    let [token, ..] = policies();
    let store = MemoryStore::new(100, Clock::manual(NOW));
    (0..10).for_each(|key| {
        assert!(store.decide_now(&[check(&token, key, 5)], &mut [CheckOutcome::default()]).admitted)
    });
    let restored = again(&store, 3);
    assert_eq!(restored.buckets(), Buckets { own: 10, overflow: 0 });
    assert!((0..10).all(|key| {
        !restored.decide_now(&[check(&token, key, 1)], &mut [CheckOutcome::default()]).admitted
    }));
    assert!(restored.decide_now(&[check(&token, 10, 1)], &mut [CheckOutcome::default()]).admitted);
    assert_eq!(restored.buckets(), Buckets { own: 10, overflow: 1 });
    restored.clock.advance(Duration::from_secs(60));
    assert!(restored.decide_now(&[check(&token, 11, 1)], &mut [CheckOutcome::default()]).admitted);
    assert_eq!(restored.buckets().own, 1, "and once they have ended, it holds");
}

#[test]
fn a_store_keeps_its_shards_for_as_long_as_they_hold_something() {
    let [token, ..] = policies();
    let store = MemoryStore::new(5 * KEYS_PER_SHARD, Clock::manual(NOW));
    (0..50).for_each(|key| {
        assert!(store.decide_now(&[check(&token, key, 5)], &mut [CheckOutcome::default()]).admitted)
    });
    for max_keys in [1, 2 * KEYS_PER_SHARD, 50 * KEYS_PER_SHARD] {
        let restored = again(&store, max_keys);
        assert_eq!(restored.shards.len(), 5);
        assert!((0..50).all(|key| {
            !restored.decide_now(&[check(&token, key, 1)], &mut [CheckOutcome::default()]).admitted
        }));
        let later = Micros(NOW.0 + 60_000_000);
        let empty = read(&bytes(&store), max_keys, later).expect("a snapshot").store;
        assert_eq!(empty.shards.len(), max_keys.div_ceil(KEYS_PER_SHARD));
    }
    assert!((0..50).any(|key| shard_of(check(&token, key, 1).bucket, 5) == 4));
}

#[test]
fn a_wall_clock_that_was_set_back_neither_locks_out_nor_refills() {
    for policy in policies() {
        let store = MemoryStore::new(100, Clock::manual(NOW));
        assert!(store.decide_now(&[check(&policy, 1, 5)], &mut [CheckOutcome::default()]).admitted);
        let hour_back = Micros(NOW.0 - 3_600_000_000);
        let restored = read(&bytes(&store), 100, hour_back).expect("a snapshot").store;
        assert!(
            !restored.decide_now(&[check(&policy, 1, 1)], &mut [CheckOutcome::default()]).admitted,
            "{}",
            policy.kind()
        );
        // As long as the deepest debt of these takes to be paid off.
        restored.clock.advance(Duration::from_secs(300));
        assert!(
            restored.decide_now(&[check(&policy, 1, 1)], &mut [CheckOutcome::default()]).admitted,
            "{}",
            policy.kind()
        );
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = bytes(&sample());
    assert_eq!(damage(&good), None);
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(damage(&bad).is_some(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn every_cut_is_noticed_and_so_is_what_comes_after_the_end() {
    let good = bytes(&sample());
    for length in 0..good.len() {
        assert_eq!(damage(&good[..length]), Some(Damage::CutOff), "after {length} bytes");
    }
    assert_eq!(damage(&[&*good, &[0]].concat()), Some(Damage::Trailing));
    assert_eq!(damage(&[&*good, &*good].concat()), Some(Damage::Trailing));
}

#[test]
fn wild_numbers_with_a_fitting_checksum_break_nothing() {
    let good = bytes(&sample());
    for at in 0..good.len() - CHECKSUM_BYTES {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            for width in [1, 4, 8] {
                let mut bad = good.clone();
                let end = (at + width).min(good.len() - CHECKSUM_BYTES);
                bad[at..end].fill(value);
                if let Ok(restored) = read(&sealed(bad), 10, NOW) {
                    let policies = policies();
                    for policy in &policies {
                        (0..8).for_each(|key| {
                            restored.store.decide_now(
                                &[check(policy, key, 1)],
                                &mut [CheckOutcome::default()],
                            );
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn damage_is_reported_for_what_it_is() {
    let good = bytes(&sample());
    let with = |at: usize, new: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + new.len()].copy_from_slice(new);
        damage(&sealed(bad))
    };
    assert_eq!(with(0, b"weirsnap"), Some(Damage::Magic));
    assert_eq!(with(8, &[9]), Some(Damage::Version(9)));
    assert_eq!(with(28, &[0xff; 8]), Some(Damage::Impossible("an instant")));
    assert_eq!(with(36, &[0; 4]), Some(Damage::Impossible("the number of shards")));
    assert_eq!(with(36, &[0xff; 4]), Some(Damage::Impossible("the number of shards")));
    assert_eq!(with(40, &[0xff; 4]).map(|it| it == Damage::Checksum), Some(false));
    let mut bad = good.clone();
    bad[20] ^= 1;
    assert_eq!(damage(&bad), Some(Damage::Checksum));
    assert_eq!(damage(b"key = \"ip\"\nrate = 5"), Some(Damage::Magic));
}
