//! A gateway that drains or restarts while requests wait, hold places or stand in a leaky bucket.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::places::{exactly, free, hold, places};
use crate::support::{
    Client, Config, Held, Home, Weir, get, on_each_store, wait_at_most, wait_until,
};

on_each_store!(
    a_drain_serves_who_stands_in_a_leaky_bucket,
    a_drain_refuses_who_waits_for_a_place_and_serves_who_has_one,
    two_thousand_wait_and_none_is_left,
    a_changed_limit_of_places_holds_at_once,
);

fn depth(weir: &Weir) -> usize {
    weir.metrics().value("weir_queue_depth", &[]).unwrap_or(0.0) as usize
}

fn a_drain_serves_who_stands_in_a_leaky_bucket(home: &Home) {
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"4/second\"\nburst = 8";
    let mut weir = Weir::start(&home.of(Config::echo().limit(limit)));
    let mut clients: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("most of them wait", || depth(&weir) >= 6);
    weir.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(weir.exit().code(), Some(0));
    assert!(!weir.said().contains("panicked"), "{}", weir.said());
}

fn a_drain_refuses_who_waits_for_a_place_and_serves_who_has_one(home: &Home) {
    let held = Held::start();
    let limit = places(2) + "\nstrategy = \"queue\"\nmax_wait = \"1h\"";
    let config = home.of(held.config().limit(&limit));
    let mut weir = Weir::start(&config);
    let mut inside = [0; 2].map(|_| hold(&weir, &held, "/held"));
    let mut waiting = [0; 3].map(|_| weir.connect());
    waiting.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("they wait", || depth(&weir) == 3);
    weir.signal(Signal::TERM);
    for client in &mut waiting {
        let refused = client.response();
        assert_eq!((refused.status, refused.one("retry-after")), (429, "1"));
    }
    held.let_go("/held");
    assert_eq!(inside.each_mut().map(|client| client.response().status), [200, 200]);
    assert_eq!(weir.exit().code(), Some(0));
    // The next finds all of them free at once, and need not wait for a lease to end.
    let next = Weir::start(&config);
    assert_eq!(free(&next), Some(2));
    exactly_two(&next, &held);
}

#[track_caller]
fn exactly_two(weir: &Weir, held: &Held) {
    let mut clients = [0; 2].map(|_| hold(weir, held, "/held"));
    let mut third = weir.connect();
    third.send(get("/"));
    wait_until("there are no more", || depth(weir) == 1);
    held.let_go("/held");
    assert_eq!(clients.each_mut().map(|client| client.response().status), [200, 200]);
    assert_eq!(third.response().status, 200);
}

#[test]
fn a_gateway_that_is_cut_off_at_the_end_of_its_drain_leaves_no_place_behind() {
    let home = Home::redis();
    let held = Held::start();
    let config = home.of(held.config().limit(&places(2)).server("drain = \"1s\""));
    let (mut leaving, other) = (Weir::start(&config), Weir::start(&config));
    let _clients = [0; 2].map(|_| hold(&leaving, &held, "/held"));
    assert_eq!(other.get("/").status, 429);
    leaving.signal(Signal::TERM);
    assert!(leaving.exit().code().is_some());
    // What it held ends with it: that takes no lease.
    wait_at_most(Duration::from_secs(3), "the places are free", || free(&other) == Some(2));
}

fn two_thousand_wait_and_none_is_left(home: &Home) {
    const COUNT: usize = 2000;
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"6000h\"\nmax_queue = 2000";
    let config = |rate: &str| home.of(Config::echo().limit(&limit.replace("1/hour", rate)));
    let weir = Weir::start(&config("1/hour"));
    assert_eq!(weir.get("/").status, 200);
    let mut clients: Vec<Client> = (0..COUNT).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("all of them wait", || depth(&weir) == COUNT);
    assert_eq!(weir.get("/").status, 429, "no more may");
    // Half of them leave, from everywhere in the line.
    let mut stay = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        match number % 4 {
            0 => client.wire.reset(),
            1 => drop(client),
            _ => stay.push(client),
        }
    }
    wait_until("the others wait", || depth(&weir) == COUNT / 2);
    let begin = Instant::now();
    weir.reload(&config("1000/second"));
    stay.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert!(begin.elapsed() >= Duration::from_millis(900), "{:?}", begin.elapsed());
    wait_until("nobody waits", || depth(&weir) == 0);
    assert_eq!(weir.get("/").status, 200);
}

fn a_changed_limit_of_places_holds_at_once(home: &Home) {
    let held = Held::start();
    let config = |lines: &str| home.of(held.config().limit(lines));
    let weir = Weir::start(&config(&places(3)));
    let mut clients = [0; 3].map(|_| hold(&weir, &held, "/held"));
    weir.reload(&config(&places(5)));
    let mut more = [0; 2].map(|_| hold(&weir, &held, "/held"));
    assert_eq!(weir.get("/").status, 429);
    // Those who came before are still there, and more than may be.
    weir.reload(&config(&places(2)));
    assert_eq!(weir.get("/").status, 429);
    // While there is another limit of that name, and none, they end unseen.
    weir.reload(&config("key = \"global\"\nrate = \"1/day\"\nburst = 100"));
    assert_eq!(weir.get("/").status, 200);
    held.let_go("/held");
    for client in clients.iter_mut().chain(&mut more) {
        assert_eq!(client.response().status, 200);
    }
    weir.reload(&home.of(held.config().open()));
    weir.reload(&config(&places(2)));
    exactly(&[&weir], &held, 2);
    assert!(!weir.said().contains("panicked"), "{}", weir.said());
}
