//! A cluster of three masters: what lies on several of them is still never given twice.

use std::time::Duration;

use crate::support::load::{FREE, assert_prompt, assert_verdicts};
use crate::support::{
    Cluster, Config, Load, RECOVERY, Weir, check_for, get, get_with, passed_at_once, wait_at_most,
    wait_until,
};

/// Redis is waited for, and a failure shows as a 503.
fn shared(cluster: &Cluster) -> Config {
    Config::echo().store(&cluster.store()).store("timeout = \"5s\"\non_error = \"deny\"")
}

fn as_user(target: &str, user: &str) -> String {
    get_with(target, &format!("X-User: {user}\r\n"))
}

#[test]
fn two_gateways_pass_exactly_the_burst() {
    let cluster = Cluster::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 50";
    let weirs = Weir::start_two(&shared(&cluster).limit(limit));
    for round in 0..6 {
        let request = as_user("/", &round.to_string());
        assert_eq!(passed_at_once(&weirs, 16, 8, &[request]), [50], "round {round}");
    }
}

#[test]
fn no_caller_chooses_a_hash_slot() {
    let cluster = Cluster::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1";
    let weir = Weir::start(&shared(&cluster).limit(limit));
    let mut client = weir.connect();
    for n in 0..40 {
        for user in [format!("{{x}}{n}"), format!("{n}{{x}}"), format!("a{{x}}b{n}")] {
            assert_eq!(client.ask(as_user("/", &user)).status, 200);
        }
    }
    let buckets = cluster.buckets();
    assert_eq!(buckets.len(), 120);
    let mut slots: Vec<u32> = buckets.iter().map(|(_, name)| cluster.slot(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(slots.len() > 100, "{} slots for 120 callers", slots.len());
    for node in 0..3 {
        assert!(buckets.iter().any(|(on, _)| *on == node), "nothing lies on {node}");
    }
}

#[test]
fn limits_in_several_hash_slots_never_admit_too_much() {
    let cluster = Cluster::start();
    let config = shared(&cluster).mix(60, 10, 50);
    let weirs = Weir::start_two(&config);
    let requests = [0, 1, 2, 3, 4, 5, 6, 7].map(|user: usize| as_user("/", &user.to_string()));
    let passed = passed_at_once(&weirs, 16, 12, &requests);
    let count: usize = passed.iter().sum();
    assert!(count <= 50, "{passed:?}");
    assert!(passed.iter().all(|it| *it <= 10), "{passed:?}");
    // What refused requests took is there again: in the end all fifty pass, and not one more.
    let mut rest = 0;
    wait_until("all have passed", || {
        let user = format!("late-{}", rest / 9);
        rest += usize::from(weirs[rest % 2].ask(as_user("/", &user)).status == 200);
        count + rest >= 50
    });
    for (n, weir) in weirs.iter().cycle().take(20).enumerate() {
        assert_eq!(weir.ask(as_user("/", &format!("last-{n}"))).status, 429);
    }
    assert_eq!(count + rest, 50);
}

#[test]
fn refusal_in_one_hash_slot_refunds_the_others() {
    let cluster = Cluster::start();
    let config = shared(&cluster)
        .open()
        .bucket("large", "header:x-user", 5)
        .bucket("small", "header:x-small", 1)
        .route("both", "/both", &["large", "small"])
        .route("small", "/small", &["small"])
        .route("large", "/large", &["large"]);
    let [one, two] = Weir::start_two(&config);
    let ask = |weir: &Weir, target: &str, n: usize| {
        let lines = format!("X-User: user-{n}\r\nX-Small: small-{n}\r\n");
        weir.ask(get_with(target, &lines)).status
    };
    for n in 0..12 {
        assert_eq!(ask(&one, "/small", n), 200);
        // The other has not seen that it is empty, and asks both slots.
        assert_eq!(ask(&two, "/both", n), 429);
        let mut passed = 0;
        wait_until("all five pass", || {
            passed += usize::from(ask(&one, "/large", n) == 200);
            passed == 5
        });
        let more = (0..5).filter(|_| ask(&two, "/large", n) == 200).count();
        assert_eq!(more, 0, "user {n}: more was given back than was taken");
    }
}

/// Moves a slot from one node to another. Something happens once it is announced, and again once its
/// keys have moved.
fn move_slot(cluster: &Cluster, slot: u32, [from, to]: [usize; 2], happens: impl Fn()) {
    cluster.begin_move(slot, from, to);
    happens();
    cluster.move_keys(slot, from, to);
    happens();
    cluster.end_move(slot, to);
}

#[test]
fn hash_slot_may_move_under_load() {
    let cluster = Cluster::start();
    let limit = "key = \"global\"\nrate = \"1/day\"\nburst = 1000";
    let weirs = Weir::start_two(&shared(&cluster).limit(limit));
    let addresses = [weirs[0].address(), weirs[1].address()];
    assert_eq!(weirs[0].get("/").status, 200);
    let buckets = cluster.buckets();
    let [(from, name)] = &buckets[..] else { panic!("one bucket: {buckets:?}") };
    let slot = cluster.slot(name);
    let load = Load::start(&addresses, &[get("/")], 2);
    let mut from = *from;
    for to in [(from + 1) % 3, (from + 2) % 3] {
        move_slot(&cluster, slot, [from, to], || load.wait_for(15));
        load.wait_for(15);
        from = to;
    }
    load.wait_for(1100);
    let answers = load.finish();
    assert_verdicts(&answers);
    let passed = answers.iter().filter(|it| it.status == 200).count();
    assert_eq!(passed, 999, "exactly what there was");
    assert_eq!(cluster.buckets(), [(from, name.clone())]);
    assert!(weirs.iter().all(|weir| !weir.degraded()));
}

#[test]
fn several_keys_of_a_moving_hash_slot_fail_no_request() {
    let cluster = Cluster::start();
    // All in one slot: while some have moved and some have not, no node can decide on all.
    let store = "prefix = \"{weir}\"\ntimeout = \"5s\"\non_error = \"local\"";
    let config = Config::echo().store(&cluster.store()).store(store).mix(500, 10_000, 100_000);
    let weir = Weir::start(&config);
    assert_eq!(weir.ask(as_user("/", "0")).status, 200);
    let buckets = cluster.buckets();
    assert_eq!(buckets.len(), 3, "{buckets:?}");
    let (from, slot) = (buckets[0].0, cluster.slot(&buckets[0].1));
    let requests: Vec<String> = (0..4).map(|n| as_user("/", &n.to_string())).collect();
    let load = Load::start(&[weir.address()], &requests, 1);
    let to = (from + 1) % 3;
    move_slot(&cluster, slot, [from, to], || load.wait_for(20));
    load.wait_for(600);
    wait_at_most(RECOVERY, "the cluster is in use again", || !weir.degraded());
    let answers = load.finish();
    assert_verdicts(&answers);
    let passed = answers.iter().filter(|it| it.status == 200).count();
    assert!(passed <= 499, "{passed} passed");
    assert!(cluster.buckets().iter().all(|(on, _)| *on == to));
}

#[test]
fn hash_slots_of_the_gateways_own_sets_may_move() {
    let cluster = Cluster::start();
    let weir = Weir::start(&shared(&cluster));
    let moves = ["weir:@nodes", "weir:@paid"].map(|name| {
        wait_until("it is there", || {
            let owner = &cluster.nodes[cluster.owner(cluster.slot(name))];
            owner.command(&["EXISTS", name]).integer() == 1
        });
        let slot = cluster.slot(name);
        let from = cluster.owner(slot);
        (slot, from, (from + 1) % 3)
    });
    for (slot, from, to) in moves {
        cluster.begin_move(slot, from, to);
        cluster.move_keys(slot, from, to);
    }
    // Some heartbeats.
    let heard = || weir.metrics().value("weir_store_errors_total", &[("reason", "cluster")]);
    check_for(Duration::from_secs(3), || {
        assert!(!weir.degraded());
        assert_eq!(heard().unwrap_or_default(), 0.0, "{}", weir.output());
    });
    moves.iter().for_each(|(slot, _, to)| cluster.end_move(*slot, *to));
    check_for(Duration::from_secs(2), || assert!(!weir.degraded()));
    assert!(!weir.output().contains("store_degraded"), "{}", weir.output());
}

#[test]
fn common_hash_tag_makes_one_call_per_request() {
    let cluster = Cluster::start();
    let store = "prefix = \"{weir}\"";
    let weir = Weir::start(&shared(&cluster).store(store).mix(60, 10, 50));
    let mut client = weir.connect();
    for n in 0..3 {
        // The first may have to bring the script.
        assert_eq!(client.ask(as_user("/", &n.to_string())).status, 200);
    }
    let monitors: Vec<_> = cluster.nodes.iter().map(|node| node.monitor()).collect();
    assert_eq!(client.ask(as_user("/", "0")).status, 200);
    let calls: Vec<_> = monitors.iter().flat_map(|it| it.take_decisions()).collect();
    assert_eq!(calls.len(), 1, "{calls:#?}");
    let buckets = cluster.buckets();
    assert!(buckets.iter().all(|(on, _)| *on == buckets[0].0), "{buckets:?}");
}

#[test]
fn dead_master_is_bypassed_and_used_again() {
    let mut cluster = Cluster::start();
    let store = format!("{}timeout = \"300ms\"\non_error = \"local\"", cluster.store());
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 20";
    let weir = Weir::start(&Config::echo().store(&store).limit(limit).also(FREE));
    let mut requests: Vec<String> = (0..8).map(|n| as_user("/", &n.to_string())).collect();
    requests.push(get("/free"));
    let load = Load::start(&[weir.address()], &requests, 1);
    load.wait_for(100);
    // One of the two configured nodes, so that it must have discovered the third.
    cluster.nodes[0].kill();
    let mut user = 100;
    let mut client = weir.connect();
    wait_until("it decides without Redis", || {
        user += 1;
        let status = client.ask(as_user("/", &user.to_string())).status;
        assert_eq!(status, 200, "a fresh caller");
        weir.degraded()
    });
    load.wait_for(200);
    cluster.nodes[0].restart();
    cluster.wait_whole();
    wait_at_most(RECOVERY, "the cluster is in use again", || !weir.degraded());
    let before = cluster.nodes[0].script_calls();
    wait_until("the third is in use again", || {
        user += 1;
        client.ask(as_user("/", &user.to_string()));
        cluster.nodes[0].script_calls() > before + 3
    });
    let answers = load.finish();
    assert_verdicts(&answers);
    assert_prompt(&answers, 8);
    for request in 0..8 {
        let of = answers.iter().filter(|it| it.request == request && it.status == 200);
        assert!(of.count() <= 40, "once, and once more where it was forgotten");
    }
}
