//! Places of a `concurrency` limit that gateways share: the limit holds over all of them, whatever
//! becomes of one of them or of Redis.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::places::{crowd, exactly, free, hold, places, polite_crowd, start};
use crate::support::{Held, Home, Redis, Weir, wait_at_most, wait_until};

/// How long a gateway that is not heard of keeps its places.
const LEASE: Duration = Duration::from_secs(10);

#[test]
fn two_gateways_share_their_places() {
    let home = Home::redis();
    let held = Held::start();
    let weirs = [start(&home, &held, 3), start(&home, &held, 3)];
    let [one, two] = &weirs;
    let mut first = hold(one, &held, "/held/1");
    let _others = [hold(two, &held, "/held/2"), hold(two, &held, "/held/3")];
    assert_eq!([one.get("/").status, two.get("/").status], [429, 429]);
    held.let_go("/held/1");
    assert_eq!(first.response().status, 200);
    wait_until("its place is the other's to take", || free(two) == Some(1));
    let _first = hold(two, &held, "/held/1");
    assert_eq!([one.get("/").status, two.get("/").status], [429, 429]);
}

#[test]
fn two_gateways_under_load_never_have_more_in_flight() {
    let home = Home::redis();
    let held = Held::start();
    let weirs = [start(&home, &held, 5), start(&home, &held, 5)];
    let weirs = [&weirs[0], &weirs[1]];
    polite_crowd(&weirs);
    assert_eq!(held.most(), 5);
    exactly(&weirs, &held, 5);
    assert!(crowd(&weirs, 60) > 0);
    held.let_go("/begun");
    exactly(&weirs, &held, 5);
    assert!(weirs.iter().all(|weir| !weir.degraded()));
}

#[test]
fn the_places_of_a_killed_gateway_come_back_with_the_lease_and_not_before() {
    let home = Home::redis();
    let held = Held::start();
    let (dying, heir) = (start(&home, &held, 3), start(&home, &held, 3));
    let taken = Instant::now();
    let _clients = [0; 3].map(|_| hold(&dying, &held, "/held"));
    assert_eq!(heir.get("/").status, 429);
    drop(dying);
    let killed = Instant::now();
    // Its upstream is still at work on them: they count until nobody can have them any more.
    wait_at_most(LEASE + Duration::from_secs(3), "a place comes back", || free(&heir).is_some());
    let (since_taken, since_killed) = (taken.elapsed(), killed.elapsed());
    assert!(since_taken >= LEASE, "given away after {since_taken:?}");
    assert!(since_killed <= LEASE + Duration::from_secs(1), "back after {since_killed:?}");
    held.let_go("/held");
    exactly(&[&heir], &held, 3);
}

#[test]
fn a_request_that_outlasts_the_lease_keeps_its_place() {
    let home = Home::redis();
    let held = Held::start();
    let weirs = [start(&home, &held, 2), start(&home, &held, 2)];
    let mut clients = [hold(&weirs[0], &held, "/held"), hold(&weirs[0], &held, "/begun")];
    let begin = Instant::now();
    while begin.elapsed() < LEASE + LEASE / 2 {
        for weir in &weirs {
            let status = weir.get("/").status;
            assert_eq!(status, 429, "after {:?}", begin.elapsed());
        }
        thread::sleep(Duration::from_millis(50));
    }
    for (target, client) in ["/held", "/begun"].into_iter().zip(&mut clients) {
        held.let_go(target);
        assert_eq!(client.response().status, 200);
    }
    exactly(&[&weirs[0], &weirs[1]], &held, 2);
}

#[test]
fn places_are_told_again_to_a_redis_that_forgot_them() {
    let mut redis = Redis::start();
    let held = Held::start();
    let config = held.config().limit(&places(3)).store(&redis.store());
    let config = config.store("timeout = \"5s\"\non_error = \"deny\"");
    let (holder, other) = (Weir::start(&config), Weir::start(&config));
    let mut clients = [0; 3].map(|_| hold(&holder, &held, "/held"));
    assert_eq!(other.get("/").status, 429);
    redis.restart();
    wait_until("both are back", || !holder.degraded() && !other.degraded());
    wait_at_most(LEASE, "the places are told again", || other.get("/").status == 429);
    for _ in 0..20 {
        assert_eq!([holder.get("/").status, other.get("/").status], [429, 429]);
    }
    held.let_go("/held");
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    exactly(&[&holder, &other], &held, 3);
}

#[test]
fn a_gateway_whose_places_nobody_hears_of_does_not_spin() {
    let mut redis = Redis::start();
    let held = Held::start();
    let config = held.config().limit(&places(3)).store(&redis.store());
    let weir = Weir::start(&config.store("timeout = \"1s\"\non_error = \"deny\""));
    let mut clients = [0; 2].map(|_| hold(&weir, &held, "/held"));
    redis.kill();
    // They end, which cannot be told.
    held.let_go("/held");
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    wait_until("it goes by itself", || weir.degraded());
    let before = weir.processor_ticks();
    thread::sleep(Duration::from_secs(1));
    let spent = weir.processor_ticks() - before;
    assert!(spent < 30, "{spent} hundredths of a second of processor time in one");
    redis.restart();
    wait_until("it is back", || !weir.degraded());
    exactly(&[&weir], &held, 3);
}
