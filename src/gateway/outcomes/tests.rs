//! What a request's limits say of a pair: each pair once, by the one that was charged, or by its second
//! if neither was.

use std::sync::Arc;

use http::HeaderMap;

use super::*;
use crate::clock::{Clock, Micros};
use crate::config::parse;
use crate::gateway::ExternalSnapshot;
use crate::gateway::compiled::Compiled;
use crate::gateway::plan::DeferredLimit;
use crate::limit::Retry;
use crate::limit::trust::Score;
use crate::respond::RateHeaders;
use crate::store::{BucketHasher, BucketId, Choice, MemoryStore};
use crate::telemetry::Metrics;

const NOW: Micros = Micros(1_700_000_000_000_000);

/// Limits stand for the two buckets of a pair: nothing else has them yet.
const CONFIG: &str = r#"
    [limits.own]
    key = "ip"
    rate = "1/minute"
    burst = 2
    cost = { from = "response:x-cost", default = 1, max = 5 }
    [limits.pool]
    key = "ip"
    rate = "1/hour"
    burst = 3
    cost = { from = "response:x-cost", default = 1, max = 5 }
    [limits.degrading-own]
    key = "ip"
    rate = "1/hour"
    burst = 1
    strategy = "degrade"
    [limits.degrading-pool]
    key = "ip"
    rate = "1/hour"
    burst = 1
    strategy = "degrade"
    [limits.queued]
    key = "ip"
    rate = "1/hour"
    strategy = "queue"
    [[routes]]
    name = "all"
    path = "/*"
    upstream = "echo"
    limits = ["own", "pool", "degrading-own", "degrading-pool", "queued"]
"#;

fn compiled() -> Compiled {
    let settings = Arc::new(parse("test", CONFIG).unwrap_or_else(|it| panic!("{it}")).settings);
    let hasher = BucketHasher::with_secret(&[7; 16]);
    Compiled::new(settings, &hasher, &Metrics::new(), None, ExternalSnapshot::default())
}

/// A check of each of these limits, on a bucket that is called like its position in the configuration.
fn planned<'a>(compiled: &'a Compiled, asked: &[(&str, Choice)], cost: u64) -> PlannedLimits<'a> {
    let mut planned = PlannedLimits::default();
    for (name, choice) in asked {
        let mut limits = compiled.limits.iter();
        let limit = limits.position(|it| it.limit.name == *name).expect("a limit");
        let route_limit = compiled.routes[0].limits.iter().find(|it| it.limit == limit);
        let route_limit = route_limit.expect("a limit of the route");
        let limit = &*compiled.limits[limit];
        let bucket = BucketId(limit.index as u128 + 1);
        let effective = limit.variant(None).effective(bucket, Score::default());
        if route_limit.deferred {
            let check = planned.checks.len();
            planned.deferred.push(DeferredLimit { check, cost, limit: route_limit, tenant: None });
        }
        planned.limits.push(limit);
        planned.numbers.push(effective.numbers);
        let check = Check::new(&effective.numbers.policy, effective.prefix, bucket, cost);
        planned.checks.push(Check { choice: *choice, enforced: limit.enforced, ..check });
    }
    planned
}

const PAIR: [(&str, Choice); 2] = [("own", Choice::First), ("pool", Choice::Second)];

fn decide(store: &MemoryStore, limits: &mut LimitOutcomes<'_, '_>) -> bool {
    let (asked, outcomes) = limits.asked();
    store.decide_now(asked.checks, outcomes).admitted
}

fn names<'a: 'c, 'c>(entries: impl Iterator<Item = LimitOutcome<'a, 'c>>) -> Vec<String> {
    entries.map(|it| it.limit.limit.name.clone()).collect()
}

/// The members of `RateLimit`.
fn written(limits: &LimitOutcomes<'_, '_>) -> String {
    let forms = parse("test", CONFIG).unwrap_or_else(|it| panic!("{it}")).settings.respond;
    let mut fields = crate::respond::Fields::default();
    let rate = RateHeaders::new(forms, NOW, 0);
    rate.write(limits.applied(), &mut HeaderMap::new(), &mut fields);
    let mut headers = HeaderMap::new();
    fields.append_to(&mut headers);
    headers["ratelimit"].to_str().expect("text").to_owned()
}

#[test]
fn a_pair_is_told_once_by_the_one_that_was_charged() {
    let compiled = compiled();
    let store = MemoryStore::new(100, Clock::manual(NOW));
    let history = [
        (2, "own", "\"own\";r=0;t=60"),
        (2, "pool", "\"pool\";r=1;t=3600"),
        (1, "pool", "\"pool\";r=0;t=3600"),
    ];
    for (cost, told, member) in history {
        let mut planned = planned(&compiled, &PAIR, cost);
        let mut limits = LimitOutcomes::new(&mut planned);
        assert!(decide(&store, &mut limits));
        assert_eq!(names(limits.told()), [told]);
        assert_eq!(written(&limits), member);
        assert!(limits.refusing().is_empty());
        // The charge that waits for the response is that bucket's.
        let open = limits.open_charges(&TenantTree::default()).expect("deferred charges");
        let buckets: Vec<BucketId> = open.deferred.iter().map(|it| it.charge.bucket()).collect();
        let chosen = limits.told().map(|it| it.check.bucket).collect::<Vec<_>>();
        assert_eq!(buckets, chosen);
    }
}

#[test]
fn a_pair_that_refuses_is_named_once_with_the_earlier_retry() {
    let compiled = compiled();
    let store = MemoryStore::new(100, Clock::manual(NOW));
    for cost in [2, 3] {
        let mut planned = planned(&compiled, &PAIR, cost);
        assert!(decide(&store, &mut LimitOutcomes::new(&mut planned)));
    }
    let mut planned = planned(&compiled, &PAIR, 1);
    let mut limits = LimitOutcomes::new(&mut planned);
    assert!(!decide(&store, &mut limits));
    assert_eq!(names(limits.told()), ["pool"]);
    assert_eq!(names(limits.refusing().into_iter()), ["pool"]);
    assert!(written(&limits).starts_with("\"pool\";r=0;"));
    let minute = Micros(NOW.0 + 60_000_000);
    assert_eq!(limits.refusing()[0].outcome.refused, Some(Retry::At(minute)));
    assert_eq!(limits.refusal_error(NOW), "rate_limit_exceeded");
}

#[test]
fn a_first_that_never_admits_is_no_reason_not_to_wait() {
    let compiled = compiled();
    let asked = [PAIR[0], PAIR[1], ("queued", Choice::Alone)];
    for (cost, waits) in [(2, true), (3, true), (4, false)] {
        let mut planned = planned(&compiled, &asked, cost);
        planned.checks[2].cost = 1;
        let limits = LimitOutcomes::new(&mut planned);
        assert_eq!(limits.occupied_queue(|_| true).is_some(), waits, "cost {cost}");
    }
}

#[test]
fn a_pair_degrades_if_both_of_it_refuse() {
    let compiled = compiled();
    let store = MemoryStore::new(100, Clock::manual(NOW));
    let asked = [("degrading-own", Choice::First), ("degrading-pool", Choice::Second)];
    let pool = HeaderValue::from_static("degrading-pool");
    for degraded in [None, None, Some(pool)] {
        let mut planned = planned(&compiled, &asked, 1);
        let mut limits = LimitOutcomes::new(&mut planned);
        assert!(decide(&store, &mut limits));
        assert_eq!(limits.degraded(), degraded);
    }
}
