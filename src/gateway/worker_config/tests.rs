//! What a worker keeps of a configuration when an override replaces it.

use http::StatusCode;
use tokio::time::Instant;

use super::*;
use crate::config::parse;
use crate::gateway::ExternalSnapshot;
use crate::overrides::OverrideTable;
use crate::store::BucketHasher;
use crate::telemetry::{AccessOutcome, Metrics, Outcome, RequestMeter};

const FILE: &str = r#"
    [upstreams.api]
    servers = ["http://127.0.0.1:1"]
    [limits]
    first = { key = "ip", rate = "10/second" }
    second = { key = "ip", rate = "10/second" }
    [[routes]]
    name = "all"
    path = "/*"
    upstream = "api"
    limits = ["first", "second"]
"#;

struct Served {
    hasher: BucketHasher,
    metrics: Metrics,
    compiled: Arc<Compiled>,
    servers: Servers,
}

impl Served {
    fn new() -> Self {
        let (hasher, metrics) = (BucketHasher::random().unwrap(), Metrics::new());
        let settings = Arc::new(parse("test", FILE).unwrap().settings);
        let compiled =
            Compiled::new(settings, &hasher, &metrics, None, ExternalSnapshot::default());
        Served { hasher, metrics, compiled: Arc::new(compiled), servers: Servers::default() }
    }

    fn config(&self) -> WorkerConfig {
        WorkerConfig::new(self.compiled.clone(), &self.servers)
    }

    /// The same settings with decisions of an operator.
    fn decided(&self, overrides: &str) -> Arc<Compiled> {
        let overrides = OverrideTable::of(overrides.as_bytes()).overrides();
        let external = ExternalSnapshot { overrides, ..ExternalSnapshot::default() };
        Arc::new(self.compiled.with(&self.hasher, external))
    }
}

const OVERRIDE: &str = r#"[{"kind": "override", "limit": "first", "key": "192.0.2.1", "burst": 3,
    "until": 99999999999}]"#;
const DENIED: &str = r#"[{"kind": "access", "action": "deny", "who": "user", "value": "eve",
    "until": 99999999999}]"#;

#[test]
fn decisions_of_operators_leave_a_worker_what_it_made_of_the_settings() {
    let served = Served::new();
    let config = served.config();
    for overrides in [OVERRIDE, DENIED, "[]"] {
        let next = config.replaced_by(served.decided(overrides), &served.servers);
        assert!(Rc::ptr_eq(&config.routes, &next.routes), "{overrides}");
        assert!(Rc::ptr_eq(&config.upstreams, &next.upstreams), "{overrides}");
        assert!(Rc::ptr_eq(&config.limit_meters, &next.limit_meters), "{overrides}");
    }
}

#[test]
fn another_file_is_built_anew_though_it_says_the_same() {
    let (served, other) = (Served::new(), Served::new());
    let config = served.config();
    let next = config.replaced_by(other.compiled.clone(), &served.servers);
    assert!(!Rc::ptr_eq(&config.routes, &next.routes));
    assert!(!Rc::ptr_eq(&config.limit_meters, &next.limit_meters));
}

#[test]
fn no_count_is_lost_or_doubled_through_an_override() {
    let served = Served::new();
    let before = served.config();
    let count = |config: &WorkerConfig| {
        config.limit_meters[0].count(Outcome::Allowed);
        config.access_meter.count(AccessOutcome::Denied);
        config.decision_seconds.observe(0.001);
        for (meter, status) in
            [(&config.routes[0].meter, StatusCode::OK), (&config.unrouted, StatusCode::NOT_FOUND)]
        {
            RequestMeter::start(meter.clone(), Instant::now(), None).answered(status);
        }
    };
    count(&before);
    let after = before.replaced_by(served.decided(OVERRIDE), &served.servers);
    before.flush_meters();
    count(&after);
    // A request that came before is decided after.
    count(&before);
    after.flush_meters();
    drop((before, after));
    let metrics = &served.metrics;
    assert_eq!(metrics.decisions.with_label_values(&["first", "allowed"]).get(), 3);
    assert_eq!(metrics.access.with_label_values(&["denied"]).get(), 3);
    assert_eq!(metrics.decision_seconds.with_label_values(&["memory"]).get_sample_count(), 3);
    assert_eq!(metrics.requests.with_label_values(&["all", "200"]).get(), 3);
    assert_eq!(metrics.requests.with_label_values(&[NO_ROUTE, "404"]).get(), 3);
}

#[test]
fn only_limits_that_are_overridden_are_made_anew() {
    let served = Served::new();
    let plain = &served.compiled;
    let overridden = served.decided(OVERRIDE);
    assert!(!Arc::ptr_eq(&plain.limits[0], &overridden.limits[0]));
    assert!(Arc::ptr_eq(&plain.limits[1], &overridden.limits[1]));
    assert!(Arc::ptr_eq(&plain.table, &overridden.table));
    let coexisting = Compiled::clone(plain).coexisting_with(&overridden);
    assert!(
        !Arc::ptr_eq(&plain.limits[0], &coexisting.limits[0]),
        "it has to know of the override"
    );
    assert!(Arc::ptr_eq(&plain.limits[1], &coexisting.limits[1]));
    let taken_back = coexisting.with(&served.hasher, ExternalSnapshot::default());
    assert!(Arc::ptr_eq(&plain.limits[0], &taken_back.limits[0]));
}
