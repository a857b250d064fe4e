//! A cluster of three masters, whose slots can be moved step by step.

use super::ports::free_port;
use super::redis::Redis;
use super::wait_until;

const SLOTS: u32 = 16_384;

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    #[track_caller]
    pub(crate) fn start() -> Cluster {
        let nodes: Vec<Redis> = (0..3).map(|_| node()).collect();
        let share = SLOTS.div_ceil(3);
        for (n, node) in (0..).zip(&nodes) {
            let (first, last) = (n * share, ((n + 1) * share).min(SLOTS) - 1);
            let (first, last) = (first.to_string(), last.to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            // Different from the start, so that nobody has to agree on them first.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        let cluster = Cluster { nodes };
        for node in &cluster.nodes[1..] {
            let (port, bus) = (node.port().to_string(), bus_port(node).to_string());
            cluster.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        cluster.wait_whole();
        cluster
    }

    /// Waits until every node serves and knows the others.
    #[track_caller]
    pub(crate) fn wait_whole(&self) {
        wait_until("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let info = node.command(&["CLUSTER", "INFO"]).text();
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
        });
    }

    /// The lines of `[store]` that lead to it, by way of two of its nodes.
    pub(crate) fn store(&self) -> String {
        let urls: Vec<String> = self
            .nodes
            .iter()
            .take(2)
            .map(|node| format!("\"redis://{}\"", node.address()))
            .collect();
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
        let ranges = self.nodes[0].command(&["CLUSTER", "SLOTS"]);
        let range = ranges.list().iter().find(|range| {
            let range = range.list();
            (range[0].integer()..=range[1].integer()).contains(&slot)
        });
        let port = range.expect("every slot is served").list()[2].list()[1].integer();
        self.nodes.iter().position(|node| i64::from(node.port()) == port).expect("a node of ours")
    }

    /// The names of all buckets, each with the node it lies on.
    pub(crate) fn buckets(&self) -> Vec<(usize, String)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.flat_map(|(n, node)| node.buckets().into_iter().map(move |name| (n, name))).collect()
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
        for node in self.nodes.iter() {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"]).text()
    }
}

#[track_caller]
fn node() -> Redis {
    let bus = free_port().to_string();
    Redis::with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        "--cluster-port",
        &bus,
        "--cluster-announce-ip",
        "127.0.0.1",
    ])
}

fn bus_port(node: &Redis) -> i64 {
    node.command(&["CONFIG", "GET", "cluster-port"]).list()[1].integer()
}
