//! Masters of a cluster that die and are replaced by replicas: the gateways find them, whichever
//! nodes are configured.

use std::time::Duration;

use crate::support::{Cluster, Config, RECOVERY, Weir, get_with, wait_at_most, wait_until};

fn gateway(store: &str) -> Weir {
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 3";
    let store = format!("{store}timeout = \"300ms\"\non_error = \"local\"");
    Weir::start(&Config::echo().store(&store).limit(limit))
}

/// Waits until the cluster is in use again, and the new master decides, by asking for callers that
/// nobody has asked for. A gateway that finds it at once never decided without Redis.
#[track_caller]
fn wait_in_use(weir: &Weir, cluster: &Cluster, master: usize) {
    let before = cluster.nodes[master].script_calls();
    let mut user = 0;
    wait_at_most(RECOVERY, "the new master decides", || {
        user += 1;
        let request = get_with("/", &format!("X-User: {master}-{}-{user}\r\n", weir.address()));
        assert_eq!(weir.ask(request).status, 200);
        !weir.degraded() && cluster.nodes[master].script_calls() > before + 5
    });
}

#[test]
fn only_configured_node_may_die() {
    let mut cluster = Cluster::with_replicas();
    let weirs = [0, 1].map(|_| gateway(&cluster.store_by(&[0])));
    assert!(weirs.iter().all(|weir| !weir.degraded()));
    cluster.nodes[0].kill();
    cluster.wait_takeover(0);
    weirs.iter().for_each(|weir| wait_in_use(weir, &cluster, 3));
}

#[test]
fn hanging_nodes_delay_no_request() {
    let cluster = Cluster::with_replicas();
    let weir = gateway(&cluster.store_by(&[0]));
    assert!(!weir.degraded());
    // The seed takes connections and does not answer, and so do two of the nodes it named.
    for hanging in [4, 5, 0] {
        cluster.nodes[hanging].stop();
    }
    wait_until("it decides without Redis", || weir.degraded());
    cluster.wait_takeover(0);
    wait_in_use(&weir, &cluster, 3);
}

#[test]
fn master_that_returns_as_a_replica_is_not_used_as_master() {
    let mut cluster = Cluster::with_replicas();
    let weir = gateway(&cluster.store_by(&[0]));
    assert!(!weir.degraded());
    // It still takes itself for a master when it goes on, and answers every client.
    cluster.nodes[0].stop();
    cluster.wait_takeover(0);
    cluster.nodes[0].cont();
    wait_in_use(&weir, &cluster, 3);
    // And the other way round, from the one that was a replica when the gateway started.
    cluster.wait_whole();
    wait_until("the old master follows", || {
        cluster.nodes[0].info("replication", "master_link_status").as_deref() == Some("up")
    });
    cluster.nodes[3].kill();
    wait_at_most(Duration::from_secs(60), "the old master is a master again", || {
        let of = |words| cluster.nodes[0].command(words).text();
        of(&["ROLE"]).starts_with("master") && of(&["CLUSTER", "INFO"]).contains("state:ok")
    });
    wait_in_use(&weir, &cluster, 0);
}
