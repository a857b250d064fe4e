//! Deferred charges: what happens between the admission of a request and its response.

use std::thread;
use std::time::Duration;

use crate::support::fault_proxy::Link;
use crate::support::{
    Client, Config, FaultProxy, HeldUpstream, Redis, Response, TestStore, Weir, check_for, fields,
    get, on_each_store, wait_until,
};

on_each_store!(a_reload_changes_what_a_response_costs, removed_limit_charges_nothing);

fn left(response: &Response) -> i64 {
    fields::list(&response.all("ratelimit"))[0].integer("r")
}

/// A request that stays in flight.
#[track_caller]
fn in_flight(weir: &Weir, held: &HeldUpstream, target: &str) -> Client {
    let before = held.held_count();
    let mut client = weir.connect();
    client.send(get(target));
    wait_until("it is in flight", || held.held_count() > before);
    client
}

/// A limit that charges every answer, and nothing else.
fn counting(rate: &str, burst: u32) -> String {
    format!("key = \"ip\"\nrate = \"{rate}\"\nburst = {burst}\ncount = \"2xx\"")
}

fn a_reload_changes_what_a_response_costs(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let config = |rate, burst| test_store.configure(held.config().limit(&counting(rate, burst)));
    let weir = Weir::start(&config("1/day", 5));
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&config("10/second", 5));
    held.release("/held");
    assert_eq!(left(&client.response()), 4);
    // One takes a tenth of a second to come back, and no longer a day.
    wait_until("it is paid off", || {
        let response = weir.get("/broken");
        assert_eq!(response.status, 502);
        left(&response) == 5
    });
    // And the other way round.
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&config("1/day", 5));
    held.release("/held");
    assert_eq!(left(&client.response()), 4);
    check_for(Duration::from_millis(300), || {
        assert_eq!(left(&weir.get("/broken")), 4, "none of it has come back");
    });
}

fn removed_limit_charges_nothing(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let counting = counting("1/day", 5);
    let limited = test_store.configure(held.config().limit(&counting));
    let window = counting.replace("burst = 5", "algorithm = \"fixed_window\"");
    let window = test_store.configure(held.config().limit(&window.replace("1/day", "7/day")));
    let weir = Weir::start(&limited);
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&test_store.configure(held.config().open()));
    held.release("/held");
    assert_eq!(client.response().status, 200);
    weir.reload(&limited);
    assert_eq!(left(&weir.get("/broken")), 5);
    // A changed algorithm starts afresh.
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&window);
    held.release("/held");
    assert_eq!(client.response().status, 200);
    assert_eq!(left(&weir.get("/broken")), 7);
    assert_eq!(left(&weir.get("/")), 6);
    assert!(!weir.output().contains("panicked"), "{}", weir.output());
}

/// A limit that charges 40 of a thousand with every answer, over a connection that can fail.
struct LossyStore {
    redis: Redis,
    proxy: FaultProxy,
    held: HeldUpstream,
    weir: Weir,
}

impl LossyStore {
    fn start(timeout: &str) -> LossyStore {
        let redis = Redis::start();
        let proxy = FaultProxy::to(redis.address());
        let held = HeldUpstream::start();
        let config = LossyStore::config(&held).store(&proxy.store()).server("workers = 1");
        let weir = Weir::start(&config.store(&format!("timeout = \"{timeout}\"")));
        LossyStore { redis, proxy, held, weir }
    }

    fn config(held: &HeldUpstream) -> Config {
        held.config().limit(
            "key = \"ip\"\nrate = \"1/day\"\nburst = 1000\n\
             cost = { from = \"response:x-cost\", default = 40, max = 100 }",
        )
    }

    /// Has the connection to Redis away, and not yet given up, as a request finds out.
    fn lose_connection(&self) -> Client {
        self.proxy.set(Link::Silent);
        self.proxy.cut();
        let mut client = self.weir.connect();
        client.send(get("/held/other"));
        wait_until("it passes all the same", || self.held.held_count() == 2);
        client
    }

    /// What has been charged in Redis, once so much is.
    #[track_caller]
    fn wait_for(self, charged: i64) {
        self.proxy.set(Link::Good);
        let other = Weir::start(&LossyStore::config(&self.held).store(&self.redis.store()));
        // Each poll costs as much again, so there can be few of them.
        let mut polls = 0;
        wait_until("it is charged", || {
            polls += 40;
            thread::sleep(Duration::from_secs(1));
            1000 - left(&other.get("/broken")) - polls == charged
        });
    }
}

#[test]
fn deferred_charge_missed_by_redis_is_made_when_it_is_back() {
    let lossy = LossyStore::start("100ms");
    let mut client = in_flight(&lossy.weir, &lossy.held, "/held");
    let mut other = lossy.lose_connection();
    lossy.held.release("/held");
    assert_eq!(client.response().status, 200);
    lossy.held.release("/held/other");
    assert_eq!(other.response().status, 200);
    lossy.wait_for(80);
}

#[test]
fn client_that_leaves_while_being_charged_is_charged() {
    let lossy = LossyStore::start("300ms");
    let client = in_flight(&lossy.weir, &lossy.held, "/held");
    let _other = lossy.lose_connection();
    lossy.held.release("/held");
    wait_until("it is answered", || lossy.held.held_count() == 1);
    // A charge that waits for a connection shows nowhere, so there is no condition to wait for.
    thread::sleep(Duration::from_millis(100));
    client.wire.reset();
    lossy.wait_for(40);
}
