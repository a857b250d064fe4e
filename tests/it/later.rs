//! Charges that wait for the response, when something happens meanwhile.

use std::thread;
use std::time::Duration;

use crate::support::fault_proxy::Line;
use crate::support::{
    Client, Config, FaultProxy, Held, Home, Redis, Response, Weir, fields, get, on_each_store,
    wait_until,
};

on_each_store!(a_reload_changes_what_a_response_costs, a_limit_that_is_gone_charges_nothing);

fn left(response: &Response) -> i64 {
    fields::list(&response.all("ratelimit"))[0].integer("r")
}

/// A request that stays in flight.
#[track_caller]
fn in_flight(weir: &Weir, held: &Held, target: &str) -> Client {
    let before = held.inside();
    let mut client = weir.connect();
    client.send(get(target));
    wait_until("it is in flight", || held.inside() > before);
    client
}

/// A limit that charges every answer, and nothing else.
fn counting(rate: &str, burst: u32) -> String {
    format!("key = \"ip\"\nrate = \"{rate}\"\nburst = {burst}\ncount = \"2xx\"")
}

fn a_reload_changes_what_a_response_costs(home: &Home) {
    let held = Held::start();
    let config = |rate, burst| home.of(held.config().limit(&counting(rate, burst)));
    let weir = Weir::start(&config("1/day", 5));
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&config("10/second", 5));
    held.let_go("/held");
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
    held.let_go("/held");
    assert_eq!(left(&client.response()), 4);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(left(&weir.get("/broken")), 4, "none of it has come back");
}

fn a_limit_that_is_gone_charges_nothing(home: &Home) {
    let held = Held::start();
    let counting = counting("1/day", 5);
    let limited = home.of(held.config().limit(&counting));
    let window = counting.replace("burst = 5", "algorithm = \"fixed_window\"");
    let window = home.of(held.config().limit(&window.replace("1/day", "7/day")));
    let weir = Weir::start(&limited);
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&home.of(held.config().open()));
    held.let_go("/held");
    assert_eq!(client.response().status, 200);
    weir.reload(&limited);
    assert_eq!(left(&weir.get("/broken")), 5);
    // A changed algorithm starts afresh.
    let mut client = in_flight(&weir, &held, "/held");
    weir.reload(&window);
    held.let_go("/held");
    assert_eq!(client.response().status, 200);
    assert_eq!(left(&weir.get("/broken")), 7);
    assert_eq!(left(&weir.get("/")), 6);
    assert!(!weir.said().contains("panicked"), "{}", weir.said());
}

/// A limit that charges 40 of a thousand with every answer, over a line that can fail.
struct Lossy {
    redis: Redis,
    proxy: FaultProxy,
    held: Held,
    weir: Weir,
}

impl Lossy {
    fn start(timeout: &str) -> Lossy {
        let redis = Redis::start();
        let proxy = FaultProxy::to(redis.address());
        let held = Held::start();
        let config = Lossy::config(&held).store(&proxy.store()).server("workers = 1");
        let weir = Weir::start(&config.store(&format!("timeout = \"{timeout}\"")));
        Lossy { redis, proxy, held, weir }
    }

    fn config(held: &Held) -> Config {
        held.config().limit(
            "key = \"ip\"\nrate = \"1/day\"\nburst = 1000\n\
             cost = { from = \"response:x-cost\", default = 40, max = 100 }",
        )
    }

    /// Has the connection to Redis away, and not yet given up, as a request finds out.
    fn lose_connection(&self) -> Client {
        self.proxy.set(Line::Silent);
        self.proxy.cut();
        let mut client = self.weir.connect();
        client.send(get("/held/other"));
        wait_until("it passes all the same", || self.held.inside() == 2);
        client
    }

    /// What has been charged in Redis, once so much is.
    #[track_caller]
    fn wait_for(self, charged: i64) {
        self.proxy.set(Line::Good);
        let other = Weir::start(&Lossy::config(&self.held).store(&self.redis.store()));
        // Each look costs as much.
        let mut looks = 0;
        wait_until("it is charged", || {
            looks += 40;
            thread::sleep(Duration::from_secs(1));
            1000 - left(&other.get("/broken")) - looks == charged
        });
    }
}

#[test]
fn what_could_not_be_told_to_redis_is_charged_when_it_is_back() {
    let lossy = Lossy::start("100ms");
    let mut client = in_flight(&lossy.weir, &lossy.held, "/held");
    let mut other = lossy.lose_connection();
    lossy.held.let_go("/held");
    assert_eq!(client.response().status, 200);
    lossy.held.let_go("/held/other");
    assert_eq!(other.response().status, 200);
    lossy.wait_for(80);
}

#[test]
fn who_leaves_while_it_is_being_charged_is_charged() {
    let lossy = Lossy::start("300ms");
    let client = in_flight(&lossy.weir, &lossy.held, "/held");
    let _other = lossy.lose_connection();
    lossy.held.let_go("/held");
    wait_until("it is answered", || lossy.held.inside() == 1);
    // There is nothing to see of a charge that waits for a connection.
    thread::sleep(Duration::from_millis(100));
    client.wire.reset();
    lossy.wait_for(40);
}
