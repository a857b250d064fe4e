//! A Redis that answers, and too late: requests stop waiting for it, the breaker does not go to
//! and fro, and whoever reads the log learns what `timeout` it would take.

use std::time::{Duration, Instant};

use crate::support::fault_proxy::Line;
use crate::support::load::FREE;
use crate::support::{Config, FaultProxy, Load, Redis, Weir, get, wait_at_most, wait_until};

/// What one decision may wait: long enough for a busy machine to answer within it.
const TIMEOUT: Duration = Duration::from_millis(200);
const WORKERS: f64 = 2.0;
/// How soon after its return Redis is in use again.
const RECOVERY: Duration = Duration::from_secs(5);

/// Nobody is refused, so every request needs Redis.
const LIMIT: &str = "key = \"ip\"\nrate = \"100000/second\"\nburst = 100000";

fn start(proxy: &FaultProxy) -> Weir {
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", TIMEOUT.as_millis());
    let config = Config::echo().store(&proxy.store()).store(&waits).limit(LIMIT).also(FREE);
    Weir::start(&config.server(&format!("workers = {WORKERS}")))
}

fn load(weir: &Weir) -> Load {
    Load::start(&[weir.address()], &[get("/")], 4)
}

/// How many lines of the log or the audit log have that in them.
fn lines(weir: &Weir, what: &str) -> usize {
    weir.said().lines().filter(|line| line.contains(what)).count()
}

/// How often the breaker has opened, by the audit log.
fn opened(weir: &Weir) -> usize {
    lines(weir, "\"event\":\"store_degraded\"")
}

fn closed(weir: &Weir) -> usize {
    lines(weir, "\"event\":\"store_recovered\"")
}

fn metric(weir: &Weir, name: &str, labels: &[(&str, &str)]) -> f64 {
    weir.metrics().value(name, labels).unwrap_or(0.0)
}

fn calls(weir: &Weir) -> f64 {
    metric(weir, "weir_store_calls_total", &[])
}

fn reason(weir: &Weir) -> String {
    let ready = weir.admin("/readyz").json();
    ready["reason"].as_str().unwrap_or_default().to_owned()
}

/// The line that tells what it would take, once it is there.
#[track_caller]
fn advice(weir: &Weir) -> String {
    let told = || weir.said().lines().find(|it| it.contains("answers take")).map(str::to_owned);
    wait_until("it says what it would take", || told().is_some());
    told().unwrap()
}

/// The `timeout` that is advised, in milliseconds.
#[track_caller]
fn advised(line: &str) -> u128 {
    let (_, rest) = line.split_once("at least ").expect("a timeout");
    let (number, unit) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit()).unwrap());
    let scale = if unit.starts_with("ms") { 1 } else { 1000 };
    number.parse::<u128>().unwrap() * scale
}

#[track_caller]
fn is_left_alone_until_it_is_fast(delay: Duration) {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy);
    let load = load(&weir);
    load.wait_for(100);
    assert!(!weir.degraded());
    proxy.set(Line::Slow(delay));
    wait_until("the gateway goes by itself", || weir.degraded());
    let before = calls(&weir);
    load.wait_for(1000);
    let advice = advice(&weir);
    assert!(advice.contains("store.timeout = 200ms"), "{advice}");
    assert!(advised(&advice) > delay.as_millis(), "{advice}");
    load.wait_for(500);
    assert_eq!(calls(&weir), before, "nobody waits for a Redis that is too slow");
    assert_eq!((opened(&weir), closed(&weir)), (1, 0), "{}", weir.said());
    assert_eq!(lines(&weir, "store still degraded"), 1, "once a minute: {}", weir.said());
    assert_eq!(reason(&weir), "timeout");
    assert!(weir.degraded());
    proxy.set(Line::Good);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    wait_until("it decides again", || calls(&weir) > before + 20.0);
    assert!(load.finish().iter().all(|it| it.status == 200));
}

#[test]
fn a_redis_slower_than_the_timeout_by_half_is_left_alone_until_it_is_fast() {
    is_left_alone_until_it_is_fast(TIMEOUT * 3 / 2);
}

#[test]
fn a_redis_four_times_slower_than_the_timeout_is_left_alone_until_it_is_fast() {
    is_left_alone_until_it_is_fast(4 * TIMEOUT);
}

#[test]
fn a_redis_that_is_too_slow_at_the_start_is_not_asked_and_said_to_be() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    proxy.set(Line::Slow(TIMEOUT * 3 / 2));
    let weir = start(&proxy);
    let load = load(&weir);
    load.wait_for(200);
    let advice = advice(&weir);
    assert!(advice.contains("ERROR store degraded"), "{advice}");
    assert!(advised(&advice) > (TIMEOUT * 3 / 2).as_millis(), "{advice}");
    assert_eq!(reason(&weir), "timeout");
    assert!(weir.degraded());
    assert_eq!(calls(&weir), 0.0, "nobody waits for it");
    proxy.set(Line::Good);
    wait_at_most(RECOVERY, "Redis is in use", || !weir.degraded());
    wait_until("it decides", || calls(&weir) > 20.0);
    assert_eq!(opened(&weir), 1);
}

#[test]
fn a_redis_that_is_slow_every_other_time_is_not_waited_for() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy);
    let load = load(&weir);
    load.wait_for(100);
    proxy.set(Line::SlowOneIn(2, TIMEOUT * 3 / 2));
    let begin = calls(&weir);
    wait_until("the gateway goes by itself", || weir.degraded());
    let before = calls(&weir);
    // Of the calls before it opened few were late, though never three in a row.
    let late = metric(&weir, "weir_store_errors_total", &[("reason", "timeout")]);
    let most = before / 20.0 + 5.0 * WORKERS;
    assert!(late <= most, "{late} late of {before}, {begin} of them before");
    load.wait_for(2000);
    assert_eq!(calls(&weir), before, "it would be as slow again");
    assert_eq!((opened(&weir), closed(&weir)), (1, 0));
    proxy.set(Line::Good);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
}

#[test]
fn a_redis_that_is_late_now_and_then_stays_in_use_and_comes_back() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let jitter = Line::SlowOneIn(60, TIMEOUT * 3 / 2);
    proxy.set(jitter);
    let weir = start(&proxy);
    let load = load(&weir);
    let late = || metric(&weir, "weir_store_errors_total", &[("reason", "timeout")]);
    wait_until("some are late", || late() >= 20.0);
    assert_eq!(opened(&weir), 0, "{} of {} were late", late(), calls(&weir));
    proxy.set(Line::Refusing);
    proxy.cut();
    wait_until("the gateway goes by itself", || weir.degraded());
    proxy.set(jitter);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    let before = calls(&weir);
    wait_until("it decides again", || calls(&weir) > before + 20.0);
    drop(load);
}

/// A decision that comes while a call is out waits for that one and for its own, so a round trip
/// below `timeout` is too slow for a busy gateway, though fast enough for a probe.
#[test]
fn a_redis_that_is_too_slow_only_under_load_is_tried_less_and_less_often() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy);
    let load = load(&weir);
    load.wait_for(100);
    proxy.set(Line::Slow(TIMEOUT * 7 / 10));
    wait_until("the gateway goes by itself", || opened(&weir) >= 1);
    let begin = Instant::now();
    wait_until("it has done so four times", || opened(&weir) >= 4);
    // It has to do well for half a second after the first relapse, for two after the second.
    let (took, count) = (begin.elapsed(), opened(&weir));
    assert!(took >= Duration::from_millis(2500), "{count} times within {took:?}");
    drop(load);
}
