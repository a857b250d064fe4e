//! A request from its head to its decision: with one limit, and with a tenant on the fourth level.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use http::{HeaderMap, HeaderValue, Method, Uri};
use weir::caller::Peer;
use weir::clock::Clock;
use weir::config::{self, Settings};
use weir::gateway::plan::{Planner, RequestHead, RequestInputs, RequestPlan};
use weir::gateway::{Compiled, ExternalSnapshot};
use weir::store::{BucketHasher, CheckOutcome, MemoryStore};
use weir::telemetry::{Metrics, UserScores};
use weir::trust::TrustTable;

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

/// One gateway's configuration and store, and the head of a request of the tenant on level four.
struct Requests {
    hasher: BucketHasher,
    compiled: Compiled,
    trust: TrustTable,
    store: MemoryStore,
    headers: HeaderMap,
    peer: Peer,
}

impl Requests {
    fn new(settings: &Arc<Settings>) -> Self {
        let hasher = BucketHasher::random().expect("randomness");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("example.com"));
        headers.insert("x-tenant", HeaderValue::from_static("level-4"));
        Requests {
            compiled: compile(settings, &hasher),
            trust: TrustTable::new(1, false, &UserScores::new(), Clock::system()),
            store: MemoryStore::new(1_000_000, Clock::system()),
            peer: Peer::new(([192, 0, 2, 1], 1).into()),
            hasher,
            headers,
        }
    }

    /// Plans one request and decides it.
    fn decide(&self, uri: &Uri) {
        let Requests { hasher, compiled, trust, store, headers, peer } = self;
        let planner = Planner { compiled, hasher, via: "weir", trust };
        let head = RequestHead { method: &Method::GET, uri, headers };
        let inputs = RequestInputs { token: None, body: None, certificate: None };
        let Ok(plan) = RequestPlan::of(planner, black_box(head), peer, inputs) else {
            panic!("no plan")
        };
        let mut outcomes = [CheckOutcome::default(); 4];
        let checks = &plan.limits.checks;
        assert!(store.decide_now(checks, &mut outcomes[..checks.len()]).admitted);
    }
}

fn compile(settings: &Arc<Settings>, hasher: &BucketHasher) -> Compiled {
    let (metrics, external) = (Metrics::new(), ExternalSnapshot::default());
    Compiled::new(settings.clone(), hasher, &metrics, None, external)
}

/// So many requests for one target, for those who count what they cost.
pub(crate) fn decide_times(target: &str, requests: usize) {
    let requests_of = Requests::new(&Arc::new(tenant_settings(4, 1_000)));
    let uri: Uri = target.parse().expect("a target");
    (0..requests).for_each(|_| requests_of.decide(&uri));
}

pub(crate) fn tenants(bench: &mut Criterion) {
    const OTHERS: usize = 100_000;
    let began = Instant::now();
    let settings = Arc::new(tenant_settings(4, OTHERS));
    println!("tenants: {OTHERS} read and checked in {:?}", began.elapsed());
    let began = Instant::now();
    let requests = Requests::new(&settings);
    println!("tenants: compiled in {:?}", began.elapsed());
    let trees = copies(OTHERS, || settings.tenants.tree.as_ref().clone());
    let texts = copies(OTHERS, || compile(&settings, &requests.hasher));
    println!("memory: {:.0} bytes a tenant in the tree, {:.0} compiled", trees.each, texts.each);
    drop((trees, texts));

    let (one, four) = (Uri::from_static("/one"), Uri::from_static("/tree"));
    // In turns, and the fastest of many: then it does not matter what else the machine does.
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..2_000 {
        for (uri, fastest) in [&one, &four].into_iter().zip(&mut fastest) {
            let began = Instant::now();
            (0..500).for_each(|_| requests.decide(uri));
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [single, tree] = fastest.map(|time| time.as_secs_f64() / 500.0 * 1e9);
    let times = tree / single;
    println!("one limit {single:.0} ns, a tenant on level four {tree:.0} ns: {times:.2} times");

    let mut group = bench.benchmark_group("planned and decided");
    for (name, uri) in [("one limit", &one), ("a tenant on level four", &four)] {
        group.bench_function(name, |b| b.iter(|| requests.decide(uri)));
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
    let before = crate::resident_bytes();
    held.extend((0..COPIES).map(|_| copy()));
    let each = (crate::resident_bytes() - before) as f64 / (COPIES * count) as f64;
    Copies { each, _held: held }
}
