//! A cluster of three masters, with a replica of each if that is wanted. Slots can be moved step by
//! step, and replicas take over within two seconds or so.

use std::time::Duration;

use super::ports::free_port;
use super::programs::redis_major;
use super::redis::Redis;
use super::resp::Reply;
use super::{wait_at_most, wait_until};

const SLOTS: u32 = 16_384;
const MASTERS: usize = 3;
/// How long a node may be silent before another takes over.
const SILENCE: Duration = Duration::from_secs(1);
/// The same where there is no replica to take over: a busy machine must not make the cluster fail.
const SILENCE_OF_MASTERS: Duration = Duration::from_secs(3);
/// A takeover is voted on, and the vote may have to be repeated.
const TAKEOVER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Cluster {
    /// The masters of the beginning, and then a replica of each, if there are replicas.
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    /// Three masters.
    #[track_caller]
    pub(crate) fn start() -> Cluster {
        Cluster::of_masters((0..MASTERS).map(|_| node(0, SILENCE_OF_MASTERS)).collect())
    }

    /// Three masters whose clocks are ahead by so many milliseconds.
    #[track_caller]
    pub(crate) fn skewed(milliseconds: [i64; MASTERS]) -> Cluster {
        Cluster::of_masters(
            milliseconds.into_iter().map(|skew| node(skew, SILENCE_OF_MASTERS)).collect(),
        )
    }

    /// Three masters, and as `nodes[3 + n]` the replica of `nodes[n]`.
    #[track_caller]
    pub(crate) fn with_replicas() -> Cluster {
        let masters = (0..MASTERS).map(|_| node(0, SILENCE)).collect();
        let mut cluster = Cluster::of_masters(masters);
        for n in 0..MASTERS {
            cluster.nodes.push(node(0, SILENCE));
            cluster.introduce(MASTERS + n);
            let (replica, master) = (&cluster.nodes[MASTERS + n], cluster.id(n));
            wait_until("the replica knows its master", || {
                replica.command(&["CLUSTER", "NODES"]).text().contains(&master)
            });
            replica.command(&["CLUSTER", "REPLICATE", &master]);
        }
        cluster.wait_whole();
        wait_until("every node knows the replicas", || {
            cluster.nodes.iter().all(|node| {
                // A replica that is known by name only is not listed.
                let ranges = node.command(&["CLUSTER", "SLOTS"]);
                ranges.list().iter().all(|range| range.list().len() == 4)
            })
        });
        for replica in &cluster.nodes[MASTERS..] {
            wait_until("the replica follows", || {
                replica.info("replication", "master_link_status").as_deref() == Some("up")
            });
        }
        cluster
    }

    #[track_caller]
    fn of_masters(nodes: Vec<Redis>) -> Cluster {
        let share = SLOTS.div_ceil(3);
        for (n, node) in (0..).zip(&nodes) {
            let slots: Vec<String> =
                (n * share..((n + 1) * share).min(SLOTS)).map(|slot| slot.to_string()).collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            node.command(&words);
            // Different from the start, so that the nodes need not agree on them first.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        let cluster = Cluster { nodes };
        (1..cluster.nodes.len()).for_each(|n| cluster.introduce(n));
        cluster.wait_whole();
        cluster
    }

    /// Has a node meet the first one, and all others by way of it.
    fn introduce(&self, n: usize) {
        let (port, bus) = (self.nodes[n].port(), bus_port(&self.nodes[n]));
        let (port, bus) = (port.to_string(), bus.to_string());
        self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }

    /// Waits until every node serves and knows the others.
    #[track_caller]
    pub(crate) fn wait_whole(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        wait_until("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let info = node.command(&["CLUSTER", "INFO"]).text();
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
    }

    /// Waits until the replica of a master that died or hangs is in its place, as all that still
    /// live see it.
    #[track_caller]
    pub(crate) fn wait_takeover(&self, gone: usize) {
        let (old, new) = (self.nodes[gone].port(), self.nodes[MASTERS + gone].port());
        wait_at_most(TAKEOVER, "the replica has taken over", || {
            let living = self.nodes.iter().enumerate().filter(|(n, _)| *n != gone);
            living.map(|(_, node)| node).all(|node| {
                let ask = |words: &[&str]| answer(node, words);
                let (Some(info), Some(ranges)) =
                    (ask(&["CLUSTER", "INFO"]), ask(&["CLUSTER", "SLOTS"]))
                else {
                    return true;
                };
                let owners: Vec<i64> =
                    ranges.list().iter().map(|it| it.list()[2].list()[1].integer()).collect();
                info.text().contains("cluster_state:ok")
                    && owners.contains(&i64::from(new))
                    && !owners.contains(&i64::from(old))
            })
        });
    }

    /// The lines of `[store]` that lead to it, by way of two of its nodes.
    pub(crate) fn store(&self) -> String {
        self.store_by(&[0, 1])
    }

    /// The same by way of these nodes.
    pub(crate) fn store_by(&self, seeds: &[usize]) -> String {
        let url = |n: &usize| format!("\"redis://{}\"", self.nodes[*n].address());
        let urls: Vec<String> = seeds.iter().map(url).collect();
        format!("kind = \"redis\"\nurl = [{}]\ncluster = true\n", urls.join(", "))
    }

    pub(crate) fn slot(&self, key: &str) -> u32 {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).integer();
        u32::try_from(slot).unwrap()
    }

    /// Which node serves a slot, as the nodes that live see it.
    #[track_caller]
    pub(crate) fn owner(&self, slot: u32) -> usize {
        let slot = i64::from(slot);
        let ranges = self.nodes.iter().find_map(|node| answer(node, &["CLUSTER", "SLOTS"]));
        let ranges = ranges.expect("a node lives");
        let range = ranges.list().iter().find(|range| {
            let range = range.list();
            (range[0].integer()..=range[1].integer()).contains(&slot)
        });
        let port = range.expect("every slot is served").list()[2].list()[1].integer();
        self.nodes.iter().position(|node| i64::from(node.port()) == port).expect("a node of ours")
    }

    /// The names of all buckets, each with the master it lies on.
    pub(crate) fn buckets(&self) -> Vec<(usize, String)> {
        let masters = self.nodes.iter().enumerate().filter(|(_, node)| {
            answer(node, &["ROLE"]).is_some_and(|role| role.list()[0].text() == "master")
        });
        masters
            .flat_map(|(n, node)| node.buckets().into_iter().map(move |name| (n, name)))
            .collect()
    }

    /// From here on the old node answers ASK for what it does not have, and TRYAGAIN for keys of
    /// which it has some.
    pub(crate) fn begin_move(&self, slot: u32, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target) = (self.id(from), self.id(to));
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves what lies in the slot.
    pub(crate) fn move_keys(&self, slot: u32, from: usize, to: usize) {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        for _ in 0..100 {
            let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            let keys: Vec<String> = keys.list().iter().map(|key| key.text()).collect();
            if keys.is_empty() {
                return;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            self.nodes[from].command(&words);
        }
        panic!("the slot {slot} never becomes empty");
    }

    /// From here on the old node answers MOVED.
    pub(crate) fn end_move(&self, slot: u32, to: usize) {
        let (slot, target) = (slot.to_string(), self.id(to));
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        // Replicas learn of it from their masters.
        for node in &self.nodes[..MASTERS] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"]).text()
    }
}

#[track_caller]
fn node(skew: i64, silence: Duration) -> Redis {
    let (bus, silence) = (free_port().to_string(), silence.as_millis().to_string());
    let mut args = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", &silence];
    args.extend(["--cluster-announce-ip", "127.0.0.1", "--repl-diskless-sync-delay", "0"]);
    // However old its data is, a replica takes over.
    args.extend(["--cluster-replica-validity-factor", "0"]);
    if redis_major() >= 7 {
        args.extend(["--cluster-port", &bus]);
    }
    if skew == 0 { Redis::with(&args) } else { Redis::skewed(&args, skew) }
}

fn bus_port(node: &Redis) -> i64 {
    // Before version 7 it could not be chosen.
    if redis_major() < 7 {
        return i64::from(node.port()) + 10_000;
    }
    node.command(&["CONFIG", "GET", "cluster-port"]).list()[1].integer()
}

/// The answer of a node, unless it is dead or hangs.
fn answer(node: &Redis, words: &[&str]) -> Option<Reply> {
    node.connect(SILENCE).and_then(|mut it| it.ask(words)).ok()
}
