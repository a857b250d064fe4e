//! A bucket that is known to be empty is refused without a call, and never for too long.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::limits::tenants::with_tenants;
use crate::support::{Config, Redis, Weir, get, get_with, wait_at_most};

/// How long a refusal may be believed without asking again, with room for a busy machine.
const BELIEVED: Duration = Duration::from_secs(4);

/// Redis is waited for, and a failure shows as a 503.
const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn with_burst(redis: &Redis, burst: u32) -> Config {
    let limit = format!("key = \"header:x-user\"\nrate = \"1/hour\"\nburst = {burst}");
    Config::echo().store(&redis.store()).store(PATIENT).limit(&limit)
}

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

#[test]
fn empty_bucket_is_refused_without_a_redis_call() {
    let redis = Redis::start();
    let weir = Weir::start(&with_burst(&redis, 3));
    let mut client = weir.connect();
    assert_eq!([0; 4].map(|_| client.ask(as_user("a")).status), [200, 200, 200, 429]);
    let monitor = redis.monitor();
    let begin = Instant::now();
    let refusals: Vec<_> = (0..200).map(|_| client.ask(as_user("a"))).collect();
    let looks = 1 + begin.elapsed().as_secs() as usize;
    assert!(refusals.iter().all(|it| it.status == 429));
    let calls = monitor.take_decisions().len();
    assert_eq!(redis.buckets().len(), 1);
    assert!(calls <= looks, "{calls} calls for what was known");
    // Refused without asking, it still is a whole refusal.
    let refusal = refusals.last().unwrap();
    let wait: u64 = refusal.one("retry-after").parse().unwrap();
    assert!((3500..=3600).contains(&wait), "{wait}");
    assert_eq!(refusal.error(), "rate_limit_exceeded");
    assert!(refusal.one("ratelimit").contains("r=0"), "{refusal:?}");
    // Nobody else is refused by it.
    assert_eq!(client.ask(as_user("b")).status, 200);
}

#[test]
fn deleted_bucket_is_noticed_soon() {
    let redis = Redis::start();
    let weir = Weir::start(&with_burst(&redis, 2));
    let mut client = weir.connect();
    assert_eq!([0; 3].map(|_| client.ask(as_user("a")).status), [200, 200, 429]);
    let buckets = redis.buckets();
    assert_eq!(buckets.len(), 1, "{buckets:?}");
    redis.command(&["DEL", &buckets[0]]);
    wait_at_most(BELIEVED, "the reset is noticed", || client.ask(as_user("a")).status == 200);
    assert_eq!([0; 2].map(|_| client.ask(as_user("a")).status), [200, 429], "exactly once more");
}

#[test]
fn raised_limit_applies_at_once() {
    let redis = Redis::start();
    let weir = Weir::start(&with_burst(&redis, 5));
    let mut client = weir.connect();
    let statuses = |client: &mut crate::support::Client, count: usize| {
        (0..count).map(|_| client.ask(as_user("a")).status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&mut client, 7), [200, 200, 200, 200, 200, 429, 429]);
    // The same again: nothing is given back.
    weir.reload(&with_burst(&redis, 5).also("# touched"));
    assert_eq!(statuses(&mut client, 2), [429, 429]);
    weir.reload(&with_burst(&redis, 8));
    assert_eq!(statuses(&mut client, 4), [200, 200, 200, 429], "larger by three");
    weir.reload(&with_burst(&redis, 2));
    assert_eq!(statuses(&mut client, 1), [429]);
}

#[test]
fn a_refusal_ends_at_its_promised_instant() {
    let redis = Redis::start();
    let limit = "key = \"ip\"\nrate = \"2/second\"\nburst = 1";
    let config = Config::echo().store(&redis.store()).store(PATIENT).limit(limit);
    let weirs = Weir::start_two(&config);
    for _ in 0..3 {
        let refusal = (0..100).flat_map(|_| &weirs).map(|it| it.get("/"));
        let refusal = refusal.into_iter().find(|it| it.status == 429).expect("one is refused");
        let millis = refusal.json()["retry_after_ms"].as_u64().unwrap();
        assert!((1..=500).contains(&millis), "{millis}");
        // Asked again and again meanwhile: that must put nothing off.
        let until = Instant::now() + Duration::from_millis(millis);
        let mut early = 429;
        while early == 429 && Instant::now() + Duration::from_millis(50) < until {
            early = weirs[0].get("/").status;
            // A busy machine may hold up a request until its time has come.
            assert!(early == 429 || Instant::now() >= until, "{early} before the time");
            // The pace of the retries.
            thread::sleep(Duration::from_millis(10));
        }
        // The wait is what is tested, so it is a sleep.
        thread::sleep(until.saturating_duration_since(Instant::now()));
        if early == 429 {
            assert_eq!(weirs[1].get("/").status, 200);
        }
    }
    let mut client = weirs[0].connect();
    wait_at_most(BELIEVED, "it passes again", || client.ask(get("/")).status == 200);
}

#[test]
fn known_refusal_hides_no_longer_one() {
    let redis = Redis::start();
    let tree = r#"
        [limits.tenants]
        cost = { from = "header:x-cost", max = 1000 }
        [tenants.p]
        rate = "1/minute"
        burst = 5
        [tenants.a]
        parent = "p"
        [tenants.b]
        parent = "p"
        rate = "1/day"
        burst = 2
    "#;
    let config = with_tenants(tree).server("workers = 1").store(&redis.store()).store(PATIENT);
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    let mut ask = |tenant: &str, cost: u64| {
        client.ask(get_with("/", &format!("X-Tenant: {tenant}\r\nX-Cost: {cost}\r\n")))
    };
    assert_eq!([0; 2].map(|_| ask("b", 1).status), [200, 200]);
    while ask("a", 1).status == 200 {}
    // The parent is known to refuse for less than a minute, and the child does so for a day.
    let refused = ask("b", 1).json();
    assert_eq!(refused["violated-policies"], json!(["tenants/b", "tenants/p"]), "{refused}");
    let wait = refused["retry_after_ms"].as_u64().unwrap();
    assert!(wait > 86_000_000, "{wait}");
    // What never fits is refused for good, whatever is known.
    let refused = ask("b", 3).json();
    assert_eq!(refused["error"], "cost_exceeds_limit", "{refused}");
}
