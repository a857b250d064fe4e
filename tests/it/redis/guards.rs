//! Guards of gateways that share Redis: counts add up, and blocks are known to all.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::limits::guards::{
    FLOOD, audited, detections, flood_until, is_blocked, is_warned, tables, user,
};
use crate::support::fault_proxy::Link;
use crate::support::{Cluster, Config, FaultProxy, Redis, TestStore, Upstream, Weir, wait_at_most};

/// In which a block at one gateway is known to the others.
const SOON: Duration = Duration::from_secs(1);

/// More than 20 requests in two seconds; penalties that outlast the test.
fn slow_guard() -> String {
    FLOOD
        .replace("\"1s\"", "\"2s\"")
        .replace("threshold = 3", "threshold = 20")
        .replace("\"3s\"", "\"10m\"")
}

fn config(upstream: &Upstream, guard: &str) -> Config {
    Config::to(upstream).open().operated().routes(&tables(guard, ""))
}

#[test]
fn counts_of_two_gateways_add_up_to_one_offence() {
    let (test_store, upstream) = (TestStore::redis(), Upstream::ok());
    let config = test_store.configure(config(&upstream, &slow_guard()));
    let [a, b] = Weir::start_two(&config);
    let (mut at_a, mut at_b) = (a.connect(), b.connect());
    let penalty = |weir: &Weir, name: &str| {
        let listed = weir.penalties();
        let mut listed = listed.as_array().cloned().unwrap_or_default().into_iter();
        listed.find(|it| it["key"] == name)
    };
    // A window may end in the middle of an attempt: that one proves nothing.
    let proven = (0..6).any(|attempt| {
        let eve = format!("eve-{attempt}");
        for _ in 0..15 {
            // Neither gateway sees more than 20 in a window by itself.
            assert!(!is_blocked(&user(&mut at_a, &eve)) && !is_blocked(&user(&mut at_b, &eve)));
        }
        let deadline = Instant::now() + SOON;
        loop {
            if let (Some(one), Some(other)) = (penalty(&a, &eve), penalty(&b, &eve)) {
                assert_eq!((&one["stage"], &other["stage"]), (&"warned".into(), &"warned".into()));
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(proven, "thirty in two seconds are too many, whoever counts them");
}

/// Has one gateway block somebody, and waits until another one knows.
#[track_caller]
fn block_is_known(a: &Weir, b: &Weir) {
    flood_until(&mut a.connect(), "eve", "blocked", is_blocked);
    let mut at_b = b.connect();
    wait_at_most(SOON + Duration::from_secs(2), "the other one knows", || {
        b.penalties()[0]["stage"] == "blocked"
    });
    assert!(is_blocked(&user(&mut at_b, "eve")));
    assert_eq!(user(&mut at_b, "ann").status, 200);
}

#[test]
fn block_is_known_to_other_gateways_and_survives_the_one_that_made_it() {
    let (test_store, upstream) = (TestStore::redis(), Upstream::ok());
    let config = test_store.configure(config(&upstream, &slow_guard()));
    let [mut a, b] = Weir::start_two(&config);
    block_is_known(&a, &b);
    a.signal(Signal::KILL);
    a.exit();
    let again = Weir::start(&config);
    assert!(is_blocked(&user(&mut again.connect(), "eve")), "from the first request on");
    assert_eq!(again.operate("DELETE", "/v1/penalties/flood/eve", "").status, 200);
    for weir in [&again, &b] {
        let mut client = weir.connect();
        wait_at_most(SOON + Duration::from_secs(2), "it is lifted for all", || {
            user(&mut client, "eve").status == 200
        });
    }
}

#[test]
fn gateways_of_a_cluster_share_their_guards() {
    let (cluster, upstream) = (Cluster::start(), Upstream::ok());
    let config = config(&upstream, &slow_guard()).store(&cluster.store());
    let [a, b] = Weir::start_two(&config);
    block_is_known(&a, &b);
}

#[test]
fn without_redis_each_gateway_counts_for_itself_and_blocks_stay() {
    let (mut redis, upstream) = (Redis::start(), Upstream::ok());
    let config = config(&upstream, &slow_guard()).store(&redis.store());
    let [a, b] = Weir::start_two(&config);
    block_is_known(&a, &b);
    redis.kill();
    for weir in [&a, &b] {
        let mut client = weir.connect();
        assert!(is_blocked(&user(&mut client, "eve")));
        flood_until(&mut client, "mallory", "blocked", is_blocked);
    }
    redis.restart();
    // Redis is back and empty: what the gateways know is told again.
    let mut last = None;
    wait_at_most(Duration::from_secs(10), "a third one hears of both", || {
        let weir = Weir::start(&config);
        let known = weir.penalties();
        let many = known.as_array().map_or(0, Vec::len);
        last = Some(known);
        many == 2
    });
}

#[test]
fn guards_do_what_on_error_says_while_redis_is_away() {
    let (mut redis, upstream) = (Redis::start(), Upstream::ok());
    let start = |on_error: &str| {
        let guard = format!("{}on_error = \"{on_error}\"\n", slow_guard());
        Weir::start(&config(&upstream, &guard).store(&redis.store()))
    };
    let (allow, deny) = (start("allow"), start("deny"));
    flood_until(&mut allow.connect(), "eve", "blocked", is_blocked);
    redis.kill();
    for weir in [&allow, &deny] {
        wait_at_most(Duration::from_secs(5), "it is noticed", || weir.degraded());
    }
    let mut client = deny.connect();
    wait_at_most(SOON, "nobody passes", || user(&mut client, "ann").status == 503);
    assert_eq!(user(&mut client, "ann").json()["error"], "store_unavailable");
    let mut client = allow.connect();
    assert!(is_blocked(&user(&mut client, "eve")), "what is known stays");
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..100 {
        assert_eq!(user(&mut client, "ann").status, 200, "and nothing is counted");
    }
}

#[test]
fn shadow_guard_refuses_nobody_while_redis_is_away() {
    let (mut redis, upstream) = (Redis::start(), Upstream::ok());
    let guard = format!("{}mode = \"shadow\"\non_error = \"deny\"\n", slow_guard());
    let weir = Weir::start(&config(&upstream, &guard).store(&redis.store()));
    redis.kill();
    wait_at_most(Duration::from_secs(5), "it is noticed", || weir.degraded());
    let (mut client, began) = (weir.connect(), Instant::now());
    while began.elapsed() < SOON {
        assert_eq!(user(&mut client, "ann").status, 200);
    }
}

#[test]
fn penalty_that_could_not_be_announced_is_announced_later_and_counted_once() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let words = "ACL SETUSER weir on >s ~* +@all -xadd";
    redis.command(&words.split(' ').collect::<Vec<_>>());
    let start = |user: &str| {
        let url = format!("kind = \"redis\"\nurl = \"redis://{user}{}\"", redis.address());
        Weir::start(&config(&upstream, &slow_guard()).store(&url).store("timeout = \"5s\""))
    };
    let (a, b) = (start("weir:s@"), start(""));
    let sent = Cell::new(0);
    flood_until(&mut a.connect(), "eve", "warned", |response| {
        sent.set(sent.get() + 1);
        is_warned(response)
    });
    let counter = || redis.keys().into_iter().find(|key| key.name.contains("@guard:flood"));
    wait_at_most(SOON, "it is reported", || counter().is_some());
    let name = counter().expect("a counter").name;
    for _ in 0..50 {
        let state = redis.command(&["GET", &name]).text();
        let counted: u64 = state.split(' ').nth(1).expect("a count").parse().expect("a number");
        assert!(counted <= sent.get(), "{state} of {}", sent.get());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(b.penalties(), serde_json::json!([]));
    redis.command(&["ACL", "SETUSER", "weir", "+xadd"]);
    wait_at_most(SOON + SOON, "the other one hears of it", || {
        b.penalties()[0]["stage"] == "warned"
    });
}

#[test]
fn penalty_tells_how_many_requests_it_was_noticed_with_on_every_gateway() {
    let (test_store, upstream) = (TestStore::redis(), Upstream::ok());
    let config = test_store.configure(config(&upstream, &slow_guard()));
    let [a, b] = Weir::start_two(&config);
    block_is_known(&a, &b);
    // Past the end of the window that was counted.
    std::thread::sleep(Duration::from_secs(2));
    for weir in [&a, &b] {
        assert!(is_blocked(&user(&mut weir.connect(), "eve")));
        assert_eq!(weir.penalties()[0]["count"], 21);
    }
}

#[test]
fn guards_do_what_on_error_says_if_redis_lets_them_share_nothing() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let words = "ACL SETUSER weir on >s ~* +@all -xadd -xrange";
    redis.command(&words.split(' ').collect::<Vec<_>>());
    let guard = format!("{}on_error = \"deny\"\n", slow_guard());
    let url = format!("kind = \"redis\"\nurl = \"redis://weir:s@{}\"", redis.address());
    // No error of a busy machine's.
    let config = config(&upstream, &guard).store(&url).store("timeout = \"5s\"");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    wait_at_most(SOON, "nobody passes", || user(&mut client, "ann").status == 503);
    assert!(!weir.degraded(), "limits are decided by Redis");
    redis.command(&["ACL", "SETUSER", "weir", "+xadd", "+xrange"]);
    wait_at_most(SOON, "it is let in again", || user(&mut client, "ann").status == 200);
}

#[test]
fn offence_that_two_gateways_notice_is_counted_and_recorded_once() {
    let (test_store, upstream) = (TestStore::redis(), Upstream::ok());
    let config = test_store.configure(config(&upstream, &slow_guard()));
    let [a, b] = Weir::start_two(&config);
    let (mut at_a, mut at_b) = (a.connect(), b.connect());
    wait_at_most(Duration::from_secs(10), "both know of the block", || {
        // Each has more than the threshold before it can have heard of the other.
        (0..30).all(|_| is_blocked(&user(&mut at_a, "eve")) & is_blocked(&user(&mut at_b, "eve")))
    });
    let sum = |action: &str| detections(&a, action) + detections(&b, action);
    let lines = |event: &str| audited(&a, event).len() + audited(&b, event).len();
    wait_at_most(SOON, "it is counted", || sum("blocked") > 0.0);
    wait_at_most(SOON, "it is recorded", || lines("burst_detected_blocked") > 0);
    // What the other one knows of it has been reported by then.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((sum("warned"), sum("blocked")), (1.0, 1.0));
    assert_eq!((lines("burst_detected_warning"), lines("burst_detected_blocked")), (1, 1));
}

#[test]
fn every_key_of_guards_expires() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let weir = Weir::start(&config(&upstream, &slow_guard()).store(&redis.store()));
    flood_until(&mut weir.connect(), "eve", "blocked", is_blocked);
    let has = |name: &str| redis.keys().iter().any(|key| key.name.contains(name));
    wait_at_most(SOON, "it is announced", || has("@penalties") && has("@guard:flood"));
    for key in redis.keys() {
        assert!(key.expires(), "{key:?}");
    }
}

#[test]
fn lifted_penalty_stays_lifted_while_other_gateways_count() {
    let (test_store, upstream) = (TestStore::redis(), Upstream::ok());
    let config = test_store.configure(config(&upstream, &slow_guard()));
    let [a, b] = Weir::start_two(&config);
    let mut at_b = b.connect();
    for attempt in 0..3 {
        let eve = format!("eve-{attempt}");
        flood_until(&mut a.connect(), &eve, "warned", is_warned);
        wait_at_most(SOON + SOON, "the other one knows", || is_warned(&user(&mut at_b, &eve)));
        let path = format!("/v1/penalties/flood/{eve}");
        assert_eq!(a.operate("DELETE", &path, "").status, 200);
        let lifted = Instant::now();
        while lifted.elapsed() < SOON + SOON {
            // Few enough to be no offence; each is reported with what is known here of the key.
            let is_known = is_warned(&user(&mut at_b, &eve));
            assert!(!is_known || lifted.elapsed() < SOON, "it is known to be lifted");
            assert_eq!(a.penalties(), serde_json::json!([]), "{:?}", lifted.elapsed());
            std::thread::sleep(Duration::from_millis(130));
        }
        assert_eq!(b.penalties(), serde_json::json!([]));
    }
}

#[test]
fn stream_keeps_no_more_than_penalties_need() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let config = config(&upstream, FLOOD).store(&redis.store()).store("max_keys = 1000");
    let length = || redis.command(&["XLEN", "weir:@penalties"]).integer();
    let fill = |many: u64, id: &dyn Fn(u64) -> String| {
        for number in 0..many {
            redis.command(&["XADD", "weir:@penalties", &id(number), "penalty", "{}"]);
        }
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let hour_ago = since_epoch.as_millis() - 3_600_000;
    fill(2_000, &|number| format!("{hour_ago}-{}", number + 1));
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    wait_at_most(SOON * 10, "what is old is gone", || {
        flood_until(&mut client, "eve", "warned", is_warned);
        flood_until(&mut client, "eve", "clean", |response| !is_warned(response));
        length() < 300
    });
    assert!((1..=70).contains(&redis.command(&["TTL", "weir:@penalties"]).integer()));
    fill(3_000, &|_| "*".to_owned());
    let number = Cell::new(0);
    wait_at_most(SOON * 10, "there are not too many", || {
        number.set(number.get() + 1);
        flood_until(&mut client, &format!("eve-{}", number.get()), "warned", is_warned);
        length() < 1_300
    });
}

#[test]
fn many_penalties_are_announced_at_once() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let proxy = FaultProxy::to(redis.address());
    let start = |store: &str| {
        Weir::start(&config(&upstream, &slow_guard()).store(store).store("timeout = \"5s\""))
    };
    let (far, near) = (start(&proxy.store()), start(&redis.store()));
    proxy.set(Link::Slow(Duration::from_millis(20)));
    let mut client = far.connect();
    for number in 0..400 {
        flood_until(&mut client, &format!("eve-{number}"), "warned", is_warned);
    }
    // One after another they would take 16 seconds and more.
    wait_at_most(Duration::from_secs(5), "the other one hears of all", || {
        let listed = near.admin("/v1/penalties?max=1000").json();
        listed["penalties"].as_array().map(Vec::len) == Some(400)
    });
}

#[test]
fn penalties_are_told_again_to_a_redis_that_was_emptied() {
    let (redis, upstream) = (Redis::start(), Upstream::ok());
    let config = config(&upstream, &slow_guard()).store(&redis.store());
    let [a, b] = Weir::start_two(&config);
    block_is_known(&a, &b);
    redis.command(&["FLUSHALL"]);
    wait_at_most(SOON + SOON, "it is announced again", || {
        redis.keys().iter().any(|key| key.name.contains("@penalties"))
    });
    let third = Weir::start(&config);
    assert!(is_blocked(&user(&mut third.connect(), "eve")), "from the first request on");
}
