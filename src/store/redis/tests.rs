//! A store whose Redis is never asked.

use super::*;
use crate::config;
use crate::config::settings::{Origin, StoreKind};
use crate::limit::Rate;
use crate::limit::token_bucket::TokenBucket;
use crate::store::{BucketKeys, StoreContext};
use crate::telemetry::{AuditLog, Metrics};

const HOUR: u64 = 3_600_000_000;

/// What a gateway with one worker shares, by these lines of `[store]`.
pub(super) fn shared(store: &str) -> Arc<RedisShared> {
    let base = include_str!("../../../config/config.toml");
    let text = format!("{base}[store]\nkind = \"redis\"\n{store}\n");
    let settings = config::parse("test", &text).expect("a configuration").settings.store;
    let StoreKind::Redis(redis) = &settings.kind else { panic!("a store in Redis") };
    let worker_store = Box::new(|_: &_| unreachable!("no worker is started"));
    let shape = StoreShape { kind: "redis", worker_store };
    let metrics = Metrics::new();
    let audit = AuditLog::nowhere(&metrics);
    let context = StoreContext { workers: 1, node: "weir-1", metrics: &metrics, audit: &audit };
    Arc::new(RedisShared::new(shape, redis, &settings, context))
}

/// The instant at which a bucket of a cluster is shown in a refusal that is known at another one, if the
/// clock of its master is so many microseconds ahead of the other master's.
fn shown_at(ahead: u64, known: Micros) -> Micros {
    let shared = shared("cluster = true");
    let (clocks, time) = (&shared.dialer.clocks, shared.clock.now());
    let now = clock::cached_now();
    let node = |port| Origin { host: "node".to_owned(), port };
    let probed = shared.slot_of(&shared.reserved_key("probe"));
    clocks.update_in_slot(probed, &node(1), time, now, now);
    let there = Micros(time.0 + ahead);
    clocks.update_in_slot(shared.slot_of(b"bucket"), &node(2), there, now, now);
    shared.follow_clocks();
    let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
    let policy = Policy::TokenBucket(TokenBucket::new(rate, 100).expect("a bucket"));
    let mut keys = BucketKeys::default();
    let key = keys.add_copy(b"bucket");
    let check = Check { key, ..Check::new(&policy, 0, BucketId(7), 1) };
    let mut outcomes = [CheckOutcome::default()];
    let asked = CheckSet { checks: &[check], keys: keys.view() };
    let tasks = tokio::task::LocalSet::new();
    let _guard = tasks.enter();
    RedisStore::start(shared).show_known(asked, &mut outcomes, known);
    outcomes[0].now
}

#[tokio::test]
async fn refusal_on_a_cluster_looks_for_clocks_of_masters_only_if_they_differ() {
    let known = Micros(HOUR);
    assert_eq!(shown_at(0, known), known);
    assert!(shown_at(10 * HOUR, known) > Micros(10 * HOUR));
}
