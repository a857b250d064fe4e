//! What a queued request has gained when it is admitted: what it waited for, no more and no less.

use std::time::{Duration, Instant};

use crate::support::queues::{join_queue, queue_depth};
use crate::support::slots::{concurrency_limit, hold, is_answered};
use crate::support::{
    Config, HeldUpstream, TestStore, Upstream, Weir, fields, get, get_with, on_each_store,
    wait_until,
};

on_each_store!(
    request_queued_for_one_limit_pays_the_others_in_full,
    slot_is_waited_for_however_short_the_wait,
    request_refused_by_a_queue_is_told_when_the_queue_has_room,
    retry_to_a_full_queue_after_retry_after_passes,
    client_that_leaves_behind_a_large_body_is_noticed,
);

fn request_queued_for_one_limit_pays_the_others_in_full(test_store: &TestStore) {
    let user = "key = \"header:x-user\"\nrate = \"1/second\"\nburst = 1\n\
        strategy = \"queue\"\nmax_wait = \"30s\"";
    let all = "key = \"global\"\nrate = \"100/second\"\nburst = 1000\n\
        cost = { from = \"header:x-weight\", default = 1, max = 1000 }";
    let config = Config::echo().open().add_limit("user", user).add_limit("all", all);
    let config = config.route("all", "/*", &["user", "all"]);
    let weir = Weir::start(&test_store.configure(config));
    let mut client = weir.connect();
    assert_eq!(client.ask(get_with("/", "X-User: a\r\n")).status, 200);
    let begin = Instant::now();
    let response = client.ask(get_with("/", "X-User: a\r\nX-Weight: 100\r\n"));
    assert_eq!(response.status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(500), "it has waited");
    let told = fields::list(&response.all("ratelimit"));
    let all = told.iter().find(|it| it.name() == "all").expect("the other limit");
    assert_eq!(all.integer("r"), 900, "a second of waiting refills a hundred");
}

fn slot_is_waited_for_however_short_the_wait(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = concurrency_limit(1) + "\nstrategy = \"queue\"\nmax_wait = \"900ms\"";
    let weir = Weir::start(&test_store.configure(held.config().limit(&limit)));
    // A busy machine may be late.
    let passed = (0..3).any(|_| {
        let mut first = hold(&weir, &held, "/held");
        let mut second = weir.connect();
        second.send(get("/"));
        wait_until("it waits, or is refused", || queue_depth(&weir) == 1 || is_answered(&second));
        held.release("/held");
        assert_eq!(first.response().status, 200);
        second.response().status == 200
    });
    assert!(passed, "it was refused, and not for the first time");
    // Nor is it waited for any longer.
    let _first = hold(&weir, &held, "/held");
    let begin = Instant::now();
    let refused = weir.get("/");
    assert_eq!((refused.status, refused.one("retry-after")), (429, "1"));
    assert!(begin.elapsed() >= Duration::from_millis(800), "after {:?}", begin.elapsed());
}

#[test]
fn slot_released_by_another_gateway_is_found_soon() {
    let test_store = TestStore::redis();
    let held = HeldUpstream::start();
    let limit = concurrency_limit(1) + "\nstrategy = \"queue\"\nmax_wait = \"30s\"";
    let config = test_store.configure(held.config().limit(&limit));
    let [one, two] = Weir::start_two(&config);
    // A busy machine may be late, but not every time.
    let soon = (0..10).any(|_| {
        let mut first = hold(&one, &held, "/held");
        let mut second = join_queue(&two, &get("/"));
        let begin = Instant::now();
        held.release("/held");
        assert_eq!([first.response().status, second.response().status], [200, 200]);
        begin.elapsed() < Duration::from_millis(400)
    });
    assert!(soon, "the slot is found too late every time");
}

fn request_refused_by_a_queue_is_told_when_the_queue_has_room(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/3s\"\nburst = 1\nstrategy = \"queue\"\nmax_wait = \"5s\"";
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).limit(limit)));
    assert_eq!(weir.get("/").status, 200);
    let begin = Instant::now();
    let mut waiting = join_queue(&weir, &get("/"));
    // It passes after three seconds at the most, and the next three seconds later.
    let refused = weir.get("/");
    let late = begin.elapsed().as_millis() as u64 + 200;
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
    let told = refused.json()["retry_after_ms"].as_u64().expect("retry_after_ms");
    assert!((6000 - late..=6000).contains(&told), "{told} ms, {late} after the first");
    assert!(refused.one("retry-after").parse::<u64>().unwrap() * 1000 >= told);
    assert_eq!(upstream.heads(), 1, "it was told while the other waits");
    assert_eq!(waiting.response().status, 200);
}

fn retry_to_a_full_queue_after_retry_after_passes(test_store: &TestStore) {
    let limit = "key = \"ip\"\nrate = \"1/second\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_queue = 2\nmax_wait = \"30s\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting = [join_queue(&weir, &get("/")), join_queue(&weir, &get("/"))];
    let refused = weir.get("/");
    assert_eq!(refused.status, 429);
    let told: u64 = refused.one("retry-after").parse().unwrap();
    // The wait is what is tested, so it is a sleep.
    std::thread::sleep(Duration::from_secs(told));
    assert_eq!(weir.get("/").status, 200, "told to wait for {told} s");
    assert_eq!(waiting.each_mut().map(|client| client.response().status), [200, 200]);
}

fn client_that_leaves_behind_a_large_body_is_noticed(test_store: &TestStore) {
    let limit =
        "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nstrategy = \"queue\"\nmax_wait = \"10h\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    assert_eq!(weir.get("/").status, 200);
    // Unread bytes hold up a close, but no reset.
    for (size, ways) in [(1000, 2), (65_536, 2), (100_000, 2), (900_000, 1)] {
        for resets in [true, false].into_iter().take(ways) {
            let mut client = weir.connect();
            let head = "POST / HTTP/1.1\r\nHost: weir.test\r\n";
            client.send(format!("{head}Content-Length: {size}\r\n\r\n"));
            // As much of it as is taken.
            client.wire.stream().set_nonblocking(true).unwrap();
            client.send(vec![b'a'; size]);
            wait_until("it waits", || queue_depth(&weir) == 1);
            if resets {
                client.wire.reset()
            } else {
                drop(client)
            }
            wait_until("it has left", || queue_depth(&weir) == 0);
        }
    }
}
