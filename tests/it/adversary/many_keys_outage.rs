//! A hundred thousand keys in an outage: memory stays within `max_keys`, and when Redis is back it
//! stays in use while debts are paid.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::fault_proxy::Link;
use crate::support::{Client, Cluster, Config, FaultProxy, Redis, SetOnDrop, Weir, get_with};
use crate::support::{LONG_PATIENCE, wait_at_most, wait_until};

/// Requests that are on their way at once, on one connection.
const PIPELINED: usize = 50;

fn request(key: usize) -> String {
    get_with("/", &format!("X-Key: {key}\r\n"))
}

/// One request for each of some keys, from several sides. Says how many had a status other than 200
/// and 429.
fn ask_each(weir: &Weir, keys: std::ops::Range<usize>) -> usize {
    let (next, odd) = (AtomicUsize::new(keys.start), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = weir.connect();
                loop {
                    let first = next.fetch_add(PIPELINED, Ordering::Relaxed);
                    if first >= keys.end {
                        break;
                    }
                    odd.fetch_add(ask_some(&mut client, first), Ordering::Relaxed);
                }
            });
        }
    });
    odd.into_inner()
}

fn ask_some(client: &mut Client, first: usize) -> usize {
    client.send((first..first + PIPELINED).map(request).collect::<String>());
    let answers = (0..PIPELINED).map(|_| client.response().status);
    answers.filter(|status| !matches!(status, 200 | 429)).count()
}

/// How often it has begun to decide without Redis.
fn outages(weir: &Weir) -> usize {
    weir.output().matches("\"event\":\"store_degraded\"").count()
}

fn calls(weir: &Weir) -> f64 {
    weir.metrics().value("weir_store_calls_total", &[]).unwrap_or(0.0)
}

/// Calls that were not answered in time.
fn timeouts(weir: &Weir) -> f64 {
    weir.metrics().value("weir_store_errors_total", &[("reason", "timeout")]).unwrap_or(0.0)
}

#[track_caller]
fn fail(weir: &Weir, fail: impl FnOnce()) {
    fail();
    wait_until("it decides without Redis", || {
        let _ = weir.ask(request(0));
        weir.degraded()
    });
}

#[test]
fn memory_in_an_outage_is_bounded_for_any_keys() {
    const KEYS: usize = 100_000;
    let mut redis = Redis::start();
    let slots = "key = \"header:x-key\"\nalgorithm = \"concurrency\"\nlimit = 5";
    let config = Config::echo()
        .open()
        .store(&redis.store())
        .add_limit("slots", slots)
        .add_limit("spent", "key = \"header:x-key\"\nrate = \"1000/hour\"\nburst = 1000")
        .route("all", "/*", &["slots", "spent"]);
    let config = config.store("timeout = \"1s\"\nmax_keys = 1000\non_error = \"local\"");
    let weir = Weir::start(&config);
    assert_eq!(ask_each(&weir, 0..2_000), 0);
    fail(&weir, || redis.kill());
    // The table is full from here on.
    ask_each(&weir, 0..5_000);
    let before = weir.peak_memory();
    assert_eq!(ask_each(&weir, 5_000..KEYS), 0);
    // The kernel keeps this count by and large, and it may even shrink.
    let grown = weir.peak_memory().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more for {KEYS} keys");
    redis.restart();
    wait_at_most(LONG_PATIENCE, "it is back", || !weir.degraded());
    let before = calls(&weir);
    assert_eq!(ask_each(&weir, 0..5_000), 0);
    assert!(calls(&weir) > before, "Redis is asked");
    assert_eq!(outages(&weir), 1, "and stays back");
    let warnings = weir.output().matches("max_keys has room").count();
    assert_eq!(warnings, 1, "of what could not be written down");
}

/// Each of many keys spends one of two in an outage, and more come while that is paid: nobody waits
/// for it, and then it is charged.
fn owe_for_many_keys(store: &str, keys: usize, go: impl FnOnce(), come_back: impl FnOnce()) {
    let config = Config::echo().limit("key = \"header:x-key\"\nrate = \"1/day\"\nburst = 2");
    let config = config.store(store).store("timeout = \"300ms\"\non_error = \"local\"");
    let weir = Weir::start(&config);
    fail(&weir, go);
    assert_eq!(ask_each(&weir, 1..keys), 0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = SetOnDrop(&over);
        for side in 1..=4 {
            let (over, weir) = (&over, &weir);
            scope.spawn(move || {
                let mut client = weir.connect();
                for key in (side * 100_000_000..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    let status = client.ask(request(key)).status;
                    assert_eq!(status, 200, "a key of its own");
                    // More than a call has, and not more than can be paid.
                    if key % 10 == 0 {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let late = timeouts(&weir);
        come_back();
        wait_at_most(LONG_PATIENCE, "it is back", || !weir.degraded());
        let before = calls(&weir);
        wait_until("Redis is asked", || calls(&weir) > before + 100.0);
        drop(end);
        // A busy machine may make some late. If requests waited for all that is paid, each would be.
        let (late, made) = (timeouts(&weir) - late, calls(&weir) - before);
        assert!(late < 4.0 + made / 10.0, "{late} of {made} calls waited in vain");
    });
    assert_eq!(outages(&weir), 1, "once it is back it stays back");
    for key in (1..keys).step_by(keys / 100) {
        let statuses = [0; 2].map(|_| weir.ask(request(key)).status);
        assert_eq!(statuses, [200, 429], "{key} has spent one");
    }
}

#[test]
fn debts_of_a_hundred_thousand_keys_are_paid() {
    let redis = RefCell::new(Redis::start());
    let store = redis.borrow().store();
    let (kill, restart) = (|| redis.borrow_mut().kill(), || redis.borrow_mut().restart());
    owe_for_many_keys(&store, 100_000, kill, restart);
}

/// So slowly that as much as there was comes on top of it.
#[test]
fn debts_are_paid_over_a_slow_connection_while_others_are_served() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let go = || {
        proxy.set(Link::Refusing);
        proxy.cut();
    };
    let come_back = || proxy.set(Link::Slow(Duration::from_millis(50)));
    owe_for_many_keys(&proxy.store(), 15_000, go, come_back);
}

#[test]
fn debts_to_a_cluster_are_paid_while_others_are_served() {
    let cluster = Cluster::start();
    let nodes = || cluster.nodes.iter();
    let (stop, go_on) = (|| nodes().for_each(Redis::stop), || nodes().for_each(Redis::cont));
    owe_for_many_keys(&cluster.store(), 10_000, stop, go_on);
}

/// A master that runs no script and answers everything else, until that is ended.
fn pause(node: &Redis) {
    node.command(&["CLIENT", "PAUSE", "600000", "WRITE"]);
}

/// Payments that a master of a cluster was sent and never made are made again: no key has more than
/// its two.
#[test]
fn debts_to_a_cluster_survive_calls_that_are_lost() {
    const KEYS: usize = 10_001;
    let cluster = Cluster::start();
    let [losing, ..] = &cluster.nodes[..] else { unreachable!("it has three masters") };
    let config = Config::echo().limit("key = \"header:x-key\"\nrate = \"1/day\"\nburst = 2");
    let store = format!("{}timeout = \"300ms\"\non_error = \"local\"", cluster.store());
    let weir = Weir::start(&config.store(&store));
    fail(&weir, || cluster.nodes.iter().for_each(pause));
    assert_eq!(ask_each(&weir, 1..KEYS), 0);
    let before = losing.script_calls();
    let resume = |node: &Redis| _ = node.command(&["CLIENT", "UNPAUSE"]);
    cluster.nodes.iter().for_each(resume);
    wait_at_most(LONG_PATIENCE, "debts are being paid", || losing.script_calls() > before + 100);
    let late = timeouts(&weir);
    pause(losing);
    wait_at_most(LONG_PATIENCE, "payments get no answer", || timeouts(&weir) > late);
    losing.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    resume(losing);
    wait_at_most(LONG_PATIENCE, "it is back", || !weir.degraded());
    // The workers' connections to that master were lost as well: until they have others, some
    // requests are decided without it.
    let asked = losing.script_calls();
    let mut others = 200_000_000..;
    wait_at_most(LONG_PATIENCE, "every worker asks it again", || {
        others.by_ref().take(100).for_each(|key| _ = weir.ask(request(key)));
        losing.script_calls() > asked + 100
    });
    let mut client = weir.connect();
    let excess: Vec<usize> = (1..KEYS)
        .filter(|key| {
            client.send(request(*key).repeat(2));
            [0; 2].map(|_| client.response().status) != [200, 429]
        })
        .collect();
    assert!(excess.is_empty(), "{} keys have not spent one: {excess:?}", excess.len());
}
