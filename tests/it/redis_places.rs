//! Places of a `concurrency` limit that gateways share: the limit holds over all of them, whatever
//! becomes of one of them or of Redis.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::fault_proxy::{Line, Loss};
use crate::support::load::FREE;
use crate::support::places::{crowd, exactly, free, hold, places, polite_crowd, start};
use crate::support::{FaultProxy, Held, Home, Redis, Weir, get, wait_at_most, wait_until};

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

#[test]
fn a_gateway_that_holds_places_while_redis_is_away_does_not_spin() {
    let mut redis = Redis::start();
    let held = Held::start();
    let config = held.config().limit(&places(3)).store(&redis.store());
    let weir = Weir::start(&config.store("timeout = \"1s\"\non_error = \"local\""));
    let mut clients = [0; 2].map(|_| hold(&weir, &held, "/held"));
    redis.kill();
    wait_until("it goes by itself", || {
        let _ = weir.get("/");
        weir.degraded()
    });
    let before = weir.processor_ticks();
    // Long enough for the places to be renewed.
    thread::sleep(LEASE / 3);
    let spent = weir.processor_ticks() - before;
    assert!(spent < 100, "{spent} hundredths of a second of processor time in 333");
    redis.restart();
    wait_until("it is back", || !weir.degraded());
    held.let_go("/held");
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    exactly(&[&weir], &held, 3);
}

#[test]
fn nobody_waits_for_a_place_to_be_given_back() {
    let redis = Redis::start();
    let held = Held::start();
    let config = held.config().limit(&places(3)).also(FREE).server("workers = 1");
    let weir = Weir::start(&config.store(&redis.store()).store("timeout = \"20ms\""));
    let mut client = hold(&weir, &held, "/held");
    let mut other = weir.connect();
    assert_eq!(other.ask(get("/free")).status, 200);
    redis.stop();
    held.let_go("/held");
    assert_eq!(client.response().status, 200);
    let [mut limited, mut free] = [Duration::ZERO; 2];
    for _ in 0..20 {
        for (slowest, target) in [(&mut limited, "/"), (&mut free, "/free")] {
            let begin = Instant::now();
            assert_eq!(other.ask(get(target)).status, 200);
            *slowest = begin.elapsed().max(*slowest);
        }
    }
    assert!(limited < free + Duration::from_millis(500), "{limited:?}, without a limit {free:?}");
    redis.cont();
    wait_until("it is back", || !weir.degraded());
    exactly(&[&weir], &held, 3);
}

#[test]
fn who_leaves_before_its_call_is_sent_takes_no_place_with_it() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = Held::start();
    let config = held.config().limit(&places(1)).server("workers = 1").store(&proxy.store());
    let weir = Weir::start(&config.store("timeout = \"5s\"\non_error = \"deny\""));
    for round in 0..4 {
        wait_at_most(LEASE / 2, "the place is free", || free(&weir) == Some(1));
        let (mut first, mut second) = (weir.connect(), weir.connect());
        proxy.set(Line::Slow(Duration::from_millis(200)));
        first.send(get("/"));
        // Its call is out, and what comes meanwhile waits for the next.
        thread::sleep(Duration::from_millis(50));
        second.send(get("/"));
        thread::sleep(Duration::from_millis(20));
        if round % 2 == 0 {
            second.wire.reset()
        } else {
            first.wire.reset()
        }
        thread::sleep(Duration::from_millis(50));
        proxy.set(Line::Good);
    }
    // Sooner than what nobody knows of would lapse.
    wait_at_most(LEASE / 2, "the place is free", || free(&weir) == Some(1));
    exactly(&[&weir], &held, 1);
    assert!(!weir.degraded());
}

/// A place for each request to `/held`, which waits for another limit first.
const AFTER_A_WAIT: &str = r#"
    [limits.line]
    key = "global"
    rate = "1/5s"
    burst = 1
    strategy = "queue"
    max_wait = "30s"

    [limits.places]
    key = "global"
    algorithm = "concurrency"
    limit = 1
    on_error = "allow"

    [[routes]]
    name = "held"
    path = "/held"
    upstream = "api"
    limits = ["line", "places"]

    [[routes]]
    name = "line"
    path = "/line"
    upstream = "api"
    limits = ["line"]

    [[routes]]
    name = "rest"
    path = "/*"
    upstream = "api"
    limits = ["places"]
"#;

#[test]
fn a_place_is_counted_for_who_began_to_wait_without_redis() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = Held::start();
    let config = held.config().open().routes(AFTER_A_WAIT).store(&proxy.store());
    let weir = Weir::start(&config.store("timeout = \"1s\""));
    assert_eq!(weir.get("/line").status, 200);
    proxy.set(Line::Refusing);
    proxy.cut();
    wait_until("it goes by itself", || {
        let _ = weir.get("/");
        weir.degraded()
    });
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it waits", || weir.metrics().value("weir_queue_depth", &[]) == Some(1.0));
    proxy.set(Line::Good);
    wait_until("it is in flight", || held.inside() == 1);
    assert!(!weir.degraded(), "by the word of Redis");
    assert_eq!(weir.get("/").status, 429);
    held.let_go("/held");
    assert_eq!(client.response().status, 200);
    // Sooner than what nobody knows of would lapse.
    wait_at_most(LEASE / 2, "the place is free", || free(&weir) == Some(1));
}

#[test]
fn a_place_whose_reply_was_lost_is_counted() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = Held::start();
    let config = held.config().limit(&places(2)).store(&proxy.store());
    let config = config.store("timeout = \"5s\"\non_error = \"deny\"").server("workers = 1");
    let weir = Weir::start(&config);
    let other = Weir::start(&config);
    for round in 1..=3 {
        let mut clients = vec![hold(&weir, &held, "/held")];
        proxy.lose_next_reply(Loss::Cut);
        clients.push(hold(&weir, &held, "/held"));
        assert_eq!(proxy.lost(), round);
        for _ in 0..10 {
            assert_eq!([weir.get("/").status, other.get("/").status], [429, 429]);
        }
        held.let_go("/held");
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
        wait_until("both places are free", || free(&other) == Some(2));
    }
    exactly(&[&weir, &other], &held, 2);
}
