//! Shared buckets under contention, on the real clock: a thread that waits for one decides at an instant
//! no earlier than who had it before, so time never runs back in it.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use weir::clock::{Clock, Micros};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::{CheckOutcome, MemoryStore};

use crate::decider::{Ask, Names};
use crate::reference_model::{Model, pace_of};

const THREADS: usize = 8;
const SPELL: Duration = Duration::from_millis(700);

/// Enough for several shards: threads must meet at the shared bucket, not before it.
const MOST: usize = 20_000;

fn rate(count: u64, period: Duration) -> Rate {
    Rate::new(count, period).expect("a rate")
}

/// Keys that count in one shared bucket, one for each thread: with no place in the table and time
/// standing still, a key that has nothing left after the first has spent everything shares with it.
fn companions(names: &Names, policy: &Policy) -> Vec<u64> {
    let store = MemoryStore::new(0, Clock::manual(Micros(1_700_000_000_000_000)));
    let left_after = |key, cost| {
        let mut outcomes = [CheckOutcome::default()];
        let decision = store.decide_now(&[names.check(&Ask { policy, key, cost })], &mut outcomes);
        policy.report(outcomes[0].state, decision.now).remaining
    };
    assert_eq!(left_after(0, policy.quota()), 0);
    (0..).filter(|key| left_after(*key, 0) == 0).take(THREADS).collect()
}

/// A table in which every place is taken for an hour, by other keys.
fn full_table(names: &Names) -> MemoryStore {
    let store = MemoryStore::new(MOST, Clock::system());
    let hourly = TokenBucket::new(rate(1, Duration::from_secs(3_600)), 1).expect("a bucket");
    let policy = &Policy::TokenBucket(hourly);
    for key in 1_000_000..1_000_000 + MOST as u64 {
        assert!(
            store
                .decide_now(
                    &[names.check(&Ask { policy, key, cost: 1 })],
                    &mut [CheckOutcome::default()]
                )
                .admitted
        );
    }
    store
}

fn holds_under_contention(policy: Policy) {
    let names = Names::new();
    let (store, keys) = (full_table(&names), companions(&names, &policy));
    let start = Barrier::new(THREADS);
    let work = |key: u64| {
        let mut admitted = Vec::new();
        start.wait();
        let began = Instant::now();
        while began.elapsed() < SPELL {
            let decision = store.decide_now(
                &[names.check(&Ask { policy: &policy, key, cost: 1 })],
                &mut [CheckOutcome::default()],
            );
            if decision.admitted {
                admitted.push(decision.now);
            }
        }
        admitted
    };
    // From before the first decision until after the last, by a clock that is not the store's.
    let began = Instant::now();
    let mut admitted: Vec<Micros> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = keys.iter().map(|key| scope.spawn(|| work(*key))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let took = began.elapsed().as_micros();
    assert_eq!(store.buckets().own, MOST, "the table was full all the time");
    assert_eq!(store.buckets().overflow, 1, "all keys shared one bucket");

    // At the instants that the store gave, one naive bucket would have admitted all of them.
    admitted.sort_unstable();
    let mut model = Model::new(&policy);
    for (number, at) in admitted.iter().enumerate() {
        assert_eq!(model.refusal(*at, 1), None, "number {number} of {}", admitted.len());
        model.charge(*at, 1);
    }
    // And what passed in all that time is no more than the time allows: windows that began before
    // it or end after it count as whole ones.
    let (count, period) = pace_of(&policy);
    let [count, period, quota] = [count, period, policy.quota()].map(u128::from);
    let refilled = took * count;
    let at_first = match policy {
        Policy::TokenBucket(_) | Policy::LeakyBucket(_) => quota * period,
        Policy::RefillBucket(_) => (quota + count) * period,
        _ => 2 * quota * period,
    };
    assert!(admitted.len() as u128 * period <= at_first + refilled);
}

#[test]
fn a_shared_token_bucket_under_contention_admits_no_more_than_burst_and_rate() {
    let bucket = TokenBucket::new(rate(10_000, Duration::from_secs(1)), 10).expect("a bucket");
    holds_under_contention(Policy::TokenBucket(bucket));
}

#[test]
fn a_shared_fixed_window_under_contention_admits_no_more_than_its_count() {
    let window = FixedWindow::new(rate(5, Duration::from_millis(1)));
    holds_under_contention(Policy::FixedWindow(window));
}

#[test]
fn a_shared_sliding_window_under_contention_admits_no_more_than_its_count() {
    let window = SlidingWindow::new(rate(5, Duration::from_millis(1)));
    holds_under_contention(Policy::SlidingWindow(window));
}

#[test]
fn a_shared_sliding_log_under_contention_admits_no_more_than_its_count() {
    let log = SlidingLog::new(rate(5, Duration::from_millis(1))).expect("a log");
    holds_under_contention(Policy::SlidingLog(log));
}

#[test]
fn a_shared_refill_bucket_under_contention_admits_no_more_than_its_refills() {
    let bucket = RefillBucket::new(Duration::from_millis(2), 7, 20).expect("a bucket");
    holds_under_contention(Policy::RefillBucket(bucket));
}

#[test]
fn a_shared_leaky_bucket_under_contention_admits_no_more_than_burst_and_rate() {
    let bucket = TokenBucket::new(rate(10_000, Duration::from_secs(1)), 10).expect("a bucket");
    holds_under_contention(Policy::LeakyBucket(bucket.into()));
}
