//! Overrides in Redis, which all its gateways share.

use std::time::Duration;

use serde_json::json;

use crate::operations::overrides::{ANN, EVE, limited, numbers, passed, put, refused, user};
use crate::support::{Redis, TestStore, Weir, wait_at_most, wait_until};

/// In which what was decided at one gateway holds at the others.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn override_made_at_one_gateway_applies_at_all_and_outlives_it() {
    let test_store = TestStore::redis();
    let config = test_store.configure(limited());
    let [a, b] = Weir::start_two(&config);
    let made = put(&a, ANN, &json!({"burst": 50, "reason": "a launch"}));
    put(&a, EVE, &json!({}));
    wait_at_most(SOON, "it holds at the other", || numbers(&b, "ann").starts_with("q=50;"));
    wait_at_most(SOON, "she is kept out there", || user(&b, "eve").status == 403);
    assert_eq!(b.admin(ANN).json(), made);
    drop(a);
    let c = Weir::start(&config);
    for weir in [&b, &c] {
        wait_at_most(SOON, "it still holds", || numbers(weir, "ann").starts_with("q=50;"));
        wait_at_most(SOON, "she is still out", || user(weir, "eve").status == 403);
    }
    assert_eq!(c.operate("DELETE", EVE, "").status, 200);
    for weir in [&b, &c] {
        wait_at_most(SOON, "she is in again", || user(weir, "eve").status != 403);
    }
    put(&b, ANN, &json!({"burst": 60, "ttl": "3s"}));
    for weir in [&b, &c] {
        wait_at_most(SOON, "the later one holds", || {
            let shown = numbers(weir, "ann");
            shown.starts_with("q=60;") || shown == "q=2;w=7200"
        });
        wait_until("it has ended", || numbers(weir, "ann") == "q=2;w=7200");
        assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
    }
}

/// The seconds after which the overrides in Redis expire.
fn lifetime(redis: &Redis) -> i64 {
    let keys = redis.keys();
    let key = keys.iter().find(|key| key.name.contains("overrides"));
    let key = key.unwrap_or_else(|| panic!("no overrides among {keys:?}"));
    assert_eq!(key.kind, "hash");
    key.ttl / 1000
}

#[test]
fn overrides_in_redis_expire_with_the_last_of_them_and_not_before() {
    let redis = Redis::start();
    let config = limited().store(&redis.store());
    let [a, b] = Weir::start_two(&config);
    put(&a, ANN, &json!({"burst": 50, "ttl": "10s"}));
    assert!((1..=120).contains(&lifetime(&redis)), "{}", lifetime(&redis));
    for round in 0..5 {
        let long = format!("/v1/access/deny/user/long-{round}");
        put(&a, &long, &json!({"ttl": "2h"}));
        // The other gateway has not read it yet.
        put(&b, &format!("/v1/access/deny/user/short-{round}"), &json!({"ttl": "1s"}));
        assert!((7000..=7400).contains(&lifetime(&redis)), "{}", lifetime(&redis));
        b.operate("DELETE", &format!("/v1/access/deny/user/short-{round}"), "");
        assert!((7000..=7400).contains(&lifetime(&redis)), "{}", lifetime(&redis));
    }
    wait_at_most(SOON, "all are read", || user(&b, "long-4").status == 403);
}

#[test]
fn overrides_stay_in_force_without_redis_and_none_can_be_made() {
    let mut redis = Redis::start();
    let weir = Weir::start(&limited().store(&redis.store()));
    let made = put(&weir, ANN, &json!({"burst": 50}));
    wait_until("it holds", || numbers(&weir, "ann").starts_with("q=50;"));
    redis.kill();
    let changes = [("PUT", ANN, "{\"burst\": 70}"), ("DELETE", ANN, ""), ("PUT", EVE, "{}")];
    for (method, target, body) in changes {
        let response = weir.operate(method, target, body);
        refused(&response, 503, "store_unavailable", "has not confirmed it");
    }
    assert_eq!(weir.admin("/v1/overrides").json(), json!([made]));
    assert_eq!(weir.admin("/v1/access").json(), json!([]));
    assert!(numbers(&weir, "ann").starts_with("q=50;"), "{}", numbers(&weir, "ann"));
    assert_ne!(user(&weir, "eve").status, 403);
    redis.restart();
    wait_until("Redis is in use again", || !weir.degraded());
    put(&weir, EVE, &json!({}));
    wait_until("she is kept out", || user(&weir, "eve").status == 403);
}

#[test]
fn garbage_under_the_overrides_key_is_replaced_and_decisions_continue() {
    let redis = Redis::start();
    // No error of a busy machine's.
    let weir = Weir::start(&limited().store(&redis.store()).store("timeout = \"5s\""));
    put(&weir, EVE, &json!({}));
    let name = redis.keys().into_iter().find(|key| key.name.contains("overrides")).unwrap().name;
    redis.command(&["SET", &name, "something"]);
    wait_until("it is gone", || redis.keys().iter().all(|key| key.name != name));
    put(&weir, EVE, &json!({}));
    wait_until("she is kept out", || user(&weir, "eve").status == 403);
    assert_eq!(weir.metrics().value("weir_store_errors_total", &[]), Some(0.0));
}

#[test]
fn redis_user_without_rights_on_overrides_decides_without_them() {
    let redis = Redis::start();
    let words = "ACL SETUSER weir on >s ~* +@all -hget -hgetall -hset -hdel";
    redis.command(&words.split(' ').collect::<Vec<_>>());
    let url = format!("kind = \"redis\"\nurl = \"redis://weir:s@{}\"", redis.address());
    // No error of a busy machine's.
    let weir = Weir::start(&limited().store(&url).store("timeout = \"5s\""));
    let response = weir.operate("PUT", EVE, "{}");
    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(passed(&weir, "ann", 3), 2);
    let denied = || {
        let count = redis.info("errorstats", "errorstat_NOPERM");
        count.and_then(|it| it.strip_prefix("count=")?.parse::<u64>().ok()).expect("a count")
    };
    let before = denied();
    wait_until("it has asked again and again", || denied() > before + 2);
    assert!(!weir.degraded(), "{}", weir.output());
    assert_eq!(weir.metrics().value("weir_store_errors_total", &[]), Some(0.0));
}

/// As an earlier version has stored it: by the text that was written.
#[test]
fn stored_override_in_another_spelling_applies_to_its_bucket() {
    let redis = Redis::start();
    let weir = Weir::start(&limited().store(&redis.store()));
    put(&weir, ANN, &json!({"burst": 50}));
    let name = redis.keys().into_iter().find(|key| key.name.contains("overrides")).unwrap().name;
    let until = crate::support::issuer::now() + 600;
    for (spelling, burst) in [("%61nn", 60), ("b%65n", 70)] {
        let entry = json!({
            "kind": "override", "limit": "per-ip", "key": spelling, "burst": burst, "until": until,
        });
        redis.command(&["HSET", &name, &format!("override/per-ip/{spelling}"), &entry.to_string()]);
    }
    redis.command(&["HSET", &name, "mark", "another"]);
    wait_at_most(SOON, "they are read", || numbers(&weir, "ben").starts_with("q=70;"));
    assert!(numbers(&weir, "ann").starts_with("q=50;"), "its own name comes first");
    let keys = || {
        let all = weir.admin("/v1/overrides").json();
        let all = all.as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap().to_owned());
        all.collect::<Vec<_>>()
    };
    assert_eq!(keys(), ["ann", "ben"], "each once");
    // Whatever was stored goes with it, and does not come back.
    assert_eq!(weir.operate("DELETE", ANN, "").status, 200);
    put(&weir, "/v1/overrides/per-ip/ben", &json!({"burst": 80}));
    assert_eq!(keys(), ["ben"]);
    let stored = redis.command(&["HKEYS", &name]);
    let stored = format!("{stored:?}");
    assert!(stored.contains("per-ip") && !stored.contains('%'), "{stored}");
    wait_until("it holds no more", || numbers(&weir, "ann") == "q=2;w=7200");
    wait_until("the new one holds", || numbers(&weir, "ben").starts_with("q=80;"));
}
