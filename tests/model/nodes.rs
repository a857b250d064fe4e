//! Counting the nodes that share a Redis, with the time from the test.

use weir::store::redis::script::{HEARTBEAT, Script};

use crate::lua::Redis;

const LIFETIME: u64 = 10_000;

struct Nodes {
    redis: Redis,
    script: Script,
}

impl Nodes {
    fn new() -> Self {
        let (from, to) = ("redis.call('TIME')", "{ ARGV[4], ARGV[5] }");
        assert_eq!(HEARTBEAT.text().matches(from).count(), 1);
        Self { redis: Redis::start(), script: Script::new(HEARTBEAT.text().replace(from, to)) }
    }

    /// The number of live nodes after one of them said something, at some ms.
    fn after(&self, at: u64, node: &str, what: &str) -> u64 {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.text()).arg(1).arg("nodes").arg(node).arg(LIFETIME).arg(what);
        self.redis.ask(command.arg(at / 1_000).arg(at % 1_000 * 1_000))
    }

    fn beat(&self, at: u64, node: &str) -> u64 {
        self.after(at, node, "")
    }
}

#[test]
fn a_node_counts_once_however_often_it_is_heard() {
    let nodes = Nodes::new();
    assert_eq!(nodes.beat(1_700_000_000_000, "one"), 1);
    assert_eq!(nodes.beat(1_700_000_000_001, "other"), 2);
    assert_eq!(nodes.beat(1_700_000_000_002, "one"), 2);
}

#[test]
fn a_node_counts_as_long_as_its_heartbeat_and_no_longer() {
    let nodes = Nodes::new();
    let start = 1_700_000_000_000;
    nodes.beat(start, "silent");
    assert_eq!(nodes.beat(start + LIFETIME, "one"), 2);
    assert_eq!(nodes.beat(start + LIFETIME + 1, "one"), 1);
}

#[test]
fn a_node_that_leaves_counts_no_more() {
    let nodes = Nodes::new();
    nodes.beat(1_700_000_000_000, "one");
    nodes.beat(1_700_000_000_000, "other");
    assert_eq!(nodes.after(1_700_000_000_001, "one", "leave"), 1);
    assert_eq!(nodes.after(1_700_000_000_002, "other", "leave"), 0);
}

/// The script as it is, on Redis's own clock.
#[test]
fn the_list_of_nodes_expires_and_heals() {
    let redis = Redis::start();
    redis.ask::<()>(redis::cmd("SET").arg("nodes").arg("garbage"));
    let mut command = redis::cmd("EVAL");
    let beat = command.arg(HEARTBEAT.text()).arg(1).arg("nodes").arg("one").arg(LIFETIME);
    assert_eq!(redis.ask::<u64>(beat), 1);
    let left: i64 = redis.ask(redis::cmd("PTTL").arg("nodes"));
    assert!((1..=LIFETIME as i64).contains(&left), "{left}");
}
