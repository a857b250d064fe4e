//! Trust of users that several gateways know: calls add up, and outlive each of them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::limits::trust::{Trusting, quota};
use crate::support::{Cluster, Redis, TestStore, Weir, get_with, wait_at_most};

/// In which one gateway hears what another has counted.
const SOON: Duration = Duration::from_secs(5);

/// The quota that a user is told.
fn told(weir: &Weir, path: &str, user: &str) -> i64 {
    quota(&weir.ask(get_with(path, user)))
}

/// Has one gateway count, and another hear of it.
#[track_caller]
fn gateways_know_the_same(trusting: &Trusting, a: &Weir, b: &Weir) {
    let user = trusting.user("ann", &json!({ "verified": true }));
    assert_eq!(told(a, "/", &user), 1200);
    for _ in 0..3 {
        assert_eq!(told(a, "/", &user), 1700);
    }
    for _ in 0..4 {
        told(a, "/missing", &user);
    }
    assert_eq!(told(a, "/broken", &user), 1450, "four of eight");
    // Its first request there counts by the token alone; then that gateway asks.
    wait_at_most(SOON, "the other one has heard", || told(b, "/broken", &user) == 1450);
}

#[test]
fn calls_at_two_gateways_add_up() {
    let (test_store, trusting) =
        (TestStore::redis(), Trusting::new("rate = \"1/day\"\nburst = 1000", ""));
    let (a, b) = (trusting.start(&test_store), trusting.start(&test_store));
    let user = trusting.user("ann", &json!({ "verified": true }));
    assert_eq!(told(&b, "/broken", &user), 1200, "by its token alone");
    gateways_know_the_same(&trusting, &a, &b);
    for _ in 0..8 {
        told(&b, "/", &user);
    }
    assert_eq!(told(&b, "/broken", &user), 1570, "twelve of sixteen");
    wait_at_most(SOON, "the first one has heard", || told(&a, "/broken", &user) == 1570);
}

#[test]
fn refusals_at_one_gateway_are_known_to_the_other() {
    let (test_store, trusting) =
        (TestStore::redis(), Trusting::new("rate = \"1/day\"\nburst = 10", ""));
    let (a, b) = (trusting.start(&test_store), trusting.start(&test_store));
    let user = trusting.user("eve", &json!({}));
    let passed =
        (0..40).filter(|step| [&a, &b][step % 2].ask(get_with("/", &user)).status == 200).count();
    // The first at each gateway was charged by numbers that refill more slowly.
    assert_eq!(passed, 14, "one bucket, whatever either knows of the score");
    wait_at_most(SOON, "both know of the refusals", || {
        told(&a, "/", &user) == 13 && told(&b, "/", &user) == 13
    });
}

#[test]
fn trust_outlives_every_gateway() {
    let (test_store, trusting) =
        (TestStore::redis(), Trusting::new("rate = \"1/day\"\nburst = 1000", ""));
    let user = trusting.user("ann", &json!({}));
    let mut weir = trusting.start(&test_store);
    told(&weir, "/", &user);
    told(&weir, "/missing", &user);
    // What has not been told yet is told at the end.
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    let mut weir = trusting.start(&test_store);
    wait_at_most(SOON, "it has asked", || told(&weir, "/broken", &user) == 1250);
    weir.signal(Signal::KILL);
    weir.exit();
    let weir = trusting.start(&test_store);
    wait_at_most(SOON, "so has the next", || told(&weir, "/broken", &user) == 1250);
}

#[test]
fn gateways_of_a_cluster_know_the_same() {
    let (cluster, trusting) =
        (Cluster::start(), Trusting::new("rate = \"1/day\"\nburst = 1000", ""));
    let config = trusting.config.clone().store(&cluster.store());
    let [a, b] = Weir::start_two(&config);
    gateways_know_the_same(&trusting, &a, &b);
}

#[test]
fn without_redis_each_gateway_goes_by_what_it_knows_and_tells_it_later() {
    let (mut redis, trusting) =
        (Redis::start(), Trusting::new("rate = \"1/day\"\nburst = 1000", ""));
    let config = trusting.config.clone().store(&redis.store());
    let [a, b] = Weir::start_two(&config);
    let user = trusting.user("ann", &json!({}));
    redis.kill();
    wait_at_most(SOON, "it is missed", || {
        a.get("/");
        a.degraded()
    });
    told(&a, "/", &user);
    assert!(told(&a, "/missing", &user) >= 1500, "what this gateway knows by itself");
    redis.restart();
    wait_at_most(4 * SOON, "it is told when Redis is back", || told(&b, "/broken", &user) == 1250);
}

#[test]
fn a_record_is_short_and_expires_after_its_days() {
    let (redis, trusting) = (Redis::start(), Trusting::new("rate = \"1/day\"\nburst = 1000", ""));
    let weir = Weir::start(&trusting.config.clone().store(&redis.store()));
    let user = trusting.user("ann@example.com", &json!({}));
    for _ in 0..50 {
        told(&weir, "/", &user);
    }
    let record = || redis.keys().into_iter().find(|key| key.name.contains("@trust:u"));
    wait_at_most(SOON, "it is told", || record().is_some());
    let record = record().expect("a record");
    assert!(!record.name.contains("ann"), "{record:?}");
    let (day, margin) = (86_400_000, 60_000);
    assert!((31 * day - margin..=31 * day + margin).contains(&record.ttl), "{record:?}");
}
