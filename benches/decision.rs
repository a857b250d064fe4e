//! What one decision costs in the embedded store, and what ten million keys weigh.
//!
//! `cargo bench --bench decision`. The system's clock is read in every decision, as in service.
//! `benches/cost/decision` counts instructions instead: it has the requests of [`planned`] made one by
//! one.

#[path = "decision/planned.rs"]
mod planned;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group};
use weir::clock::Clock;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::{BucketHasher, BucketId, Check, CheckOutcome, MemoryStore};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TEN_MILLION: u64 = 10_000_000;

struct Names {
    hasher: BucketHasher,
    limit: u64,
}

impl Names {
    fn new() -> Self {
        let hasher = BucketHasher::random().expect("randomness");
        let limit = hasher.limit_prefix("per-user", "token_bucket");
        Self { hasher, limit }
    }

    /// The bucket of an address, as for `key = "ip"`.
    fn bucket(&self, key: u64) -> BucketId {
        let mut name = self.hasher.start(self.limit);
        name.part(1, &key.to_be_bytes());
        name.finish()
    }
}

fn policy(count: u64, seconds: u64, burst: u64) -> Policy {
    let rate = Rate::new(count, Duration::from_secs(seconds)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

/// Ten thousand keys: a table that the caches hold.
fn warm(bench: &mut Criterion) {
    let names = Names::new();
    let ample = policy(1_000_000_000, 1, 1_000_000_000);
    let store = MemoryStore::new(1_000_000, Clock::system());
    let ask = |key| Check::new(&ample, names.limit, names.bucket(key), 1);
    for key in 0..10_000 {
        store.decide_now(&[ask(key)], &mut [CheckOutcome::default()]);
    }

    let mut group = bench.benchmark_group("warm");
    for buckets in [100, 1_000, 10_000] {
        let mut key = 0;
        group.bench_function(format!("one decision, {buckets} buckets in turn"), |b| {
            b.iter(|| {
                key = (key + 7) % buckets;
                store.decide_now(black_box(&[ask(key)]), &mut [CheckOutcome::default()])
            });
        });
    }
    group.bench_function("naming a bucket", |b| b.iter(|| names.bucket(black_box(7))));
    group.bench_function("one decision, always the same bucket", |b| {
        b.iter(|| store.decide_now(black_box(&[ask(7)]), &mut [CheckOutcome::default()]));
    });
    group.bench_function("one decision, the same and named before", |b| {
        let bucket = names.bucket(3);
        b.iter(|| {
            let checks = [Check::new(&ample, names.limit, black_box(bucket), 1)];
            store.decide_now(&checks, &mut [CheckOutcome::default()])
        });
    });
    group.bench_function("five in one request", |b| {
        b.iter(|| {
            store.decide_now(
                black_box(&[7, 107, 207, 307, 407].map(ask)),
                &mut [CheckOutcome::default(); 5],
            )
        });
    });
    group.bench_function("one refusal", |b| {
        let strict = policy(1, 86_400, 1);
        let bucket = names.bucket(TEN_MILLION);
        let ask = || Check::new(&strict, names.limit, black_box(bucket), 1);
        store.decide_now(&[ask()], &mut [CheckOutcome::default()]);
        b.iter(|| store.decide_now(&[ask()], &mut [CheckOutcome::default()]));
    });
    group.finish();
}

/// Ten million live keys: every lookup leaves the caches.
fn ten_million(bench: &mut Criterion) {
    let names = Names::new();
    let slow = policy(1, 86_400, 100);
    // Full again within a microsecond, so that new keys come and go without end.
    let brief = policy(1_000_000_000, 1, 100);
    let before = resident_bytes();
    let store = MemoryStore::new(TEN_MILLION as usize + 500_000, Clock::system());
    for key in 0..TEN_MILLION {
        store.decide_now(
            &[Check::new(&slow, names.limit, names.bucket(key), 1)],
            &mut [CheckOutcome::default()],
        );
    }
    assert_eq!(store.buckets().own, TEN_MILLION as usize);
    let per_key = (resident_bytes() - before) as f64 / TEN_MILLION as f64;
    println!("memory: {per_key:.1} bytes a key at ten million keys");

    let mut key = 0_u64;
    let mut group = bench.benchmark_group("ten million keys");
    group.bench_function("a known key", |b| {
        b.iter(|| {
            key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bucket = names.bucket((key >> 32) % TEN_MILLION);
            store.decide_now(
                black_box(&[Check::new(&slow, names.limit, bucket, 1)]),
                &mut [CheckOutcome::default()],
            )
        });
    });
    group.bench_function("a new key", |b| {
        key = TEN_MILLION;
        b.iter(|| {
            key += 1;
            let bucket = names.bucket(key);
            store.decide_now(
                black_box(&[Check::new(&brief, names.limit, bucket, 1)]),
                &mut [CheckOutcome::default()],
            )
        });
    });
    group.finish();
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kilobytes * 1_024
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = warm, planned::tenants, ten_million
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [count, target, requests] = &arguments[..]
        && count == "--count"
    {
        planned::decide_times(target, requests.parse().expect("how many requests"));
        return;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
