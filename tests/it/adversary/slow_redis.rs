//! A Redis that answers too late: requests stop waiting for it, the breaker does not flap, and the
//! log states what `timeout` would be needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::fault_proxy::Link;
use crate::support::load::FREE;
use crate::support::{
    Config, FaultProxy, LONG_PATIENCE, Load, RECOVERY, Redis, SetOnDrop, Weir, get, wait_at_most,
    wait_until,
};

/// What one decision may wait: long enough for a busy machine to answer within it, and short enough
/// for a slow answer to come within the second that a probe waits.
const TIMEOUT: Duration = Duration::from_millis(400);
const WORKERS: f64 = 2.0;
/// No request is refused, so every one needs Redis.
const LIMIT: &str = "key = \"ip\"\nrate = \"100000/second\"\nburst = 100000";

fn start(proxy: &FaultProxy, timeout: Duration) -> Weir {
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", timeout.as_millis());
    let config = Config::echo().store(&proxy.store()).store(&waits).limit(LIMIT).also(FREE);
    Weir::start(&config.server(&format!("workers = {WORKERS}")))
}

fn load(weir: &Weir) -> Load {
    Load::start(&[weir.address()], &[get("/")], 4)
}

/// How many lines of the log or the audit log have that in them.
fn lines(weir: &Weir, what: &str) -> usize {
    weir.output().lines().filter(|line| line.contains(what)).count()
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

/// The log line with the advised `timeout`, once it is there.
#[track_caller]
fn advice(weir: &Weir) -> String {
    let told = || weir.output().lines().find(|it| it.contains("answers take")).map(str::to_owned);
    wait_at_most(LONG_PATIENCE, "it says what it would take", || told().is_some());
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

/// A Redis that hangs takes no payments: requests for a bucket that owes something stop waiting for them
/// long before the breaker opens.
#[test]
fn requests_for_one_bucket_do_not_wait_again_and_again_for_a_redis_that_hangs() {
    const CLIENTS: usize = 16;
    let timeout = Duration::from_millis(100);
    let redis = Redis::start();
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", timeout.as_millis());
    let config = Config::echo().store(&redis.store()).store(&waits);
    let config = config.limit("key = \"global\"\nrate = \"10000/second\"\nburst = 100000");
    let weir = Weir::start(&config.server("workers = 2"));
    let open = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let end = SetOnDrop(&open);
        let clients = (0..CLIENTS).map(|_| {
            scope.spawn(|| {
                let (mut client, mut waited) = (weir.connect(), 0);
                while !open.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    assert_eq!(client.ask(get("/")).status, 200);
                    waited += usize::from(asked.elapsed() >= timeout);
                    // So that requests do not all come at once, in calls that they share.
                    std::thread::sleep(Duration::from_millis(5));
                }
                waited
            })
        });
        let clients: Vec<_> = clients.collect();
        wait_until("it is under load", || calls(&weir) > 200.0);
        redis.stop();
        wait_until("the breaker is open", || weir.degraded());
        drop(end);
        clients.into_iter().map(|it| it.join().unwrap()).sum::<usize>()
    });
    redis.cont();
    assert!(waited <= 4 * CLIENTS, "{waited} waited for all of `timeout`");
}

/// All requests are for a bucket that owes something from the first late answer on. Payments are all that
/// shows that Redis is too slow, and they are answered.
#[test]
fn slow_redis_is_noticed_though_all_requests_are_for_one_bucket() {
    let timeout = Duration::from_millis(100);
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", timeout.as_millis());
    let config = Config::echo().store(&proxy.store()).store(&waits).server("workers = 1");
    let weir = Weir::start(&config.limit("key = \"global\"\nrate = \"1/second\"\nburst = 1000000"));
    let load = load(&weir);
    wait_until("it is under load", || calls(&weir) > 100.0);
    proxy.set(Link::Slow(2 * timeout));
    wait_until("the breaker is open", || weir.degraded());
    assert_eq!(reason(&weir), "timeout");
    assert!(load.finish().iter().all(|it| it.status == 200));
}

/// What passes while a connection is made anew is owed. That must not keep a busy bucket from Redis for
/// ever after: requests come faster than it is paid, and no call would show that Redis answers again.
#[test]
fn busy_bucket_is_decided_by_redis_again_once_connections_are_back() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let waits = format!("timeout = \"{}ms\"\non_error = \"local\"", TIMEOUT.as_millis());
    let config = Config::echo().store(&proxy.store()).store(&waits).server("workers = 1");
    // Little refills, so that what is owed stays so.
    let weir = Weir::start(&config.limit("key = \"ip\"\nrate = \"1/second\"\nburst = 100000"));
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    // It takes several answers to connect.
    proxy.set(Link::Slow(TIMEOUT * 5 / 8));
    proxy.cut();
    (0..2).for_each(|_| assert_eq!(client.ask(get("/")).status, 200));
    let load = load(&weir);
    proxy.set(Link::Slow(TIMEOUT / 8));
    let before = calls(&weir);
    wait_until("Redis decides again", || calls(&weir) > before + 20.0);
    assert_eq!(opened(&weir), 0, "{}", weir.output());
    assert!(load.finish().iter().all(|it| it.status == 200));
}

#[track_caller]
fn is_not_used_until_it_is_fast(timeout: Duration, delay: Duration) {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy, timeout);
    let load = load(&weir);
    load.wait_for(100);
    assert!(!weir.degraded());
    proxy.set(Link::Slow(delay));
    wait_until("the gateway decides without Redis", || weir.degraded());
    let before = calls(&weir);
    load.wait_for(1000);
    let advice = advice(&weir);
    let configured = format!("store.timeout = {}ms", timeout.as_millis());
    assert!(advice.contains(&configured), "{advice}");
    assert!(advised(&advice) > delay.as_millis(), "{advice}");
    load.wait_for(500);
    assert_eq!(calls(&weir), before, "nobody waits for a Redis that is too slow");
    assert_eq!((opened(&weir), closed(&weir)), (1, 0), "{}", weir.output());
    assert_eq!(lines(&weir, "store still degraded"), 1, "once a minute: {}", weir.output());
    assert_eq!(reason(&weir), "timeout");
    assert!(weir.degraded());
    proxy.set(Link::Good);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    wait_until("it decides again", || calls(&weir) > before + 20.0);
    assert!(load.finish().iter().all(|it| it.status == 200));
}

#[test]
fn redis_slower_than_the_timeout_by_half_is_not_used_until_it_is_fast() {
    is_not_used_until_it_is_fast(TIMEOUT, TIMEOUT * 3 / 2);
}

#[test]
fn redis_four_times_slower_than_the_timeout_is_not_used_until_it_is_fast() {
    is_not_used_until_it_is_fast(TIMEOUT / 2, 2 * TIMEOUT);
}

#[test]
fn redis_that_is_too_slow_at_the_start_is_not_used_and_reported() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    proxy.set(Link::Slow(TIMEOUT * 3 / 2));
    let weir = start(&proxy, TIMEOUT);
    let load = load(&weir);
    load.wait_for(20);
    let advice = advice(&weir);
    // Advised at once, unless a busy machine kept the first answer from coming at all.
    let at_once = advice.contains("ERROR store degraded");
    assert!(at_once || lines(&weir, "no answer in time; limits are served by") == 1, "{advice}");
    assert!(advised(&advice) > (TIMEOUT * 3 / 2).as_millis(), "{advice}");
    assert_eq!(reason(&weir), "timeout");
    assert!(weir.degraded());
    assert_eq!(calls(&weir), 0.0, "nobody waits for it");
    proxy.set(Link::Good);
    wait_at_most(RECOVERY, "Redis is in use", || !weir.degraded());
    wait_until("it decides", || calls(&weir) > 20.0);
    assert_eq!(opened(&weir), 1);
}

#[test]
fn redis_that_is_slow_every_other_time_is_not_used() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy, TIMEOUT);
    let load = load(&weir);
    load.wait_for(100);
    proxy.set(Link::SlowOneIn(2, TIMEOUT * 3 / 2));
    let begin = calls(&weir);
    wait_until("the gateway decides without Redis", || weir.degraded());
    let before = calls(&weir);
    // Of the calls before it opened few were late, though never three in a row.
    let late = metric(&weir, "weir_store_errors_total", &[("reason", "timeout")]);
    let most = before / 20.0 + 5.0 * WORKERS;
    assert!(late <= most, "{late} late of {before}, {begin} of them before");
    load.wait_for(2000);
    assert_eq!(calls(&weir), before, "it would be as slow again");
    assert_eq!((opened(&weir), closed(&weir)), (1, 0));
    proxy.set(Link::Good);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
}

#[test]
fn redis_that_is_occasionally_late_stays_in_use_and_recovers() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let jitter = Link::SlowOneIn(60, TIMEOUT * 3 / 2);
    proxy.set(jitter);
    let weir = start(&proxy, TIMEOUT);
    let load = load(&weir);
    let late = || metric(&weir, "weir_store_errors_total", &[("reason", "timeout")]);
    wait_at_most(LONG_PATIENCE, "some are late", || late() >= 20.0);
    assert_eq!(opened(&weir), 0, "{} of {} were late", late(), calls(&weir));
    proxy.set(Link::Refusing);
    proxy.cut();
    wait_until("the gateway decides without Redis", || weir.degraded());
    proxy.set(jitter);
    wait_at_most(RECOVERY, "Redis is in use again", || !weir.degraded());
    let before = calls(&weir);
    wait_until("it decides again", || calls(&weir) > before + 20.0);
    drop(load);
}

/// A decision that comes while a call is out waits for that one and for its own, so a round trip
/// below `timeout` is too slow for a busy gateway, though fast enough for a probe.
#[test]
fn redis_too_slow_only_under_load_is_tried_less_and_less_often() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let weir = start(&proxy, 2 * TIMEOUT);
    let load = load(&weir);
    load.wait_for(100);
    proxy.set(Link::Slow(2 * TIMEOUT * 7 / 10));
    wait_until("the gateway decides without Redis", || opened(&weir) >= 1);
    let begin = Instant::now();
    wait_at_most(LONG_PATIENCE, "it has done so four times", || opened(&weir) >= 4);
    // It has to do well for half a second after the first relapse, for two after the second.
    let (took, count) = (begin.elapsed(), opened(&weir));
    assert!(took >= Duration::from_millis(2500), "{count} times within {took:?}");
    drop(load);
}
