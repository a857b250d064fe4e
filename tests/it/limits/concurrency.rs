//! `concurrency`: as many requests in flight as there are slots, and every slot comes back.

use crate::support::slots::{
    assert_exact_slots, concurrency_limit, disorderly_clients, free_slots, hold, is_answered,
    orderly_clients, start,
};
use crate::support::{
    Client, HeldUpstream, TestStore, Weir, get, get_with, on_each_store, wait_until,
};

on_each_store!(
    fourth_request_in_flight_is_refused_with_retry_after,
    slot_is_released_however_its_request_ends,
    no_slot_is_lost_under_load,
    no_more_requests_are_in_flight_than_there_are_slots,
    refusal_by_another_limit_takes_no_slot,
    request_may_take_several_slots,
    half_closed_client_gets_its_response_and_keeps_its_slot_until_then,
);

fn fourth_request_in_flight_is_refused_with_retry_after(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, 3);
    for round in 0..3 {
        let target = format!("/held/{round}");
        let mut clients = [0; 3].map(|_| hold(&weir, &held, &target));
        for _ in 0..5 {
            let refused = weir.get("/");
            assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
            assert_eq!(refused.one("retry-after"), "1");
            assert_eq!(refused.json()["retry_after_ms"], 1000);
            assert_eq!(refused.json()["limit"], "per-ip");
            assert_eq!(refused.all("ratelimit-policy"), ["\"per-ip\";q=3"]);
            assert_eq!(refused.all("ratelimit"), ["\"per-ip\";r=0;t=1"]);
        }
        held.release(&target);
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        wait_until("all slots are free", || free_slots(&weir) == Some(3));
    }
}

fn slot_is_released_however_its_request_ends(test_store: &TestStore) {
    type End = fn(&HeldUpstream, Client);
    let ways: [(&str, &str, End); 9] = [
        ("the response ends", "/held", |held, mut client| {
            held.release("/held");
            assert_eq!(client.response().status, 200);
        }),
        ("a long response ends", "/begun", |held, mut client| {
            held.release("/begun");
            assert_eq!(client.response().text(), "first");
        }),
        ("the client resets before the head", "/held", |_, client| client.wire.reset()),
        ("the client resets in the middle of the body", "/begun", |_, mut client| {
            client.wire.take_through(b"first").unwrap();
            client.wire.reset();
        }),
        // It may only have closed its sending half, so its response is waited for.
        ("the client closes before the head", "/held", |held, client| {
            drop(client);
            held.release("/held");
        }),
        ("the client closes in the middle of the body", "/begun", |held, mut client| {
            client.wire.take_through(b"first").unwrap();
            drop(client);
            held.release("/begun");
        }),
        ("the upstream fails", "/broken/held", |held, mut client| {
            // What fails on a connection that was used before is tried again on a fresh one.
            wait_until("it is answered", || {
                held.release("/broken/held");
                is_answered(&client)
            });
            assert_eq!(client.response().status, 502);
        }),
        ("the client ends the tunnel", "/tunnel", |_, mut client| {
            assert_eq!(client.response().status, 101);
        }),
        ("the upstream ends the tunnel", "/tunnel", |held, mut client| {
            assert_eq!(client.response().status, 101);
            held.release("/tunnel");
            assert!(client.closes());
        }),
    ];
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, 1);
    for (way, target, end) in ways {
        let client = hold(&weir, &held, target);
        assert_eq!(weir.get("/").status, 429, "{way}: the slot is taken");
        end(&held, client);
        wait_until(way, || free_slots(&weir) == Some(1));
        // The upstream may still be at what its client has left behind.
        held.release(target);
        wait_until("the upstream is idle", || held.held_count() == 0);
    }
    // And those that end by themselves.
    for target in ["/broken", "/cut", "/nothing-special"] {
        let _ = weir.connect().try_ask(get(target));
        wait_until(target, || free_slots(&weir) == Some(1));
    }
    let slow = held.config().limit(&concurrency_limit(1)).upstream("response_timeout = \"200ms\"");
    let weir = Weir::start(&test_store.configure(slow));
    assert_eq!(weir.get("/held").status, 504);
    wait_until("the upstream takes too long", || free_slots(&weir) == Some(1));
}

fn no_slot_is_lost_under_load(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, 6);
    assert!(disorderly_clients(&[&weir], 60) > 0);
    held.release("/begun");
    assert_exact_slots(&[&weir], &held, 6);
    assert!(!weir.degraded());
}

fn no_more_requests_are_in_flight_than_there_are_slots(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, 4);
    orderly_clients(&[&weir]);
    assert_eq!(held.most_at_once(), 4);
    assert_exact_slots(&[&weir], &held, 4);
}

fn refusal_by_another_limit_takes_no_slot(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let config = held.config().open().add_limit("slots", &concurrency_limit(2));
    let config = config
        .bucket("few", "header:x-user", 1)
        .route("both", "/both", &["slots", "few"])
        .route("rest", "/*", &["slots"]);
    let weir = Weir::start(&test_store.configure(config));
    assert_eq!(weir.get("/both").status, 200);
    for _ in 0..10 {
        let refused = weir.get("/both");
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("few")));
    }
    wait_until("both slots are free", || free_slots(&weir) == Some(2));
    let _held = [0; 2].map(|_| hold(&weir, &held, "/held"));
    let user = "X-User: other\r\n";
    for _ in 0..3 {
        let refused = weir.ask(get_with("/both", user));
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("slots")));
    }
    held.release("/held");
    wait_until("both slots are free", || free_slots(&weir) == Some(2));
    let passed = weir.ask(get_with("/both", user));
    assert_eq!(passed.status, 200, "what had no slot was not charged");
}

fn request_may_take_several_slots(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = concurrency_limit(5) + "\ncost = { from = \"query:n\", default = 1, max = 10 }";
    let weir = Weir::start(&test_store.configure(held.config().limit(&limit)));
    let mut large = hold(&weir, &held, "/held?n=3");
    assert_eq!(free_slots(&weir), Some(2));
    let refused = weir.get("/?n=3");
    assert_eq!((refused.status, refused.one("retry-after")), (429, "1"));
    // The slot of the question above comes back after its answer.
    wait_until("two slots are free", || weir.get("/?n=2").status == 200);
    let never = weir.get("/?n=6");
    assert_eq!((never.status, never.error()), (429, "cost_exceeds_limit".into()));
    assert!(!never.has("retry-after"));
    held.release("/held?n=3");
    assert_eq!(large.response().status, 200);
    wait_until("all slots are free", || free_slots(&weir) == Some(5));
}

fn half_closed_client_gets_its_response_and_keeps_its_slot_until_then(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let weir = start(test_store, &held, 1);
    let mut client = hold(&weir, &held, "/held");
    client.wire.finish_writing();
    for _ in 0..5 {
        assert_eq!(weir.get("/").status, 429, "the slot is taken");
    }
    held.release("/held");
    assert_eq!(client.response().text(), "ok");
    assert!(client.closes());
    wait_until("the slot is free", || free_slots(&weir) == Some(1));
}
