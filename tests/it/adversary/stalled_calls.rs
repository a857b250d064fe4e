//! A gateway that stands still while its calls are out: what Redis has said meanwhile holds, though its
//! time was over before it was heard.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::cluster::Cluster;
use crate::support::fault_proxy::Hold;
use crate::support::{Client, Config, FaultProxy, HeldUpstream, Redis, Weir, get, wait_until};

/// What one decision may wait: long enough for a busy machine to stop the gateway within it.
const TIMEOUT: Duration = Duration::from_secs(2);

fn config(store: &str, on_error: &str) -> Config {
    let waits = format!("timeout = \"{}ms\"\non_error = \"{on_error}\"", TIMEOUT.as_millis());
    let config = Config::echo().server("workers = 1").store(store).store(&waits);
    config.limit("key = \"global\"\nrate = \"1/hour\"\nburst = 4")
}

/// Two gateways with one bucket, of which the second has been told nothing yet: what it would let pass
/// by itself is not what Redis says.
fn pair(redis: &Redis, proxy: &FaultProxy, on_error: &str) -> (Weir, Weir) {
    let [first, second] = [redis.store(), proxy.store()];
    (Weir::start(&config(&first, on_error)), Weir::start(&config(&second, on_error)))
}

/// Has a gateway stand still from before a reply reaches it until after its deadline.
fn stall_over_reply(weir: &Weir, proxy: &FaultProxy, send: impl FnOnce()) {
    proxy.hold(Hold::RepliesTo(0));
    send();
    wait_until("Redis has decided it", || proxy.holds(Hold::RepliesTo(0)));
    weir.signal(Signal::STOP);
    proxy.release(Hold::RepliesTo(0));
    std::thread::sleep(TIMEOUT + Duration::from_millis(200));
    weir.signal(Signal::CONT);
}

fn assert_undisturbed(weir: &Weir) {
    assert!(!weir.degraded());
    let late = weir.metrics().value("weir_store_errors_total", &[("reason", "timeout")]);
    assert_eq!(late.unwrap_or_default(), 0.0, "Redis has answered in time");
}

#[test]
fn a_refusal_that_was_not_heard_in_time_is_still_a_refusal() {
    for on_error in ["local", "allow", "deny"] {
        let redis = Redis::start();
        let proxy = FaultProxy::to(redis.address());
        let (other, weir) = pair(&redis, &proxy, on_error);
        let mut client = weir.connect();
        (0..4).for_each(|_| assert_eq!(other.get("/").status, 200));
        stall_over_reply(&weir, &proxy, || client.send(get("/")));
        assert_eq!(client.response().status, 429, "{on_error}");
        assert_undisturbed(&weir);
    }
}

/// On a cluster, where no call has a fence. What Redis is asked while it is held up, it answers while
/// the gateway is.
#[test]
fn a_refusal_of_a_cluster_that_was_not_heard_in_time_is_still_a_refusal() {
    let cluster = Cluster::start();
    let [other, weir] = [(); 2].map(|()| Weir::start(&config(&cluster.store(), "local")));
    let mut client = weir.connect();
    (0..4).for_each(|_| assert_eq!(other.get("/").status, 200));
    cluster.nodes.iter().for_each(Redis::stop);
    client.send(get("/"));
    // Nothing shows that the call is out. If it is not, it is made after the stall, which is no harm.
    std::thread::sleep(Duration::from_millis(100));
    weir.signal(Signal::STOP);
    cluster.nodes.iter().for_each(Redis::cont);
    std::thread::sleep(TIMEOUT + Duration::from_millis(200));
    weir.signal(Signal::CONT);
    assert_eq!(client.response().status, 429);
    assert_undisturbed(&weir);
}

#[test]
fn a_deferred_charge_that_was_not_heard_of_in_time_is_made() {
    let (redis, held) = (Redis::start(), HeldUpstream::start());
    let proxy = FaultProxy::to(redis.address());
    let waits = format!("timeout = \"{}ms\"", TIMEOUT.as_millis());
    let config = held.config().server("workers = 1").store(&proxy.store()).store(&waits);
    let weir = Weir::start(&config.limit(
        "key = \"global\"\nrate = \"1/hour\"\nburst = 4\n\
         cost = { from = \"response:x-cost\", default = 4, max = 4 }",
    ));
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it is with the upstream", || held.held_count() == 1);
    stall_over_reply(&weir, &proxy, || held.release("/held"));
    assert_eq!(client.response().status, 200);
    assert_undisturbed(&weir);
    assert_eq!(client.ask(get("/")).status, 429);
}

/// The second request waits for the call of the first, and is asked about when that is back.
#[test]
fn requests_behind_a_call_that_was_out_are_decided_by_redis() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let (other, weir) = pair(&redis, &proxy, "deny");
    let mut clients: Vec<Client> = (0..3).map(|_| weir.connect()).collect();
    (0..2).for_each(|_| assert_eq!(other.get("/").status, 200));
    let (first, behind) = clients.split_at_mut(1);
    stall_over_reply(&weir, &proxy, || {
        first[0].send(get("/"));
        wait_until("it is out", || proxy.holds(Hold::RepliesTo(0)));
        behind.iter_mut().for_each(|client| client.send(get("/")));
        // Nothing shows that they wait. If they do not yet, they come after the stall, which is no harm.
        std::thread::sleep(Duration::from_millis(100));
    });
    assert_eq!(first[0].response().status, 200);
    let mut statuses: Vec<u16> = behind.iter_mut().map(|it| it.response().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
    assert_undisturbed(&weir);
}
