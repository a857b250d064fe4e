//! `kind = "hybrid"`: hot keys are decided in memory from leases, and no interval admits more than
//! `burst + rate × t` over all gateways, whatever happens to them and to Redis.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Client, Config, Redis, SetOnDrop, Weir, get_with, wait_until};

/// A store that is waited for on a busy machine, and that nobody passes without.
const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn hybrid(redis: &Redis) -> Config {
    Config::echo().store(&redis.store_of("hybrid"))
}

/// A request of the hot key.
fn hot() -> String {
    get_with("/", "X-User: hot\r\n")
}

/// One answer: when it was asked for and when it was there.
#[derive(Debug, Clone, Copy)]
struct Passed {
    sent: Instant,
    received: Instant,
}

/// Asks as fast as it is answered until told to stop, and over a new connection where one breaks.
fn ask_until(over: &AtomicBool, address: SocketAddr, pause: Duration) -> Vec<Passed> {
    let mut passed = Vec::new();
    let mut client = None;
    while !over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        if client.is_none() {
            client = Client::try_connect(address);
        }
        let Some(open) = &mut client else {
            // The gateway is gone.
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        match open.try_ask(hot()) {
            Ok(answer) if answer.status == 200 => {
                passed.push(Passed { sent, received: Instant::now() });
            }
            Ok(_) => {}
            Err(_) => client = None,
        }
        thread::sleep(pause);
    }
    passed
}

/// What passes at some gateways while something happens to them.
fn passed_while(addresses: &[SocketAddr], clients: usize, happens: impl FnOnce()) -> Vec<Passed> {
    let over = AtomicBool::new(false);
    let over = &over;
    thread::scope(|scope| {
        let end = SetOnDrop(over);
        let ask = |address| scope.spawn(move || ask_until(over, address, Duration::from_millis(1)));
        let addresses = addresses.iter().flat_map(|it| std::iter::repeat_n(*it, clients));
        let threads: Vec<_> = addresses.map(ask).collect();
        happens();
        drop(end);
        threads.into_iter().flat_map(|it| it.join().expect("a client")).collect()
    })
}

/// From the sending of one request to the answer of another, all that was both sent and answered
/// between was decided between: that is at most `burst + rate × t`.
#[track_caller]
fn holds_everywhere(passed: &mut [Passed], burst: f64, a_second: f64) {
    passed.sort_by_key(|it| it.received);
    for first in passed.iter() {
        let mut count = 0.0;
        for last in passed.iter().filter(|it| it.sent >= first.sent) {
            count += 1.0;
            let time = last.received.saturating_duration_since(first.sent).as_secs_f64();
            assert!(count <= burst + a_second * time, "{count} within {time} s");
        }
    }
}

fn calls(weir: &Weir) -> f64 {
    weir.metrics().value("weir_store_calls_total", &[]).expect("weir_store_calls_total")
}

fn leases(weir: &Weir, state: &str) -> f64 {
    weir.metrics().value("weir_leases", &[("state", state)]).unwrap_or(0.0)
}

/// Asks for the hot key until it is served from a lease. Returns how often.
fn heat(weir: &Weir) -> usize {
    let (mut client, mut asked) = (weir.connect(), 0);
    wait_until("the key is hot", || {
        (0..10).for_each(|_| drop(client.ask(hot())));
        asked += 10;
        leases(weir, "active") >= 1.0
    });
    asked
}

/// A limit by itself on every path, and on `/both` with one that leases do not serve: it admits so
/// many a day.
fn beside_a_log(redis: &Redis, limit: &str, a_day: u32) -> Config {
    let log = format!("algorithm = \"sliding_log\"\nrate = \"{a_day}/day\"");
    let by_user = |lines: &str| format!("key = \"header:x-user\"\n{lines}");
    let config = hybrid(redis).store(PATIENT).server("workers = 1").open();
    let config = config.add_limit("leased", &by_user(limit)).add_limit("log", &by_user(&log));
    config.route("both", "/both", &["leased", "log"]).route("leased", "/*", &["leased"])
}

#[test]
fn hot_key_is_decided_without_asking_redis_each_time() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1000000/second\"";
    let weir = Weir::start(&hybrid(&redis).store(PATIENT).limit(limit));
    heat(&weir);
    let (before, mut client) = (calls(&weir), weir.connect());
    for _ in 0..2_000 {
        assert_eq!(client.ask(hot()).status, 200);
    }
    let made = calls(&weir) - before;
    assert!(made < 400.0, "{made} calls for 2,000 requests");
    assert!(weir.metrics().value("weir_lease_tokens", &[]).is_some());
}

#[test]
fn cold_keys_get_no_lease() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1000/second\"";
    let weir = Weir::start(&hybrid(&redis).store(PATIENT).limit(limit));
    let mut client = weir.connect();
    for user in 0..300 {
        assert_eq!(client.ask(get_with("/", &format!("X-User: {user}\r\n"))).status, 200);
    }
    assert_eq!((leases(&weir, "active"), leases(&weir, "dry")), (0.0, 0.0));
    let values = redis.buckets().into_iter().map(|name| redis.command(&["GET", &name]).text());
    let values: Vec<String> = values.collect();
    assert!(values.len() > 100 && values.iter().all(|it| !it.contains("|L")), "{values:?}");
}

#[test]
fn exactly_the_burst_passes_over_all_gateways() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 300";
    let config = hybrid(&redis).store(PATIENT).limit(limit);
    let weirs = [0; 3].map(|_| Weir::start(&config));
    let addresses: Vec<SocketAddr> = weirs.iter().map(Weir::address).collect();
    let passed = passed_while(&addresses, 4, || {
        // Until nothing is left, here or in a lease of somebody else's.
        thread::sleep(Duration::from_secs(3));
    });
    assert_eq!(passed.len(), 300);
}

#[test]
fn promise_holds_while_gateways_are_stopped_and_killed_and_redis_stands_still() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"300/second\"\nburst = 100";
    let config = hybrid(&redis).store(PATIENT).limit(limit);
    let mut weirs = [0; 3].map(|_| Weir::start(&config));
    let addresses: Vec<SocketAddr> = weirs.iter().map(Weir::address).collect();
    let moment = Duration::from_millis(700);
    let mut passed = passed_while(&addresses, 3, || {
        thread::sleep(moment);
        weirs[0].stall(Duration::from_millis(600));
        thread::sleep(moment);
        redis.stop();
        thread::sleep(Duration::from_millis(300));
        redis.cont();
        thread::sleep(moment);
        weirs[1].signal(Signal::KILL);
        weirs[1].exit();
        weirs[2].stall(Duration::from_millis(1_500));
        thread::sleep(moment);
    });
    assert!(passed.len() > 300, "only {} passed", passed.len());
    holds_everywhere(&mut passed, 100.0, 300.0);
}

#[test]
fn every_leased_algorithm_keeps_its_promise_over_two_gateways() {
    for (lines, burst, a_second) in [
        ("rate = \"200/second\"\nburst = 50", 50.0, 200.0),
        ("burst = 50\nrefill = { every = \"100ms\", amount = 20 }", 70.0, 200.0),
        ("algorithm = \"fixed_window\"\nrate = \"200/second\"", 400.0, 200.0),
    ] {
        let redis = Redis::start();
        let limit = format!("key = \"header:x-user\"\n{lines}");
        let config = hybrid(&redis).store(PATIENT).limit(&limit);
        let weirs = [Weir::start(&config), Weir::start(&config)];
        let addresses: Vec<SocketAddr> = weirs.iter().map(Weir::address).collect();
        let two_seconds = || thread::sleep(Duration::from_secs(2));
        let mut passed = passed_while(&addresses, 3, two_seconds);
        assert!(passed.len() > 100, "{lines}: only {} passed", passed.len());
        holds_everywhere(&mut passed, burst, a_second);
    }
}

#[test]
fn refusal_by_redis_gives_back_what_a_lease_gave() {
    let redis = Redis::start();
    let limit = "rate = \"1/day\"\nburst = 10000";
    let weir = Weir::start(&beside_a_log(&redis, limit, 5));
    let spent = heat(&weir);
    let mut client = weir.connect();
    let both = get_with("/both", "X-User: hot\r\n");
    let statuses: Vec<u16> = (0..60).map(|_| client.ask(&both).status).collect();
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(passed, 5, "{statuses:?}");
    let answer = client.ask(hot());
    let left: usize = answer.one("x-ratelimit-remaining").parse().expect("a number");
    assert_eq!(left, 10_000 - spent - 5 - 1);
}

#[test]
fn leases_are_used_up_when_redis_is_gone_and_then_on_error_holds() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"100000/second\"";
    let config = hybrid(&redis).store("timeout = \"300ms\"\non_error = \"deny\"").limit(limit);
    let weir = Weir::start(&config);
    heat(&weir);
    redis.kill();
    let mut client = weir.connect();
    wait_until("nothing is left", || client.ask(hot()).status == 503);
    redis.restart();
    wait_until("it is back", || client.ask(hot()).status == 200);
    heat(&weir);
}

#[test]
fn bound_of_what_passes_on_top_is_told_while_gateways_decide_alone() {
    let mut redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"100/second\"\nburst = 50";
    let config = hybrid(&redis).store("timeout = \"300ms\"").limit(limit);
    let weirs = [Weir::start(&config), Weir::start(&config)];
    wait_until("they know each other", || weirs.iter().all(|weir| weir.nodes() == 2.0));
    let bound = |weir: &Weir| {
        weir.metrics().value("weir_overshoot_bound", &[("limit", "per-ip")]).expect("a bound")
    };
    assert!(weirs.iter().all(|weir| bound(weir) == 0.0));
    redis.kill();
    wait_until("each has its share", || weirs.iter().all(|weir| bound(weir) == 25.0));
    redis.restart();
    wait_until("Redis decides", || weirs.iter().all(|weir| bound(weir) == 0.0));
}

#[test]
fn other_numbers_hold_at_once_for_a_key_that_was_leased() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"100000/second\"";
    let weir = Weir::start(&hybrid(&redis).store(PATIENT).operated().limit(limit));
    heat(&weir);
    let numbers = json!({"rate": "1/day", "burst": 2}).to_string();
    let target = "/v1/overrides/per-ip/hot";
    assert_eq!(weir.operate("PUT", target, &numbers).status, 200);
    // What was used stays used: at most the burst passes, however full the lease was.
    let mut client = weir.connect();
    let statuses: Vec<u16> = (0..30).map(|_| client.ask(hot()).status).collect();
    assert!(statuses.iter().filter(|status| **status == 200).count() <= 2, "{statuses:?}");
    assert_eq!(weir.operate("DELETE", target, "").status, 200);
    wait_until("the limit's own numbers hold again", || client.ask(hot()).status == 200);
}

#[test]
fn leases_are_returned_when_a_gateway_ends() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 10000";
    let config = hybrid(&redis).store(PATIENT).limit(limit);
    let mut weir = Weir::start(&config);
    let spent = heat(&weir);
    weir.signal(Signal::TERM);
    assert!(weir.exit().success());
    let other = Weir::start(&config);
    let left: usize = other.ask(hot()).one("x-ratelimit-remaining").parse().expect("a number");
    assert_eq!(left, 10_000 - spent - 1);
}

#[test]
fn hot_key_lies_in_any_slot_of_a_cluster() {
    let cluster = crate::support::Cluster::start();
    let limit = "key = \"header:x-user\"\nrate = \"300/second\"\nburst = 100";
    let store = cluster.store().replace("kind = \"redis\"", "kind = \"hybrid\"");
    let config = Config::echo().server("workers = 2").store(&store).store(PATIENT).limit(limit);
    let weirs = [Weir::start(&config), Weir::start(&config)];
    let addresses: Vec<SocketAddr> = weirs.iter().map(Weir::address).collect();
    let mut passed = passed_while(&addresses, 3, || thread::sleep(Duration::from_secs(2)));
    assert!(passed.len() > 300, "only {} passed", passed.len());
    holds_everywhere(&mut passed, 100.0, 300.0);
    assert!(calls(&weirs[0]) > 0.0 && !weirs[0].degraded());
}

#[test]
fn limit_that_degrades_gains_nothing_from_refusals_of_others() {
    let redis = Redis::start();
    let limit = "rate = \"50/second\"\nburst = 100\nstrategy = \"degrade\"";
    let weir = Weir::start(&beside_a_log(&redis, limit, 1));
    let (mut client, both) = (weir.connect(), get_with("/both", "X-User: hot\r\n"));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        client.ask(&both);
        assert_eq!(client.ask(hot()).status, 200);
    }
    let most = 100.0 + 50.0 * began.elapsed().as_secs_f64();
    let labels = [("limit", "leased"), ("outcome", "allowed")];
    let passed = weir.metrics().value("weir_decisions_total", &labels).expect("a count");
    assert!(passed >= 100.0 && passed <= most, "{passed} passed, at most {most} may");
}
