//! A cluster whose masters' clocks differ by hours: each bucket is judged by the clock of its own
//! master, also while Redis is away.

use std::time::Duration;

use crate::support::{Cluster, Config, RECOVERY, Weir, get_with, wait_at_most, wait_until};

/// Long enough that an empty bucket looks full to a clock that is so far ahead.
const TEN_HOURS: i64 = 36_000_000;
const BURST: usize = 5;
/// So many that each master has some of their buckets.
const USERS: usize = 24;

fn skewed() -> Cluster {
    Cluster::skewed([0, TEN_HOURS, -TEN_HOURS])
}

fn gateway(cluster: &Cluster) -> Weir {
    let limit = format!("key = \"header:x-user\"\nrate = \"1/hour\"\nburst = {BURST}");
    let store = format!("{}timeout = \"500ms\"\non_error = \"local\"", cluster.store());
    Weir::start(&Config::echo().store(&store).limit(&limit))
}

/// How many of so many requests of each user pass.
#[track_caller]
fn passed(weir: &Weir, users: &str, each: usize) -> Vec<usize> {
    let mut client = weir.connect();
    let mut pass = |user: usize| {
        let request = get_with("/", &format!("X-User: {users}-{user}\r\n"));
        (0..each).filter(|_| client.ask(&request).status == 200).count()
    };
    (0..USERS).map(&mut pass).collect()
}

#[track_caller]
fn assert_on_all_masters(cluster: &Cluster) {
    let buckets = cluster.buckets();
    for node in 0..3 {
        assert!(buckets.iter().any(|(on, _)| *on == node), "nothing lies on {node}");
    }
}

/// Asks for new users until the last that was heard from is this node.
#[track_caller]
fn hear_last(cluster: &Cluster, node: usize, weir: &Weir) {
    let lies_there = || cluster.buckets().iter().filter(|(on, _)| *on == node).count();
    let mut user = 0;
    wait_until("the node has told of a bucket", || {
        let before = lies_there();
        user += 1;
        weir.ask(get_with("/", &format!("X-User: last-{before}-{user}\r\n")));
        lies_there() > before
    });
}

/// Does something while a master hangs, and the gateway decides by itself.
#[track_caller]
fn while_one_hangs(cluster: &Cluster, hanging: usize, weir: &Weir, act: impl FnOnce()) {
    cluster.nodes[hanging].stop();
    wait_until("it decides without Redis", || weir.degraded());
    act();
    assert!(weir.degraded(), "Redis was away all the time");
    cluster.nodes[hanging].cont();
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
}

#[test]
fn empty_buckets_of_all_masters_stay_empty_without_redis() {
    let cluster = skewed();
    let weir = gateway(&cluster);
    assert_eq!(passed(&weir, "user", BURST), [BURST; USERS]);
    assert_on_all_masters(&cluster);
    for hanging in 0..3 {
        hear_last(&cluster, 1, &weir);
        while_one_hangs(&cluster, hanging, &weir, || {
            assert_eq!(passed(&weir, "user", 2), [0; USERS], "while {hanging} hangs");
        });
        assert_eq!(passed(&weir, "user", 1), [0; USERS], "after {hanging} hung");
    }
}

#[test]
fn what_passes_without_redis_is_charged_on_all_masters() {
    let cluster = skewed();
    let weir = gateway(&cluster);
    assert_eq!(passed(&weir, "known", 2), [2; USERS]);
    assert_on_all_masters(&cluster);
    while_one_hangs(&cluster, 1, &weir, || {
        assert_eq!(passed(&weir, "known", BURST), [BURST - 2; USERS]);
        assert_eq!(passed(&weir, "new", BURST + 1), [BURST; USERS]);
    });
    // It knows nothing but what lies in Redis.
    let other = gateway(&cluster);
    for users in ["known", "new"] {
        assert_eq!(passed(&other, users, 1), [0; USERS], "{users}");
    }
}

#[test]
fn clock_of_a_master_that_was_promoted_is_heard_though_nobody_asks_it_for_a_bucket() {
    let cluster = Cluster::with_replicas();
    // What gateways ask of each other is asked of one master then, too.
    let store = format!("{}prefix = \"{{weir}}\"", cluster.store());
    let weir = Weir::start(&Config::echo().store(&store));
    let asked = cluster.owner(cluster.slot("{weir}"));
    let replica = 3 + (asked + 1) % 3;
    let redis = &cluster.nodes[replica];
    redis.command(&["CLUSTER", "FAILOVER"]);
    wait_until("it is the master", || {
        redis.command(&["ROLE"]).list().first().is_some_and(|it| it.text() == "master")
    });
    redis.command(&["CONFIG", "RESETSTAT"]);
    wait_at_most(Duration::from_secs(30), "its clock is heard", || {
        redis.info("commandstats", "cmdstat_time").is_some()
    });
    assert!(!weir.degraded());
}
