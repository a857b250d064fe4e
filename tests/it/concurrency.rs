//! `concurrency`: as many requests in flight as there are places, and every place comes back.

use crate::support::places::{
    crowd, exactly, free, hold, is_answered, places, polite_crowd, start,
};
use crate::support::{Client, Held, Home, Weir, get, get_with, on_each_store, wait_until};

on_each_store!(
    the_fourth_in_flight_is_refused_and_told_to_come_again,
    a_place_comes_back_however_its_request_ends,
    no_place_is_lost_under_load,
    never_more_are_in_flight_than_there_are_places,
    a_refusal_of_another_limit_takes_no_place,
    a_request_may_take_several_places,
    who_has_said_all_gets_its_answer_and_keeps_its_place_until_then,
);

fn the_fourth_in_flight_is_refused_and_told_to_come_again(home: &Home) {
    let held = Held::start();
    let weir = start(home, &held, 3);
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
        held.let_go(&target);
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        wait_until("all places are free", || free(&weir) == Some(3));
    }
}

fn a_place_comes_back_however_its_request_ends(home: &Home) {
    type End = fn(&Held, Client);
    let ways: [(&str, &str, End); 9] = [
        ("the response ends", "/held", |held, mut client| {
            held.let_go("/held");
            assert_eq!(client.response().status, 200);
        }),
        ("a long response ends", "/begun", |held, mut client| {
            held.let_go("/begun");
            assert_eq!(client.response().text(), "first");
        }),
        ("the client resets before the head", "/held", |_, client| client.wire.reset()),
        ("the client resets in the middle of the body", "/begun", |_, mut client| {
            client.wire.take_through(b"first").unwrap();
            client.wire.reset();
        }),
        // It might only have said all, so its answer is waited for.
        ("the client closes before the head", "/held", |held, client| {
            drop(client);
            held.let_go("/held");
        }),
        ("the client closes in the middle of the body", "/begun", |held, mut client| {
            client.wire.take_through(b"first").unwrap();
            drop(client);
            held.let_go("/begun");
        }),
        ("the upstream fails", "/broken/held", |held, mut client| {
            // What fails on a connection that was used before is tried again on a fresh one.
            wait_until("it is answered", || {
                held.let_go("/broken/held");
                is_answered(&client)
            });
            assert_eq!(client.response().status, 502);
        }),
        ("the client ends the tunnel", "/tunnel", |_, mut client| {
            assert_eq!(client.response().status, 101);
        }),
        ("the upstream ends the tunnel", "/tunnel", |held, mut client| {
            assert_eq!(client.response().status, 101);
            held.let_go("/tunnel");
            assert!(client.closes());
        }),
    ];
    let held = Held::start();
    let weir = start(home, &held, 1);
    for (way, target, end) in ways {
        let client = hold(&weir, &held, target);
        assert_eq!(weir.get("/").status, 429, "{way}: the place is taken");
        end(&held, client);
        wait_until(way, || free(&weir) == Some(1));
        // The upstream may still be at what its client has left behind.
        held.let_go(target);
        wait_until("the upstream is idle", || held.inside() == 0);
    }
    // And those that end by themselves.
    for target in ["/broken", "/cut", "/nothing-special"] {
        let _ = weir.connect().try_ask(get(target));
        wait_until(target, || free(&weir) == Some(1));
    }
    let slow = held.config().limit(&places(1)).upstream("response_timeout = \"200ms\"");
    let weir = Weir::start(&home.of(slow));
    assert_eq!(weir.get("/held").status, 504);
    wait_until("the upstream takes too long", || free(&weir) == Some(1));
}

fn no_place_is_lost_under_load(home: &Home) {
    let held = Held::start();
    let weir = start(home, &held, 6);
    assert!(crowd(&[&weir], 60) > 0);
    held.let_go("/begun");
    exactly(&[&weir], &held, 6);
    assert!(!weir.degraded());
}

fn never_more_are_in_flight_than_there_are_places(home: &Home) {
    let held = Held::start();
    let weir = start(home, &held, 4);
    polite_crowd(&[&weir]);
    assert_eq!(held.most(), 4);
    exactly(&[&weir], &held, 4);
}

fn a_refusal_of_another_limit_takes_no_place(home: &Home) {
    let held = Held::start();
    let tables = r#"
        [limits.places]
        key = "global"
        algorithm = "concurrency"
        limit = 2

        [limits.few]
        key = "header:x-user"
        rate = "1/day"
        burst = 1

        [[routes]]
        name = "both"
        path = "/both"
        upstream = "api"
        limits = ["places", "few"]

        [[routes]]
        name = "rest"
        path = "/*"
        upstream = "api"
        limits = ["places"]
    "#;
    let weir = Weir::start(&home.of(held.config().open().routes(tables)));
    assert_eq!(weir.get("/both").status, 200);
    for _ in 0..10 {
        let refused = weir.get("/both");
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("few")));
    }
    wait_until("both places are free", || free(&weir) == Some(2));
    let _held = [0; 2].map(|_| hold(&weir, &held, "/held"));
    let user = "X-User: other\r\n";
    for _ in 0..3 {
        let refused = weir.ask(get_with("/both", user));
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("places")));
    }
    held.let_go("/held");
    wait_until("both places are free", || free(&weir) == Some(2));
    let passed = weir.ask(get_with("/both", user));
    assert_eq!(passed.status, 200, "what had no place was not charged");
}

fn a_request_may_take_several_places(home: &Home) {
    let held = Held::start();
    let limit = places(5) + "\ncost = { from = \"query:n\", default = 1, max = 10 }";
    let weir = Weir::start(&home.of(held.config().limit(&limit)));
    let mut large = hold(&weir, &held, "/held?n=3");
    assert_eq!(free(&weir), Some(2));
    let refused = weir.get("/?n=3");
    assert_eq!((refused.status, refused.one("retry-after")), (429, "1"));
    assert_eq!(weir.get("/?n=2").status, 200);
    let never = weir.get("/?n=6");
    assert_eq!((never.status, never.error()), (429, "cost_exceeds_limit".into()));
    assert!(!never.has("retry-after"));
    held.let_go("/held?n=3");
    assert_eq!(large.response().status, 200);
    wait_until("all places are free", || free(&weir) == Some(5));
}

fn who_has_said_all_gets_its_answer_and_keeps_its_place_until_then(home: &Home) {
    let held = Held::start();
    let weir = start(home, &held, 1);
    let mut client = hold(&weir, &held, "/held");
    client.wire.finish_writing();
    for _ in 0..5 {
        assert_eq!(weir.get("/").status, 429, "the place is taken");
    }
    held.let_go("/held");
    assert_eq!(client.response().text(), "ok");
    assert!(client.closes());
    wait_until("the place is free", || free(&weir) == Some(1));
}
