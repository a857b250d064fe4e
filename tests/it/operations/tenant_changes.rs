//! Tenants at run time under stress: while Redis stands still, after it has lost them, and beside clients
//! that hold on to something.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::json;

use super::tenants::{PARTNER, SOON, names, put, show, target};
use crate::limits::tenants::with_tenants;
use crate::support::{
    Client, HeldUpstream, Redis, Scratch, TestStore, Weir, get_with, wait_at_most, wait_until,
};

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

/// Nobody has noticed that Redis has lost everything when a gateway that knows nothing begins anew.
#[test]
fn tenants_that_redis_has_lost_come_back_though_others_were_made_first() {
    let test_store = TestStore::redis();
    let config = test_store.configure(with_tenants(PARTNER));
    let (a, c) = (Weir::start(&config), Weir::start(&config));
    for name in ["k0", "k1", "k2"] {
        put(&a, name, &json!({"rate": "10/minute"}));
    }
    wait_at_most(SOON, "the other knows them", || show(&c, "k2")["origin"] == "run_time");
    [&a, &c].iter().for_each(|weir| weir.signal(Signal::STOP));
    redis_of(&test_store).command(&["FLUSHALL"]);
    let b = Weir::start(&config);
    put(&b, "new", &json!({"rate": "1/minute"}));
    put(&b, "k1", &json!({"rate": "77/minute"}));
    a.signal(Signal::CONT);
    let all = ["a1", "k0", "k1", "k2", "new", "partner-a", "system"];
    for weir in [&a, &b] {
        wait_at_most(SOON, "all are there", || names(&weir.admin("/v1/tenants").json()) == all);
        assert_eq!(show(weir, "k1")["effective"]["rate"], "77/minute", "what was set since holds");
    }
    let said = a.output();
    assert!(said.contains("are written back"), "{said}");
    // Another that comes back later knows no more than what has been written back, and removed since.
    assert_eq!(b.operate("DELETE", &target("k0"), "").status, 200);
    c.signal(Signal::CONT);
    wait_at_most(SOON, "it has caught up", || show(&c, "new")["origin"] == "run_time");
    put(&c, "later", &json!({"rate": "1/minute"}));
    for weir in [&a, &b, &c] {
        wait_at_most(SOON, "all have it", || show(weir, "later")["origin"] == "run_time");
        assert_eq!(weir.admin(&target("k0")).status, 404, "what was removed stays so");
    }
}

/// So many tenants below `root`, with as much text as each may have.
fn customers(count: usize) -> String {
    let description = "d".repeat(500);
    let customer = |n: usize| {
        format!("[tenants.c{n:05}]\nparent = \"root\"\ndescription = \"{description}\"\n")
    };
    let customers: String = (0..count).map(customer).collect();
    format!("[tenants.root]\nrate = \"1000000/minute\"\n{customers}")
}

#[test]
fn requests_under_way_do_not_keep_the_tenants_that_they_were_decided_by() {
    const CHANGES: usize = 16;
    let upstream = HeldUpstream::start();
    let config = with_tenants(&customers(10_000)).text();
    let api = format!("[upstreams.api]\nservers = [\"http://{}\"]\n", upstream.upstream.address());
    let config = config.replace("upstream = \"echo\"", "upstream = \"api\"") + &api;
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config);
    let weir = Weir::start_from(scratch, file);
    let change = |n: usize| {
        put(&weir, "changed", &json!({"parent": "root", "rate": format!("{}/minute", n + 1)}));
    };
    (0..CHANGES).for_each(change);
    let before = weir.peak_memory();
    let mut held = Vec::new();
    for n in 0..CHANGES {
        let mut client = weir.connect();
        client.send(get_with(&format!("/held/{n}"), "X-Tenant: c00001\r\n"));
        wait_until("it is under way", || upstream.held_count() == n + 1);
        held.push(client);
        change(CHANGES + n);
    }
    // Each tree has some 13 MB.
    let grown = (weir.peak_memory() - before) / 1024;
    assert!(grown < 64, "{CHANGES} requests hold {grown} MiB");
    for (n, client) in held.iter_mut().enumerate() {
        upstream.release(&format!("/held/{n}"));
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn lists_that_nobody_reads_hold_little_and_leave_room_for_health_checks() {
    let weir = Weir::start(&with_tenants(&customers(1_000)));
    let before = weir.peak_memory();
    let list = "GET /v1/tenants?max=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
    let unread: Vec<_> = (0..300)
        .map(|_| {
            let mut client = Client::connect(weir.admin_address());
            socket2::SockRef::from(client.wire.stream()).set_recv_buffer_size(4096).unwrap();
            client.send(&list);
            client
        })
        .collect();
    for target in ["/healthz", "/readyz", "/metrics", "/healthz"] {
        assert_eq!(weir.admin(target).status, 200, "{target}");
    }
    let refused = weir.admin("/v1/tenants?max=1000");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"], "overloaded");
    let grown = (weir.peak_memory() - before) / 1024;
    assert!(grown < 256, "{} clients hold {grown} MiB", unread.len());
    drop(unread);
    wait_until("it is answered again", || weir.admin("/v1/tenants?max=1000").status == 200);
}
