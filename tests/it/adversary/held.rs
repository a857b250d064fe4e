//! Ten thousand held slots: no decision waits for their renewal, no lease lapses, no breaker trips.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::fault_proxy::Line;
use crate::support::places::is_answered;
use crate::support::{Client, Cluster, Config, FaultProxy, Load, Redis, Weir, get, get_with};
use crate::support::{wait_at_most, wait_until};

const LEASE: Duration = Duration::from_secs(10);
/// Each holds a slot of every one of the limits, in a bucket of its own.
const CALLERS: usize = 2_500;
const LIMITS: usize = 4;

/// `/held` takes a slot of four limits, `/other` asks a limit that has nothing to do with them.
fn config() -> Config {
    let mut tables = String::new();
    for limit in 0..LIMITS {
        tables += &format!(
            "[limits.slots-{limit}]\nkey = \"header:x-caller\"\nalgorithm = \"concurrency\"\n\
             limit = 1\n\n"
        );
    }
    tables += r#"
        [limits.other]
        key = "global"
        rate = "1000000/second"

        [[routes]]
        name = "held"
        path = "/held"
        upstream = "echo"
        limits = ["slots-0", "slots-1", "slots-2", "slots-3"]

        [[routes]]
        name = "other"
        path = "/other"
        upstream = "echo"
        limits = ["other"]
    "#;
    Config::echo().open().routes(&tables).server("workers = 2\nrequest_timeout = \"60s\"")
}

/// A request that is in flight until its body comes.
fn hold(weir: &Weir, caller: usize) -> Client {
    let mut client = weir.connect();
    client.send(format!(
        "POST /held HTTP/1.1\r\nHost: weir.test\r\nX-Caller: {caller}\r\nContent-Length: 1\r\n\r\n"
    ));
    client
}

fn admitted(weir: &Weir) -> f64 {
    let labels = [("limit", "slots-3"), ("outcome", "allowed")];
    weir.metrics().value("weir_decisions_total", &labels).unwrap_or(0.0)
}

/// The statuses of some of those whose slots are held.
fn statuses(weir: &Weir) -> Vec<u16> {
    let mut client = weir.connect();
    let some = (0..CALLERS).step_by(5);
    some.map(|it| client.ask(get_with("/held", &format!("X-Caller: {it}\r\n"))).status).collect()
}

/// Holds them for longer than a lease beside other requests, while the store is slow.
fn hold_ten_thousand(store: &str, set_slow: impl Fn(bool)) {
    let weir = Weir::start(&config().store(store).store("on_error = \"deny\""));
    let mut clients = Vec::new();
    while clients.len() < CALLERS {
        let so_far = clients.len();
        clients.extend((so_far..so_far + 250).map(|caller| hold(&weir, caller)));
        wait_until("they are in flight", || {
            // A machine that stands still for as long as decisions may take makes them fail.
            let answered = clients.iter_mut().enumerate().skip(so_far);
            for (caller, client) in answered.filter(|(_, client)| is_answered(client)) {
                assert_eq!(client.response().status, 503);
                *client = hold(&weir, caller);
            }
            admitted(&weir) == clients.len() as f64
        });
    }
    set_slow(true);
    let load = Load::start(&[weir.address()], &[get("/other")], 2);
    let begin = Instant::now();
    while begin.elapsed() < LEASE + LEASE / 2 {
        assert!(!weir.degraded(), "after {:?}", begin.elapsed());
        thread::sleep(Duration::from_millis(100));
    }
    let answers = load.finish();
    let refused: Vec<_> = answers.iter().filter(|it| it.status != 200).collect();
    assert!(refused.is_empty(), "{} of {}: {:?}", refused.len(), answers.len(), refused[0]);
    set_slow(false);
    assert_eq!(statuses(&weir), [429; CALLERS / 5], "a slot is held, and given to another");
    assert!(!weir.degraded());
    drop(clients);
    wait_at_most(LEASE, "all slots are free", || statuses(&weir).iter().all(|it| *it == 200));
}

#[test]
fn ten_thousand_held_slots_are_kept_and_nobody_notices() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    hold_ten_thousand(&format!("{}timeout = \"1s\"", proxy.store()), |slow| {
        proxy.set(if slow { Line::Slow(Duration::from_millis(50)) } else { Line::Good });
    });
}

#[test]
fn ten_thousand_slots_that_a_cluster_holds_are_kept_and_nobody_notices() {
    let cluster = Cluster::start();
    hold_ten_thousand(&format!("{}timeout = \"1s\"", cluster.store()), |_| {});
}
