//! Slots of `concurrency` come back, each exactly once, whatever workers, replies and clocks do.

use crate::support::load::Load;
use crate::support::slots::concurrency_limit;
use crate::support::{Cluster, Config, Redis, Weir, fields, get, wait_until};

/// So many at a time.
const LIMIT: i64 = 200;

/// What is left of the limit after one request, or nothing if it was refused.
fn left(weir: &Weir) -> Option<i64> {
    let response = weir.get("/");
    (response.status == 200).then(|| fields::list(&response.all("ratelimit"))[0].integer("r"))
}

/// Plain load on both workers, then the store goes: with nothing in flight, all slots are there.
fn load_then_fail(store: &str, fail: impl FnOnce()) {
    let config = Config::echo().limit(&concurrency_limit(LIMIT as usize)).server("workers = 2");
    let weir = Weir::start(&config.store(store).store("timeout = \"1s\"\non_error = \"local\""));
    let load = Load::start(&[weir.address()], &[get("/")], 24);
    (0..8).for_each(|_| load.wait_for(1_000));
    let answers = load.finish();
    assert!(answers.iter().all(|it| it.status == 200), "nobody comes near the limit");
    fail();
    wait_until("it decides without Redis", || {
        let _ = weir.get("/");
        weir.degraded()
    });
    for _ in 0..20 {
        assert_eq!(left(&weir), Some(LIMIT - 1), "with nothing in flight");
    }
}

#[test]
fn all_slots_are_free_after_load_when_redis_dies() {
    let mut redis = Redis::start();
    load_then_fail(&redis.store(), || redis.kill());
}

#[test]
fn all_slots_are_free_after_load_when_the_cluster_dies() {
    let mut cluster = Cluster::start();
    let store = cluster.store();
    load_then_fail(&store, || cluster.nodes.iter_mut().for_each(Redis::kill));
}
