//! Requests that wait while the limits they wait for change, or others hold them up.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::places::hold;
use crate::support::upstream::ok;
use crate::support::{
    Client, Config, Held, Home, Upstream, Weir, get, on_each_store, wait_at_most, wait_until,
};

on_each_store!(
    a_raised_rate_lets_those_who_wait_pass,
    a_limit_that_is_gone_is_not_waited_for,
    a_limit_that_only_watches_is_not_waited_for,
    who_is_held_up_by_another_limit_gains_nothing,
);

fn depth(weir: &Weir) -> usize {
    weir.metrics().value("weir_queue_depth", &[]).unwrap_or(0.0) as usize
}

#[track_caller]
fn join(weir: &Weir, target: &str) -> Client {
    let before = depth(weir);
    let mut client = weir.connect();
    client.send(get(target));
    wait_until("one more waits", || depth(weir) > before);
    client
}

fn queue(rate: &str) -> String {
    format!(
        "key = \"global\"\nrate = \"{rate}\"\nburst = 1\nstrategy = \"queue\"\nmax_wait = \"10h\""
    )
}

/// Has three wait for an hour and more, reloads, and sees them pass.
#[track_caller]
fn pass_after(home: &Home, change: impl Fn(Config) -> Config) {
    let weir = Weir::start(&home.of(Config::echo().limit(&queue("1/hour"))));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting = [0; 3].map(|_| join(&weir, "/"));
    weir.reload(&home.of(change(Config::echo())));
    for client in &mut waiting {
        client.wire.set_patience(Duration::from_secs(8));
        assert_eq!(client.response().status, 200);
    }
    wait_at_most(Duration::from_secs(5), "who comes now passes", || weir.get("/").status == 200);
    wait_until("nobody waits", || depth(&weir) == 0);
}

fn a_raised_rate_lets_those_who_wait_pass(home: &Home) {
    pass_after(home, |config| config.limit(&queue("10/second")));
}

fn a_limit_that_is_gone_is_not_waited_for(home: &Home) {
    pass_after(home, Config::open);
}

fn a_limit_that_only_watches_is_not_waited_for(home: &Home) {
    pass_after(home, |config| {
        config.limit("key = \"global\"\nrate = \"1/hour\"\nburst = 1\nmode = \"shadow\"")
    });
}

const BOTH: &str = r#"
    [limits.line]
    key = "global"
    rate = "4/second"
    burst = 1
    strategy = "queue"
    max_wait = "30s"

    [limits.places]
    key = "global"
    algorithm = "concurrency"
    limit = 8
    cost = { from = "query:n", default = 1, max = 8 }
    strategy = "queue"
    max_wait = "30s"

    [[routes]]
    name = "line"
    path = "/line"
    upstream = "api"
    limits = ["line"]

    [[routes]]
    name = "places"
    path = "/held"
    upstream = "api"
    limits = ["places"]

    [[routes]]
    name = "both"
    path = "/*"
    upstream = "noting"
    limits = ["line", "places"]
"#;

fn who_is_held_up_by_another_limit_gains_nothing(home: &Home) {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrivals);
    let noting = Upstream::replying(move |_| {
        noted.lock().unwrap().push(Instant::now());
        ok("ok")
    });
    let held = Held::start();
    let upstream = format!("[upstreams.noting]\nservers = [\"http://{}\"]", noting.address());
    let config = held.config().open().routes(BOTH).also(&upstream);
    let weir = Weir::start(&home.of(config));
    // The line is one for the rate, and then all places are taken.
    assert_eq!(weir.get("/line").status, 200);
    let mut clients: Vec<Client> = (0..6).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    let mut large = hold(&weir, &held, "/held?n=8");
    std::thread::sleep(Duration::from_millis(1500));
    let before = arrivals.lock().unwrap().len();
    let freed = Instant::now();
    held.let_go("/held?n=8");
    assert_eq!(large.response().status, 200);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    let arrivals = arrivals.lock().unwrap();
    assert!(before < 3, "{before} had passed before");
    for (turn, arrived) in (0..).zip(&arrivals[before..]) {
        let earliest = Duration::from_millis(250) * turn;
        let waited = *arrived - freed + Duration::from_millis(2);
        assert!(waited >= earliest, "{turn} passed after {waited:?}");
    }
}
