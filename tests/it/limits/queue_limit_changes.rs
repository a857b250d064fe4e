//! Queued requests whose limits change meanwhile, or that another limit holds up.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::queues::{join_queue, queue_depth};
use crate::support::slots::{concurrency_limit, hold};
use crate::support::upstream::ok;
use crate::support::{
    Client, Config, HeldUpstream, TestStore, Upstream, Weir, get, on_each_store, wait_at_most,
    wait_until,
};

on_each_store!(
    raised_rate_admits_queued_requests,
    removed_limit_is_not_waited_for,
    shadow_limit_is_not_waited_for,
    request_held_up_by_another_limit_gains_nothing,
);

fn queue(rate: &str) -> String {
    format!(
        "key = \"global\"\nrate = \"{rate}\"\nburst = 1\nstrategy = \"queue\"\nmax_wait = \"10h\""
    )
}

/// Has three wait for an hour and more, reloads, and sees them pass.
#[track_caller]
fn pass_after(test_store: &TestStore, change: impl Fn(Config) -> Config) {
    let weir = Weir::start(&test_store.configure(Config::echo().limit(&queue("1/hour"))));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting = [0; 3].map(|_| join_queue(&weir, &get("/")));
    weir.reload(&test_store.configure(change(Config::echo())));
    for client in &mut waiting {
        client.wire.set_patience(Duration::from_secs(8));
        assert_eq!(client.response().status, 200);
    }
    wait_at_most(Duration::from_secs(5), "a new request passes", || weir.get("/").status == 200);
    wait_until("nobody waits", || queue_depth(&weir) == 0);
}

fn raised_rate_admits_queued_requests(test_store: &TestStore) {
    pass_after(test_store, |config| config.limit(&queue("10/second")));
}

fn removed_limit_is_not_waited_for(test_store: &TestStore) {
    pass_after(test_store, Config::open);
}

fn shadow_limit_is_not_waited_for(test_store: &TestStore) {
    pass_after(test_store, |config| {
        config.limit("key = \"global\"\nrate = \"1/hour\"\nburst = 1\nmode = \"shadow\"")
    });
}

/// A rate to queue for, slots to queue for, and on all other paths both, to another upstream.
fn queued_for_both(held: &HeldUpstream, noting: &Upstream) -> Config {
    let queued = "key = \"global\"\nrate = \"4/second\"\nburst = 1\nstrategy = \"queue\"\n\
        max_wait = \"30s\"";
    let slots = concurrency_limit(8)
        + "\ncost = { from = \"query:n\", default = 1, max = 8 }\nstrategy = \"queue\"\n\
           max_wait = \"30s\"";
    let both = format!(
        "[upstreams.noting]\nservers = [\"http://{}\"]\n[[routes]]\nname = \"both\"\n\
         path = \"/*\"\nupstream = \"noting\"\nlimits = [\"queued\", \"slots\"]",
        noting.address()
    );
    held.config()
        .open()
        .add_limit("queued", queued)
        .add_limit("slots", &slots)
        .route("queued", "/queued", &["queued"])
        .route("slots", "/held", &["slots"])
        .also(&both)
}

fn request_held_up_by_another_limit_gains_nothing(test_store: &TestStore) {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrivals);
    let noting = Upstream::replying(move |_| {
        noted.lock().unwrap().push(Instant::now());
        ok("ok")
    });
    let held = HeldUpstream::start();
    let weir = Weir::start(&test_store.configure(queued_for_both(&held, &noting)));
    // The requests queue for the rate first, and then all slots are taken.
    assert_eq!(weir.get("/queued").status, 200);
    let mut clients: Vec<Client> = (0..6).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    let mut large = hold(&weir, &held, "/held?n=8");
    // Time has to pass while they are held up: it must not be worth anything to them.
    std::thread::sleep(Duration::from_millis(1500));
    let before = arrivals.lock().unwrap().len();
    let freed = Instant::now();
    held.release("/held?n=8");
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
