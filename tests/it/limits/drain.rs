//! A gateway that drains or restarts while requests are queued, hold slots or are paced.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::queues::queue_depth;
use crate::support::slots::{assert_exact_slots, concurrency_limit, free_slots, hold};
use crate::support::{
    Client, Config, HeldUpstream, TestStore, Weir, get, on_each_store, wait_at_most, wait_until,
};

on_each_store!(
    drain_serves_requests_paced_by_a_leaky_bucket,
    drain_refuses_queued_requests_and_serves_those_with_a_slot,
    two_thousand_queued_requests_leave_none_behind,
    changed_number_of_slots_applies_at_once,
);

fn drain_serves_requests_paced_by_a_leaky_bucket(test_store: &TestStore) {
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"4/second\"\nburst = 8";
    let mut weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut clients: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("most of them wait", || queue_depth(&weir) >= 6);
    weir.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(weir.exit().code(), Some(0));
    assert!(!weir.output().contains("panicked"), "{}", weir.output());
}

fn drain_refuses_queued_requests_and_serves_those_with_a_slot(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = concurrency_limit(2) + "\nstrategy = \"queue\"\nmax_wait = \"1h\"";
    let config = test_store.configure(held.config().limit(&limit));
    let mut weir = Weir::start(&config);
    let mut inside = [0; 2].map(|_| hold(&weir, &held, "/held"));
    let mut waiting = [0; 3].map(|_| weir.connect());
    waiting.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("they wait", || queue_depth(&weir) == 3);
    weir.signal(Signal::TERM);
    for client in &mut waiting {
        let refused = client.response();
        assert_eq!((refused.status, refused.one("retry-after")), (429, "1"));
    }
    held.release("/held");
    assert_eq!(inside.each_mut().map(|client| client.response().status), [200, 200]);
    assert_eq!(weir.exit().code(), Some(0));
    // The next finds all of them free at once, and need not wait for a lease to end.
    let next = Weir::start(&config);
    assert_eq!(free_slots(&next), Some(2));
    exactly_two(&next, &held);
}

#[track_caller]
fn exactly_two(weir: &Weir, held: &HeldUpstream) {
    let mut clients = [0; 2].map(|_| hold(weir, held, "/held"));
    let mut third = weir.connect();
    third.send(get("/"));
    wait_until("there are no more", || queue_depth(weir) == 1);
    held.release("/held");
    assert_eq!(clients.each_mut().map(|client| client.response().status), [200, 200]);
    assert_eq!(third.response().status, 200);
}

#[test]
fn gateway_that_exits_at_the_end_of_its_drain_releases_its_slots() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let config =
        test_store.configure(held.config().limit(&concurrency_limit(2)).server("drain = \"1s\""));
    let [mut leaving, other] = Weir::start_two(&config);
    let _clients = [0; 2].map(|_| hold(&leaving, &held, "/held"));
    assert_eq!(other.get("/").status, 429);
    leaving.signal(Signal::TERM);
    assert!(leaving.exit().code().is_some());
    // What it held ends with it: that takes no lease.
    wait_at_most(Duration::from_secs(3), "the slots are free", || free_slots(&other) == Some(2));
}

fn two_thousand_queued_requests_leave_none_behind(test_store: &TestStore) {
    const COUNT: usize = 2000;
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"6000h\"\nmax_queue = 2000";
    let config =
        |rate: &str| test_store.configure(Config::echo().limit(&limit.replace("1/hour", rate)));
    let weir = Weir::start(&config("1/hour"));
    assert_eq!(weir.get("/").status, 200);
    let mut clients: Vec<Client> = (0..COUNT).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("all of them wait", || queue_depth(&weir) == COUNT);
    assert_eq!(weir.get("/").status, 429, "no more may");
    // Half of them leave, from everywhere in the queue.
    let mut stay = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        match number % 4 {
            0 => client.wire.reset(),
            1 => drop(client),
            _ => stay.push(client),
        }
    }
    wait_until("the others wait", || queue_depth(&weir) == COUNT / 2);
    let begin = Instant::now();
    weir.reload(&config("1000/second"));
    stay.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert!(begin.elapsed() >= Duration::from_millis(900), "{:?}", begin.elapsed());
    wait_until("nobody waits", || queue_depth(&weir) == 0);
    assert_eq!(weir.get("/").status, 200);
}

fn changed_number_of_slots_applies_at_once(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let config = |lines: &str| test_store.configure(held.config().limit(lines));
    let weir = Weir::start(&config(&concurrency_limit(3)));
    let mut clients = [0; 3].map(|_| hold(&weir, &held, "/held"));
    weir.reload(&config(&concurrency_limit(5)));
    let mut more = [0; 2].map(|_| hold(&weir, &held, "/held"));
    assert_eq!(weir.get("/").status, 429);
    // The requests admitted before are still there, and more than the new limit allows.
    weir.reload(&config(&concurrency_limit(2)));
    assert_eq!(weir.get("/").status, 429);
    // While there is another limit of that name, and none, they end unseen.
    weir.reload(&config("key = \"global\"\nrate = \"1/day\"\nburst = 100"));
    assert_eq!(weir.get("/").status, 200);
    held.release("/held");
    for client in clients.iter_mut().chain(&mut more) {
        assert_eq!(client.response().status, 200);
    }
    weir.reload(&test_store.configure(held.config().open()));
    weir.reload(&config(&concurrency_limit(2)));
    assert_exact_slots(&[&weir], &held, 2);
    assert!(!weir.output().contains("panicked"), "{}", weir.output());
}
