//! Numbers of a tenant that are raised while several gateways serve it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::limits::tenants::with_tenants;
use crate::support::{SetOnDrop, TestStore, Weir, get_with, wait_until};

/// Each asks on a connection of its own, so that all workers of a gateway look at the bucket.
const CLIENTS: usize = 8;

#[test]
fn raised_burst_is_passed_once_while_gateways_hear_of_it() {
    let test_store = TestStore::redis();
    let tree = "[tenants.root]\nrate = \"1000000/second\"\n";
    let config = test_store.configure(with_tenants(tree).server("workers = 4"));
    let weirs = [Weir::start(&config), Weir::start(&config)];
    let put = |name: &str, body: serde_json::Value| {
        let response = weirs[0].operate("PUT", &format!("/v1/tenants/{name}"), &body.to_string());
        assert_eq!(response.status, 200, "{}", response.text());
    };
    let numbers = |burst| json!({ "parent": "root", "rate": "10/second", "burst": burst });
    put("p", numbers(10));
    put("c", json!({ "parent": "p" }));
    wait_until("both know it", || weirs[1].admin("/v1/tenants/c").status == 200);
    let both = || weirs[0].metrics().value("weir_store_nodes", &[]) == Some(2.0);
    wait_until("they know of each other", both);
    let (over, passed, begin) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        for weir in &weirs {
            for _ in 0..CLIENTS {
                let (over, passed) = (&over, &passed);
                scope.spawn(move || {
                    let mut client = weir.connect();
                    while !over.load(Ordering::Relaxed) {
                        let status = client.ask(get_with("/", "X-Tenant: c\r\n")).status;
                        passed.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                        // The pace of the clients.
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
        }
        put("p", numbers(300));
        wait_until("it is spent", || passed.load(Ordering::Relaxed) >= 300);
        // The time in which the other gateway may not have heard of it.
        thread::sleep(Duration::from_secs(2));
    });
    let (passed, refilled) = (passed.into_inner(), 10 * (begin.elapsed().as_secs() as usize + 1));
    assert!(passed <= 300 + refilled, "{passed}, and {refilled} at the most came back");
}
