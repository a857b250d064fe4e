//! Replies that two workers hear in another order than Redis gave them: an outage begins with what is
//! left, and not with what was left before the last of them. And replies that come in an outage.

use std::time::Duration;

use crate::support::fault_proxy::{Hold, Link};
use crate::support::{Client, Config, FaultProxy, Redis, Weir, get, wait_until};

/// What one decision may wait: long enough for a busy machine to do all that happens within it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to each of two workers.
fn client_of_each_worker(weir: &Weir, proxy: &FaultProxy) -> [Client; 2] {
    let (mut clients, mut asked) = ([None, None], 0);
    wait_until("both workers are connected to", || {
        let mut client = weir.connect();
        asked += 1;
        assert_eq!(client.ask(get(&format!("/?k={asked}"))).status, 200);
        let worker = proxy.last_worker().expect("a call that decides");
        clients[worker] = Some(client);
        clients.iter().all(Option::is_some)
    });
    clients.map(Option::unwrap)
}

/// The call of the second worker is on its way for longer than it may, and its request passes without
/// Redis. Redis decides it after one of the first worker, whose reply is heard last.
#[test]
fn a_reply_from_before_a_late_one_does_not_hide_what_that_was_charged() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", TIMEOUT.as_millis());
    let config = Config::echo().store(&proxy.store()).store(&waits);
    let config = config.limit("key = \"query:k\"\nrate = \"1/hour\"\nburst = 2");
    let weir = Weir::start(&config.server("workers = 2"));
    let [mut in_time, mut late] = client_of_each_worker(&weir, &proxy);
    proxy.hold(Hold::CallsOf(1));
    assert_eq!(late.ask(get("/?k=a")).status, 200, "it passes when its time is over");
    assert!(proxy.holds(Hold::CallsOf(1)));
    proxy.hold(Hold::RepliesTo(0));
    in_time.send(get("/?k=a"));
    wait_until("Redis has decided it", || proxy.holds(Hold::RepliesTo(0)));
    proxy.release(Hold::CallsOf(1));
    assert_eq!(late.ask(get("/?k=b")).status, 200, "its reply comes after the late one");
    proxy.release(Hold::RepliesTo(0));
    assert_eq!(in_time.response().status, 200);
    assert!(!weir.degraded());
    proxy.set(Link::Refusing);
    proxy.cut();
    wait_until("the gateway decides without Redis", || weir.degraded());
    assert_eq!(in_time.ask(get("/?k=a")).status, 429, "two have passed");
    assert_eq!(in_time.ask(get("/?k=b")).status, 200, "one has passed");
    assert_eq!(in_time.ask(get("/?k=b")).status, 429);
}

/// Two gateways that find out by their heartbeats that Redis hangs, while a call of each has time left.
/// Redis goes on before that is over.
#[test]
fn a_reply_in_an_outage_gives_back_nothing_of_a_share() {
    const BURST: usize = 40;
    let redis = Redis::start();
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", TIMEOUT.as_millis());
    let config = Config::echo().store(&redis.store()).store(&waits).server("workers = 1");
    let config = config.limit(&format!("key = \"global\"\nrate = \"1/day\"\nburst = {BURST}"));
    let weirs = [0, 1].map(|_| Weir::start(&config));
    wait_until("they know of each other", || weirs.iter().all(|weir| weir.nodes() == 2.0));
    let mut waiting = weirs.each_ref().map(Weir::connect);
    let mut others = weirs.each_ref().map(Weir::connect);
    let mut passed = 0;
    redis.stop();
    waiting.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("they decide by themselves", || weirs.iter().all(Weir::degraded));
    for client in &mut others {
        passed += (0..15).filter(|_| client.ask(get("/")).status == 200).count();
    }
    assert_eq!(passed, 30, "a share has room for 20, and one may be charged already");
    redis.cont();
    for (client, other) in waiting.iter_mut().zip(&mut others) {
        passed += usize::from(client.response().status == 200);
        passed += (0..BURST).filter(|_| other.ask(get("/")).status == 200).count();
    }
    wait_until("Redis decides again", || !weirs.iter().any(Weir::degraded));
    for client in &mut others {
        passed += (0..BURST).filter(|_| client.ask(get("/")).status == 200).count();
    }
    assert!(passed <= BURST, "{passed} have passed");
}
