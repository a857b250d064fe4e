//! What one decision costs in the embedded store, and what ten million keys weigh.
//!
//! `cargo bench --bench decision`. The system's clock is read in every decision, as in service.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Method, Uri};
use weir::caller::Peer;
use weir::clock::Clock;
use weir::config::{self, Settings};
use weir::gateway::plan::{Planner, RequestHead, RequestInputs, RequestPlan};
use weir::gateway::{Compiled, ExternalSnapshot};
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::{BucketHasher, BucketId, Check, CheckOutcome, MemoryStore};
use weir::telemetry::{Metrics, UserScores};
use weir::trust::TrustTable;

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

/// One limit by tenant on `/one`, and a tree on `/tree`: a chain of so many levels, and so many other
/// tenants below its root.
fn tenant_settings(levels: usize, others: usize) -> Settings {
    let mut text = String::from(
        r#"
        [identity]
        tenant = "header:x-tenant"

        [limits.per-tenant]
        key = "tenant"
        rate = "1000000000/second"

        [[routes]]
        name = "one"
        path = "/one"
        upstream = "echo"
        limits = ["per-tenant"]

        [[routes]]
        name = "tree"
        path = "/tree"
        upstream = "echo"
        limits = ["tenants"]
        "#,
    );
    for level in 1..=levels {
        let _ = write!(text, "\n[tenants.level-{level}]\nrate = \"1000000000/second\"");
        if level > 1 {
            let _ = write!(text, "\nparent = \"level-{}\"", level - 1);
        }
    }
    for other in 0..others {
        let _ = write!(text, "\n[tenants.other-{other}]\nparent = \"level-1\"");
        let _ = write!(text, "\nrate = \"{}/minute\"", 100 + other % 1000);
    }
    config::parse("bench.toml", &text).expect("a configuration").settings
}

/// A request from its head to its decision: with one limit, and with a tenant on the fourth level.
fn tenants(bench: &mut Criterion) {
    const OTHERS: usize = 100_000;
    let hasher = BucketHasher::random().expect("randomness");
    let began = Instant::now();
    let settings = Arc::new(tenant_settings(4, OTHERS));
    println!("tenants: {OTHERS} read and checked in {:?}", began.elapsed());
    let metrics = Metrics::new();
    let compile =
        || Compiled::new(settings.clone(), &hasher, &metrics, None, ExternalSnapshot::default());
    let began = Instant::now();
    let compiled = compile();
    println!("tenants: compiled in {:?}", began.elapsed());
    let trees = copies(OTHERS, || settings.tenants.tree.as_ref().clone());
    let texts = copies(OTHERS, compile);
    println!("memory: {:.0} bytes a tenant in the tree, {:.0} compiled", trees.each, texts.each);
    drop((trees, texts));

    let trust = TrustTable::new(1, false, &UserScores::new(), Clock::system());
    let store = MemoryStore::new(1_000_000, Clock::system());
    let planner = Planner { compiled: &compiled, hasher: &hasher, via: "weir", trust: &trust };
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("example.com"));
    headers.insert("x-tenant", HeaderValue::from_static("level-4"));
    let peer = Peer::new(([192, 0, 2, 1], 1).into());
    let decide = |uri: &Uri| {
        let head = RequestHead { method: &Method::GET, uri, headers: &headers };
        let inputs = RequestInputs { token: None, body: None };
        let Ok(plan) = RequestPlan::of(planner, black_box(head), &peer, inputs) else {
            panic!("no plan")
        };
        let mut outcomes = [CheckOutcome::default(); 4];
        let checks = &plan.limits.checks;
        assert!(store.decide_now(checks, &mut outcomes[..checks.len()]).admitted);
    };
    let (one, four) = (Uri::from_static("/one"), Uri::from_static("/tree"));
    // In turns, and the fastest of many: then it does not matter what else the machine does.
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..2_000 {
        for (uri, fastest) in [&one, &four].into_iter().zip(&mut fastest) {
            let began = Instant::now();
            (0..500).for_each(|_| decide(uri));
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [single, tree] = fastest.map(|time| time.as_secs_f64() / 500.0 * 1e9);
    let times = tree / single;
    println!("one limit {single:.0} ns, a tenant on level four {tree:.0} ns: {times:.2} times");

    let mut group = bench.benchmark_group("planned and decided");
    for (name, uri) in [("one limit", &one), ("a tenant on level four", &four)] {
        group.bench_function(name, |b| b.iter(|| decide(uri)));
    }
    group.finish();
}

struct Copies<T> {
    /// What one of so many parts of a copy takes, in bytes.
    each: f64,
    _held: Vec<T>,
}

/// So many that they do not fit into what was freed before.
fn copies<T>(count: usize, copy: impl Fn() -> T) -> Copies<T> {
    const COPIES: usize = 12;
    let mut held: Vec<T> = (0..COPIES).map(|_| copy()).collect();
    let before = resident_bytes();
    held.extend((0..COPIES).map(|_| copy()));
    let each = (resident_bytes() - before) as f64 / (COPIES * count) as f64;
    Copies { each, _held: held }
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
    targets = warm, tenants, ten_million
}
criterion_main!(benches);
