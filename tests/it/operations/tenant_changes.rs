//! Changes of tenants under stress: while Redis stands still.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::tenants::{PARTNER, put, target};
use crate::limits::tenants::with_tenants;
use crate::support::{Redis, TestStore, Weir, wait_until};

fn redis_of(test_store: &TestStore) -> &Redis {
    let TestStore::Redis(redis) = test_store else { unreachable!("it is Redis") };
    redis
}

#[test]
fn a_change_that_is_refused_for_want_of_time_is_never_made() {
    let test_store = TestStore::redis();
    let weir = &Weir::start(&test_store.configure(with_tenants(PARTNER)));
    let redis = redis_of(&test_store);
    let overloaded = &AtomicBool::new(false);
    redis.stop();
    // One after another they wait for Redis, the last of them in vain.
    let answers: Vec<_> = thread::scope(|scope| {
        let change = |n: usize| {
            scope.spawn(move || {
                let name = format!("n{n:02}");
                let response = weir.operate("PUT", &target(&name), "{\"rate\": \"10/minute\"}");
                let said = response.json();
                if said["error"] == "overloaded" {
                    overloaded.store(true, Ordering::Relaxed);
                }
                (name, response.status, said)
            })
        };
        let changes: Vec<_> = (0..16).map(change).collect();
        wait_until("one is refused for want of time", || overloaded.load(Ordering::Relaxed));
        redis.cont();
        changes.into_iter().map(|it| it.join().unwrap()).collect()
    });
    wait_until("Redis is used again", || !weir.degraded());
    put(weir, "last", &json!({"rate": "10/minute"}));
    for (name, status, said) in answers {
        let exists = weir.admin(&target(&name)).status == 200;
        if status == 200 {
            assert!(exists, "{name}: {said}");
            continue;
        }
        assert_eq!(status, 503, "{name}: {said}");
        if said["error"] == "overloaded" {
            assert!(!exists, "{name} was refused, and made afterwards: {said}");
        }
        assert!(said["error_description"].is_string(), "{name}: {said}");
    }
}
