//! Many threads on one store: no interleaving admits what no order of the decisions would.
//!
//! The clock stands still, so buckets only empty, and the end tells of every moment before it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir::clock::{Clock, Micros};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::leaky_bucket::LeakyBucket;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::{Check, CheckOutcome, MemoryStore};

use crate::decider::{Ask, Names};

const NOW: Micros = Micros(1_700_000_000_000_000);

const HOUR: Duration = Duration::from_secs(3_600);

fn bucket(burst: u64) -> Policy {
    let rate = Rate::new(1, HOUR).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

fn fixed(count: u64) -> Policy {
    Policy::FixedWindow(FixedWindow::new(Rate::new(count, HOUR).expect("a rate")))
}

fn sliding(count: u64) -> Policy {
    Policy::SlidingWindow(SlidingWindow::new(Rate::new(count, HOUR).expect("a rate")))
}

fn leaky(burst: u64) -> Policy {
    let rate = Rate::new(1, HOUR).expect("a rate");
    Policy::LeakyBucket(LeakyBucket::new(rate, burst).expect("a bucket"))
}

fn refill(burst: u64) -> Policy {
    Policy::RefillBucket(RefillBucket::new(HOUR, 7, burst).expect("a bucket"))
}

fn log(count: u64) -> Policy {
    let rate = Rate::new(count, HOUR).expect("a rate");
    Policy::SlidingLog(SlidingLog::new(rate).expect("a log"))
}

/// A small generator of its own: threads need no shared randomness.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn used(store: &MemoryStore, names: &Names, policy: &Policy, key: u64) -> u64 {
    let mut outcomes = [CheckOutcome::default()];
    let decision = store.decide_now(&[names.check(&Ask { policy, key, cost: 0 })], &mut outcomes);
    policy.quota() - policy.report(outcomes[0].state, decision.now).remaining
}

#[test]
fn sixty_four_threads_get_exactly_the_burst() {
    // On the real clock a window might end meanwhile.
    let cases = [
        (Clock::system(), bucket(100)),
        (Clock::manual(NOW), bucket(100)),
        (Clock::manual(NOW), fixed(100)),
        (Clock::manual(NOW), sliding(100)),
        (Clock::manual(NOW), leaky(100)),
        (Clock::manual(NOW), refill(100)),
        (Clock::manual(NOW), log(100)),
        (Clock::system(), log(100)),
    ];
    for (clock, policy) in cases {
        let (store, names) = (MemoryStore::new(1_000, clock), Names::new());
        let (admitted, start) = (AtomicUsize::new(0), Barrier::new(64));
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..50 {
                        let check = [names.check(&Ask { policy: &policy, key: 1, cost: 1 })];
                        if store.decide_now(&check, &mut [CheckOutcome::default()]).admitted {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 100);
    }
}

/// Each thread decides random sets of overlapping buckets, in random order.
#[test]
fn concurrent_decisions_are_as_if_one_after_another() {
    const KEYS: u64 = 24;
    // One shard, and many: buckets share locks, and do not.
    for max_keys in [KEYS as usize, 1_000_000] {
        let store = MemoryStore::new(max_keys, Clock::manual(NOW));
        let policies = [bucket(150), fixed(400), sliding(1_000), log(300), refill(200), leaky(400)];
        let names = Names::new();
        let policy_of = |key: u64| &policies[(key % 6) as usize];
        let start = Barrier::new(16);
        let work = |seed: u64| {
            let mut dice = Dice(seed);
            let (mut spent, mut refused) = (vec![0; KEYS as usize], Vec::new());
            start.wait();
            for _ in 0..400 {
                let asks: Vec<(u64, u64)> =
                    (0..1 + dice.below(6)).map(|_| (dice.below(KEYS), dice.below(4))).collect();
                let checks: Vec<Check<'_>> = asks
                    .iter()
                    .map(|(key, cost)| {
                        names.check(&Ask { policy: policy_of(*key), key: *key, cost: *cost })
                    })
                    .collect();
                let mut outcomes = vec![CheckOutcome::default(); checks.len()];
                if store.decide_now(&checks, &mut outcomes).admitted {
                    for (key, cost) in asks {
                        spent[key as usize] += cost;
                    }
                } else {
                    refused.push(asks);
                }
            }
            (spent, refused)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|seed| scope.spawn(move || work(seed))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });

        let spent: Vec<u64> = (0..KEYS as usize)
            .map(|key| results.iter().map(|(spent, _)| spent[key]).sum())
            .collect();
        for (key, spent) in (0..).zip(&spent) {
            let policy = policy_of(key);
            assert!(*spent <= policy.quota());
            assert_eq!(*spent, used(&store, &names, policy, key), "what was admitted was charged");
        }
        // Whatever the order, a refused set did not fit when it came, so it does not fit now.
        for asks in results.iter().flat_map(|(_, refused)| refused) {
            let fits = (0..KEYS).all(|key| {
                let cost: u64 = asks.iter().filter(|ask| ask.0 == key).map(|ask| ask.1).sum();
                spent[key as usize] + cost <= policy_of(key).quota()
            });
            assert!(!fits, "{asks:?} was refused though there was room");
        }
        assert!(results.iter().any(|(_, refused)| !refused.is_empty()), "nothing was contended");
    }
}

/// A table that is always full and a clock that moves: dead buckets are dropped in other shards,
/// and the overflow is taken, while everyone locks several shards.
#[test]
fn a_full_table_under_contention_neither_deadlocks_nor_exceeds_its_bound() {
    const MOST: usize = 10_000;
    let clock = Clock::manual(NOW);
    let store = MemoryStore::new(MOST, clock.clone());
    let policies = [bucket(2), fixed(2), sliding(2), log(2), refill(2), leaky(2)];
    let names = Names::new();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (store, names, policies, clock) = (&store, &names, &policies, &clock);
            scope.spawn(move || {
                let mut dice = Dice(seed);
                for round in 0..2_000 {
                    let checks: Vec<Check<'_>> = (0..5)
                        .map(|_| {
                            let key = dice.below(60_000);
                            let policy = &policies[(key % 6) as usize];
                            names.check(&Ask { policy, key, cost: 1 })
                        })
                        .collect();
                    store.decide_now(&checks, &mut [CheckOutcome::default(); 5]);
                    assert!(store.buckets().own <= MOST);
                    assert!(store.buckets().overflow <= 6 * 64);
                    if round % 100 == 0 {
                        clock.advance(Duration::from_secs(600));
                    }
                }
            });
        }
    });
}
