//! Counting the nodes that share a Redis, with the time from the test.

use std::iter;
use std::time::Duration;

use weir::clock::Micros;
use weir::store::redis::census::{self, LIFETIME, Retention};

use crate::lua::Redis;

const START: u64 = 1_700_000_000_000;
const LIFE: u64 = LIFETIME.as_millis() as u64;
const RETENTION: Retention = Retention { lifetime: LIFETIME, max_ahead: LIFETIME };

/// The number of live nodes after one of them was heard, at some ms.
fn beat(redis: &Redis, at: u64, node: &str) -> u64 {
    names(redis, at, node, LIFETIME).len() as u64
}

/// Those that were heard in some time before that.
fn names(redis: &Redis, at: u64, node: &str, max_age: Duration) -> Vec<String> {
    let now = Micros(at * 1000 + 999);
    let report = census::report(b"nodes", Some(node), now, RETENTION, max_age);
    let (names,) = redis.ask_all(&report);
    names
}

fn leave(redis: &Redis, node: &str) -> u64 {
    let (nodes,) = redis.ask_all(&census::leave(b"nodes", iter::once(node.to_owned())));
    nodes
}

#[test]
fn a_node_counts_once_however_often_it_is_heard() {
    let redis = Redis::start();
    assert_eq!(beat(&redis, START, "one"), 1);
    assert_eq!(beat(&redis, START + 1, "other"), 2);
    assert_eq!(beat(&redis, START + 2, "one"), 2);
}

#[test]
fn a_node_counts_as_long_as_its_heartbeat_and_no_longer() {
    let redis = Redis::start();
    beat(&redis, START, "silent");
    assert_eq!(beat(&redis, START + LIFE, "one"), 2);
    assert_eq!(beat(&redis, START + LIFE + 1, "one"), 1);
}

#[test]
fn a_node_that_leaves_counts_no_more() {
    let redis = Redis::start();
    beat(&redis, START, "one");
    beat(&redis, START, "other");
    assert_eq!(leave(&redis, "one"), 1);
    assert_eq!(leave(&redis, "other"), 0);
}

#[test]
fn a_node_that_asks_for_the_others_without_a_name_is_not_put_back() {
    let redis = Redis::start();
    beat(&redis, START, "one");
    beat(&redis, START, "other");
    leave(&redis, "one");
    let asked = census::report(b"nodes", None, Micros(START * 1000), RETENTION, LIFETIME);
    let (names,): (Vec<String>,) = redis.ask_all(&asked);
    assert_eq!(names, ["other"]);
}

#[test]
fn a_node_from_before_the_clock_stepped_back_counts_no_more() {
    let redis = Redis::start();
    beat(&redis, START + 3_600_000, "dead");
    assert_eq!(beat(&redis, START, "one"), 1);
}

#[test]
fn what_was_said_ahead_of_the_clock_is_heard_only_as_far_as_that_may_be() {
    const AHEAD: u64 = 100;
    let redis = Redis::start();
    let retention = Retention { max_ahead: Duration::from_millis(AHEAD), ..RETENTION };
    let said = |at: u64, node: &str| {
        let report =
            census::report(b"nodes", Some(node), Micros(at * 1000), retention, Duration::ZERO);
        let (names,): (Vec<String>,) = redis.ask_all(&report);
        names
    };
    said(START + AHEAD, "sooner");
    assert_eq!(said(START, "one"), ["one", "sooner"]);
    said(START + AHEAD + 1, "other clock");
    assert_eq!(said(START, "one"), ["one", "sooner"]);
}

#[test]
fn who_is_missing_once_is_known_until_it_is_missing_again() {
    let names = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let both = names(&["one", "other"]);
    let forgotten = names(&["one"]);
    assert_eq!(census::joined(&forgotten, &both), both);
    assert_eq!(census::joined(&forgotten, &forgotten), forgotten);
}

#[test]
fn the_list_of_nodes_expires() {
    let redis = Redis::start();
    beat(&redis, START, "one");
    let left: i64 = redis.ask(redis::cmd("PTTL").arg("nodes"));
    assert!((1..=LIFE as i64).contains(&left), "{left}");
}

#[test]
fn nodes_are_told_that_were_heard_lately_and_the_others_kept() {
    let redis = Redis::start();
    let heard = |at, node, ms| names(&redis, START + at, node, Duration::from_millis(ms));
    assert_eq!(heard(0, "first", 0), ["first"]);
    assert_eq!(heard(100, "second", 99), ["second"]);
    assert_eq!(heard(200, "third", 100), ["second", "third"]);
    assert_eq!(heard(200, "third", 200), ["first", "second", "third"], "none was removed");
}
