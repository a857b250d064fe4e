//! A master that is replaced on demand while it lives: gateways admit nothing twice that the new
//! master does not know about.

use std::time::Duration;

use crate::support::gateway::program;
use crate::support::load::{LoadAnswer, assert_verdicts};
use crate::support::{
    Config, Load, RECOVERY, Redis, Scratch, Sentinel, Weir, get, wait_at_most, wait_until,
};

const RATE: f64 = 10.0;
const BURST: f64 = 100.0;

/// A sentinel on a busy machine may do nothing for half a minute.
const LONG: Duration = Duration::from_secs(90);
/// Announced or not, sentinels are asked once a second.
const UNANNOUNCED: Duration = Duration::from_secs(1);

fn gateway(store: &str, on_error: &str) -> Weir {
    let limit = format!("key = \"global\"\nrate = \"{RATE}/second\"\nburst = {BURST}");
    let store = format!("{store}timeout = \"300ms\"\non_error = \"{on_error}\"");
    Weir::start(&Config::echo().store(&store).limit(&limit))
}

/// By how much more passed than `burst + rate × t`.
fn excess(answers: &[LoadAnswer]) -> f64 {
    let passed = || answers.iter().filter(|it| it.status == 200);
    let begin = passed().map(|it| it.sent).min().unwrap();
    let end = passed().map(|it| it.sent + it.took).max().unwrap();
    passed().count() as f64 - BURST - RATE * (end - begin).as_secs_f64()
}

/// Two gateways under load while the sentinel `leader` replaces the master: what they answered, and
/// what they logged.
fn replace(sentinel: &Sentinel, leader: usize, on_error: &str) -> (Vec<LoadAnswer>, String) {
    let weirs = [0, 1].map(|_| gateway(&sentinel.store(), on_error));
    let load = Load::start(&weirs.each_ref().map(Weir::address), &[get("/")], 4);
    // Each knows that it has half of the limit to itself, and that nothing is left of the burst.
    wait_until("they know of each other", || weirs.iter().all(|weir| weir.nodes() == 2.0));
    load.wait_for(600);
    assert!(weirs.iter().all(|weir| !weir.degraded()));
    sentinel.failover_by(leader);
    sentinel.wait_failover();
    sentinel.wait_demotion();
    let before = sentinel.replica.script_calls();
    wait_at_most(RECOVERY, "the new master is in use", || {
        sentinel.replica.script_calls() > before + 10 && weirs.iter().all(|it| !it.degraded())
    });
    load.wait_for(600);
    let answers = load.finish();
    let logged = weirs.each_ref().map(Weir::output).concat();
    assert!(!logged.contains("lacks a right"), "{logged}");
    (answers, logged)
}

#[test]
fn no_second_burst_passes_where_a_failing_store_denies() {
    let (answers, logged) = replace(&Sentinel::start(), 0, "deny");
    let excess = excess(&answers);
    assert!(excess <= RATE * UNANNOUNCED.as_secs_f64(), "excess {excess}: {logged}");
    let odd = answers.iter().find(|it| !matches!(it.status, 200 | 429 | 503));
    assert!(odd.is_none(), "{odd:?}");
}

#[test]
fn no_second_burst_passes_where_gateways_decide_locally() {
    let (answers, logged) = replace(&Sentinel::three(), 1, "local");
    let excess = excess(&answers);
    assert!(excess <= RATE * UNANNOUNCED.as_secs_f64(), "excess {excess}: {logged}");
    assert_verdicts(&answers);
}

#[test]
fn hanging_sentinel_delays_no_request() {
    let sentinel = Sentinel::three();
    sentinel.watchers[0].stop();
    let weir = gateway(&sentinel.store(), "deny");
    assert!(!weir.degraded(), "the others have told it");
    assert_eq!(weir.get("/").status, 200);
    sentinel.failover_by(2);
    wait_at_most(LONG, "the new master is in use", || {
        weir.get("/");
        sentinel.replica.script_calls() > 5 && !weir.degraded()
    });
    sentinel.watchers[0].cont();
}

/// What `docs/redis.md` says that the user at the sentinels needs.
const RIGHTS: &[&str] = &["resetchannels", "&*", "+psubscribe", "+sentinel|master"];
const RIGHTS_OF_OLD: &[&str] = &["resetchannels", "+sentinel|get-master-addr-by-name"];

/// A gateway that the sentinels know by a user with these rights.
fn known(sentinel: &Sentinel, rights: &[&str]) -> Weir {
    for watcher in &sentinel.watchers {
        let words = [&["ACL", "SETUSER", "weir", "reset", "on", ">sesame"], rights].concat();
        watcher.ask(&words).unwrap().ok();
    }
    let login = ", username = \"weir\", password_env = \"WEIR_TEST_SESAME\"";
    let store = sentinel.store_as(&[0], login);
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1000";
    let config = Config::echo().store(&store).store("timeout = \"300ms\"").limit(limit);
    let mut command = program();
    command.env("WEIR_TEST_SESAME", "sesame");
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    Weir::start_with(command, scratch, file)
}

#[test]
fn documented_sentinel_rights_are_enough() {
    let sentinel = Sentinel::start();
    let weir = known(&sentinel, RIGHTS);
    assert_eq!(weir.get("/").status, 200);
    assert!(!weir.degraded());
    sentinel.failover();
    // Long before the old master becomes a replica.
    wait_until("it is announced", || weir.degraded());
    let master = |redis: &Redis| redis.info("replication", "role").as_deref() == Some("master");
    assert!(master(&sentinel.master), "it was not found out by a write that failed");
    wait_at_most(LONG, "the new master is in use", || !weir.degraded());
    assert!(weir.output().contains("is being replaced"), "{}", weir.output());
    assert!(!weir.output().contains("lacks a right"), "{}", weir.output());
}

#[test]
fn sentinel_user_with_minimal_rights_is_served_and_warned() {
    let sentinel = Sentinel::start();
    let weir = known(&sentinel, RIGHTS_OF_OLD);
    assert_eq!(weir.get("/").status, 200);
    assert!(!weir.degraded());
    assert_eq!(weir.output().matches("lacks a right").count(), 1, "{}", weir.output());
    sentinel.failover();
    wait_at_most(LONG, "the new master is in use", || {
        weir.get("/");
        sentinel.replica.script_calls() > 5 && !weir.degraded()
    });
}
