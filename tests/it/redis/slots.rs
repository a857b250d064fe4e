//! Slots of a `concurrency` limit that gateways share: the limit holds over all of them, whatever
//! becomes of one of them or of Redis.

use std::time::{Duration, Instant};

use crate::support::fault_proxy::{Link, Loss};
use crate::support::load::{FREE, read_everything};
use crate::support::queues::queue_depth;
use crate::support::slots::{
    assert_exact_slots, concurrency_limit, disorderly_clients, free_slots, hold, orderly_clients,
    start,
};
use crate::support::{
    Config, FaultProxy, HeldUpstream, Redis, TestStore, Weir, check_for, get, wait_at_most,
    wait_until,
};

/// How long a gateway that does not renew its slots keeps them.
const LEASE: Duration = Duration::from_secs(10);

#[test]
fn two_gateways_share_their_slots() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let weirs = [start(&test_store, &held, 3), start(&test_store, &held, 3)];
    let [one, two] = &weirs;
    let mut first = hold(one, &held, "/held/1");
    let _others = [hold(two, &held, "/held/2"), hold(two, &held, "/held/3")];
    assert_eq!([one.get("/").status, two.get("/").status], [429, 429]);
    held.release("/held/1");
    assert_eq!(first.response().status, 200);
    wait_until("its slot is free at the other gateway", || free_slots(two) == Some(1));
    let _first = hold(two, &held, "/held/1");
    assert_eq!([one.get("/").status, two.get("/").status], [429, 429]);
}

#[test]
fn two_gateways_under_load_never_have_more_in_flight() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let weirs = [start(&test_store, &held, 5), start(&test_store, &held, 5)];
    let weirs = [&weirs[0], &weirs[1]];
    orderly_clients(&weirs);
    assert_eq!(held.most_at_once(), 5);
    assert_exact_slots(&weirs, &held, 5);
    assert!(disorderly_clients(&weirs, 60) > 0);
    held.release("/begun");
    assert_exact_slots(&weirs, &held, 5);
    assert!(weirs.iter().all(|weir| !weir.degraded()));
}

#[test]
fn slots_of_a_killed_gateway_return_with_the_lease_and_not_before() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let (dying, heir) = (start(&test_store, &held, 3), start(&test_store, &held, 3));
    let taken = Instant::now();
    let _clients = [0; 3].map(|_| hold(&dying, &held, "/held"));
    assert_eq!(heir.get("/").status, 429);
    drop(dying);
    // Redis frees them by itself, and a second is for the coarser clock of its expiry.
    let TestStore::Redis(redis) = &test_store else { unreachable!("it is Redis") };
    let bucket = redis.keys().into_iter().find(|key| !key.name.contains(":@")).expect("a bucket");
    assert!(u128::try_from(bucket.ttl).unwrap() <= LEASE.as_millis() + 1000, "{bucket:?}");
    // Its upstream is still at work on them: they count until their lease is over.
    wait_at_most(LEASE + Duration::from_secs(3), "a slot comes back", || {
        free_slots(&heir).is_some()
    });
    let since_taken = taken.elapsed();
    assert!(since_taken >= LEASE, "given away after {since_taken:?}");
    held.release("/held");
    assert_exact_slots(&[&heir], &held, 3);
}

/// A clock that was set back, or a failover to one that is behind, leaves leases that end far ahead.
#[test]
fn leases_that_end_too_far_ahead_are_cut_to_one_from_now() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let (dying, heir) = (start(&test_store, &held, 1), start(&test_store, &held, 1));
    let _client = hold(&dying, &held, "/held");
    drop(dying);
    let TestStore::Redis(redis) = &test_store else { unreachable!("it is Redis") };
    let bucket = redis.buckets().remove(0);
    let lapses_at = || {
        let text = redis.command(&["GET", &bucket]).text();
        text.rsplit(':').next().and_then(|it| it.parse::<u128>().ok()).expect("a lease")
    };
    let before = redis.command(&["GET", &bucket]).text();
    let hour_on = (lapses_at() + 3_600_000_000).to_string();
    let ahead = before.replace(&lapses_at().to_string(), &hour_on);
    redis.command(&["SET", &bucket, &ahead, "PX", "4000000"]);
    assert_eq!(heir.get("/").status, 429, "it is still held");
    let time = redis.command(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|at| time.list()[at].text().parse::<u128>().unwrap());
    assert!(lapses_at() <= seconds * 1_000_000 + micros + LEASE.as_micros(), "{}", lapses_at());
    let ttl =
        u128::try_from(redis.keys().iter().find(|it| it.name == bucket).unwrap().ttl).unwrap();
    assert!(ttl <= LEASE.as_millis() + 1000, "{ttl}");
}

#[test]
fn request_that_outlasts_the_lease_keeps_its_slot() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let weirs = [start(&test_store, &held, 2), start(&test_store, &held, 2)];
    let mut clients = [hold(&weirs[0], &held, "/held"), hold(&weirs[0], &held, "/begun")];
    let begin = Instant::now();
    check_for(LEASE + LEASE / 2, || {
        for weir in &weirs {
            let status = weir.get("/").status;
            assert_eq!(status, 429, "after {:?}", begin.elapsed());
        }
    });
    for (target, client) in ["/held", "/begun"].into_iter().zip(&mut clients) {
        held.release(target);
        assert_eq!(client.response().status, 200);
    }
    assert_exact_slots(&[&weirs[0], &weirs[1]], &held, 2);
}

#[test]
fn slots_are_restored_to_a_redis_that_lost_them() {
    let (mut redis, held) = (Redis::start(), HeldUpstream::start());
    let config = three_in(&redis, &held, "timeout = \"5s\"\non_error = \"deny\"");
    let [holder, other] = Weir::start_two(&config);
    let mut clients = [0; 3].map(|_| hold(&holder, &held, "/held"));
    assert_eq!(other.get("/").status, 429);
    redis.restart();
    wait_until("both are back", || !holder.degraded() && !other.degraded());
    wait_at_most(LEASE, "the slots are restored", || other.get("/").status == 429);
    for _ in 0..20 {
        assert_eq!([holder.get("/").status, other.get("/").status], [429, 429]);
    }
    held.release("/held");
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_exact_slots(&[&holder, &other], &held, 3);
}

/// Three slots in Redis.
fn three_in(redis: &Redis, held: &HeldUpstream, store: &str) -> Config {
    held.config().limit(&concurrency_limit(3)).store(&redis.store()).store(store)
}

#[test]
fn gateway_with_unreported_slots_does_not_spin() {
    let (mut redis, held) = (Redis::start(), HeldUpstream::start());
    let weir = Weir::start(&three_in(&redis, &held, "timeout = \"1s\"\non_error = \"deny\""));
    let mut clients = [0; 2].map(|_| hold(&weir, &held, "/held"));
    redis.kill();
    // They end, which cannot be reported to Redis.
    held.release("/held");
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    wait_until("it decides without Redis", || weir.degraded());
    let spent = weir.processor_ticks_in(Duration::from_secs(1));
    assert!(spent < 30, "{spent} hundredths of a second of processor time in one");
    redis.restart();
    wait_until("it is back", || !weir.degraded());
    assert_exact_slots(&[&weir], &held, 3);
}

#[test]
fn gateway_that_holds_slots_while_redis_is_away_does_not_spin() {
    let (mut redis, held) = (Redis::start(), HeldUpstream::start());
    let weir = Weir::start(&three_in(&redis, &held, "timeout = \"1s\"\non_error = \"local\""));
    let mut clients = [0; 2].map(|_| hold(&weir, &held, "/held"));
    redis.kill();
    wait_until("it decides without Redis", || {
        let _ = weir.get("/");
        weir.degraded()
    });
    // Long enough for the slots to be renewed.
    let spent = weir.processor_ticks_in(LEASE / 3);
    assert!(spent < 100, "{spent} hundredths of a second of processor time in 333");
    redis.restart();
    wait_until("it is back", || !weir.degraded());
    held.release("/held");
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert_exact_slots(&[&weir], &held, 3);
}

#[test]
fn no_request_waits_for_a_slot_to_be_released() {
    let (redis, held) = (Redis::start(), HeldUpstream::start());
    let config = three_in(&redis, &held, "timeout = \"20ms\"").also(FREE).server("workers = 1");
    let weir = Weir::start(&config);
    let mut client = hold(&weir, &held, "/held");
    let mut other = weir.connect();
    assert_eq!(other.ask(get("/free")).status, 200);
    redis.stop();
    held.release("/held");
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
    assert_exact_slots(&[&weir], &held, 3);
}

#[test]
fn client_that_leaves_before_its_call_is_sent_leaks_no_slot() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = HeldUpstream::start();
    let config = held.config().limit(&concurrency_limit(1)).also(FREE).server("workers = 1");
    let config = config.store(&proxy.store());
    let weir = Weir::start(&config.store("timeout = \"5s\"\non_error = \"deny\""));
    for round in 0..4 {
        wait_at_most(LEASE / 2, "the slot is free", || free_slots(&weir) == Some(1));
        let (mut first, mut second) = (weir.connect(), weir.connect());
        proxy.set(Link::Slow(Duration::from_millis(200)));
        let before = redis.script_calls();
        first.send(get("/"));
        // What comes while a call is out waits for the next.
        wait_until("its call is out", || redis.script_calls() > before);
        second.send(get("/"));
        read_everything(&weir);
        if round % 2 == 0 {
            second.wire.reset()
        } else {
            first.wire.reset()
        }
        read_everything(&weir);
        proxy.set(Link::Good);
    }
    // Sooner than the lease of a leaked slot would lapse.
    wait_at_most(LEASE / 2, "the slot is free", || free_slots(&weir) == Some(1));
    assert_exact_slots(&[&weir], &held, 1);
    assert!(!weir.degraded());
}

/// A slot for each request to `/held`, which waits for another limit first.
fn after_a_wait(held: &HeldUpstream) -> Config {
    let queued = "key = \"global\"\nrate = \"1/5s\"\nburst = 1\nstrategy = \"queue\"\n\
        max_wait = \"30s\"";
    let slots = concurrency_limit(1) + "\non_error = \"allow\"";
    held.config()
        .open()
        .add_limit("queued", queued)
        .add_limit("slots", &slots)
        .route("held", "/held", &["queued", "slots"])
        .route("queued", "/queued", &["queued"])
        .route("rest", "/*", &["slots"])
}

#[test]
fn slot_is_counted_for_a_request_queued_during_an_outage() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = HeldUpstream::start();
    let config = after_a_wait(&held).store(&proxy.store());
    let weir = Weir::start(&config.store("timeout = \"1s\""));
    assert_eq!(weir.get("/queued").status, 200);
    proxy.set(Link::Refusing);
    proxy.cut();
    wait_until("it decides without Redis", || {
        let _ = weir.get("/");
        weir.degraded()
    });
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it waits", || queue_depth(&weir) == 1);
    proxy.set(Link::Good);
    wait_until("it is in flight", || held.held_count() == 1);
    assert!(!weir.degraded(), "Redis has decided");
    assert_eq!(weir.get("/").status, 429);
    held.release("/held");
    assert_eq!(client.response().status, 200);
    // Sooner than the lease of a leaked slot would lapse.
    wait_at_most(LEASE / 2, "the slot is free", || free_slots(&weir) == Some(1));
}

/// How many slots the one worker of a bucket holds, by a line that writes it:
/// `… "SET" "KEY" "ENDS WORKER:COUNT:LEASE" …`.
fn held_in(line: &str) -> Option<u64> {
    let value = line.split("\" \"").nth(2).filter(|_| !line.contains(":@"))?;
    value.split(' ').nth(1)?.split(':').nth(1)?.parse().ok()
}

#[test]
fn slot_whose_reply_was_lost_is_counted() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = HeldUpstream::start();
    let config = held.config().limit(&concurrency_limit(2)).store(&proxy.store());
    let config = config.store("timeout = \"5s\"\non_error = \"deny\"").server("workers = 1");
    let weir = Weir::start(&config);
    let other = Weir::start(&config);
    let monitor = redis.monitor();
    for round in 1..=3 {
        let mut clients = vec![hold(&weir, &held, "/held")];
        monitor.take();
        proxy.lose_next_reply(Loss::Cut);
        clients.push(hold(&weir, &held, "/held"));
        assert_eq!(proxy.lost(), round);
        for _ in 0..10 {
            assert_eq!([weir.get("/").status, other.get("/").status], [429, 429]);
        }
        // Not even for a moment, in which the other could take it, too.
        let counts: Vec<u64> = monitor.take_writes().iter().filter_map(|it| held_in(it)).collect();
        assert!(counts.is_sorted() && counts.contains(&2), "{counts:?}");
        held.release("/held");
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
        wait_until("both slots are free", || free_slots(&other) == Some(2));
    }
    assert_exact_slots(&[&weir, &other], &held, 2);
}
