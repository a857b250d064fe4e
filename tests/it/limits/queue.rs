//! `strategy = "queue"`: requests over the limit wait for it, first come, first served.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::queues::{
    RecordingUpstream, join_queue, numbered, queue_depth, wait_for_depth,
};
use crate::support::{
    Client, Config, HeldUpstream, Response, TestStore, Upstream, Weir, fields, get, get_with,
    on_each_store, wait_until,
};

on_each_store!(
    queued_requests_pass_first_come_first_served,
    client_that_leaves_the_queue_makes_room_and_is_not_charged,
    request_to_a_full_queue_is_refused_at_once,
    request_that_would_wait_too_long_is_refused_at_once,
    one_keys_queue_does_not_delay_another_key,
    sigterm_answers_queued_requests,
    requests_can_queue_for_slots,
    refusal_by_another_limit_is_not_waited_for,
    cost_that_never_fits_is_not_queued,
);

/// What clocks may differ by over a few seconds.
pub(super) const SKEW: Duration = Duration::from_millis(2);

fn queued_requests_pass_first_come_first_served(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"5/second\"\nburst = 1\nmax_wait = \"30s\"";
    let weir = recording.queueing(test_store, limit);
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
        wait_until("it waits, or is through", || {
            queue_depth(&weir) + recording.upstream.heads() > number
        });
    }
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.status, 200);
        assert!(!response.has("retry-after"));
    }
    for (turn, (number, arrived)) in (0_u32..).zip(recording.arrivals()) {
        assert_eq!(number, turn as usize);
        assert!(arrived - begin + SKEW >= Duration::from_millis(200) * turn, "{turn}");
    }
    wait_for_depth(&weir, 0);
    let counted = |outcome| weir.metrics().decisions("per-ip", outcome).unwrap_or(0.0);
    wait_until("outcomes are counted", || counted("allowed") == 8.0);
    assert!((5.0..=7.0).contains(&counted("queued")), "{}", counted("queued"));
    assert_eq!(counted("refused"), 0.0);
}

/// A queue for these numbers, and a count of what was charged.
pub(super) fn counted_queue(upstream: &Upstream, numbers: &str, count: u32) -> Config {
    Config::to(upstream)
        .limit(&format!("key = \"global\"\nstrategy = \"queue\"\n{numbers}"))
        .bucket("count", "global", count)
        .route("all", "/*", &["per-ip", "count"])
}

/// How many had been charged with this one, of all there are.
pub(super) fn charged(response: &Response, all: i64) -> i64 {
    let told = fields::list(&response.all("ratelimit"));
    all - told.iter().find(|it| it.name() == "count").expect("the count").integer("r")
}

fn client_that_leaves_the_queue_makes_room_and_is_not_charged(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let numbers = "rate = \"1/second\"\nburst = 1\nmax_wait = \"30s\"";
    let config = counted_queue(&recording.upstream, numbers, 100);
    let weir = Weir::start(&test_store.configure(config));
    let mut first = weir.connect();
    assert_eq!(charged(&first.ask(numbered(0)), 100), 1);
    let mut waiting: Vec<Client> =
        (1..=12).map(|number| join_queue(&weir, &numbered(number))).collect();
    let mut last = waiting.pop().expect("the last");
    let before = recording.upstream.heads();
    for (number, client) in waiting.into_iter().enumerate() {
        if number % 2 == 0 { drop(client) } else { client.wire.reset() }
    }
    let response = last.response();
    assert_eq!(
        (response.status, charged(&response, 100)),
        (200, recording.upstream.heads() as i64)
    );
    wait_for_depth(&weir, 0);
    // One a second passes: the last of the queue, and at most two before it that are gone by then.
    let passed = recording.upstream.heads() - before;
    assert!(passed <= 3, "{passed} passed, though all but the last of the queue had left");
}

fn request_to_a_full_queue_is_refused_at_once(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"1/2s\"\nburst = 1\nmax_wait = \"30s\"\nmax_queue = 2";
    let weir = recording.queueing(test_store, limit);
    assert_eq!(weir.ask(numbered(0)).status, 200);
    let mut waiting = [join_queue(&weir, &numbered(1)), join_queue(&weir, &numbered(2))];
    for _ in 0..3 {
        let refused = weir.ask(numbered(3));
        assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
        assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
        assert_eq!(refused.json()["limit"], "per-ip");
    }
    assert_eq!(recording.upstream.heads(), 1, "it was told while the others wait");
    assert_eq!(queue_depth(&weir), 2);
    assert_eq!(waiting.each_mut().map(|client| client.response().status), [200, 200]);
    let numbers: Vec<usize> = recording.arrivals().iter().map(|it| it.0).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

fn request_that_would_wait_too_long_is_refused_at_once(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"1/2s\"\nburst = 1\nmax_wait = \"3s\"";
    let weir = recording.queueing(test_store, limit);
    assert_eq!(weir.ask(numbered(0)).status, 200);
    let mut waiting = join_queue(&weir, &numbered(1));
    // The next would have to wait for four seconds, or nearly.
    let refused = weir.ask(numbered(2));
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
    assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!((recording.upstream.heads(), queue_depth(&weir)), (1, 1), "it was told at once");
    assert_eq!(waiting.response().status, 200);
    // The same with an empty queue.
    let weir = recording.queueing(test_store, "rate = \"1/hour\"\nburst = 1\nmax_wait = \"1m\"");
    let ask = || weir.ask(get_with("/", "X-User: other\r\n"));
    assert_eq!(ask().status, 200);
    let refused = ask();
    assert_eq!(refused.status, 429);
    let retry: u64 = refused.one("retry-after").parse().unwrap();
    assert!((3500..=3600).contains(&retry), "{retry}");
    assert_eq!(queue_depth(&weir), 0);
}

fn one_keys_queue_does_not_delay_another_key(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"1/10s\"\nburst = 1\nmax_wait = \"1h\"\nmax_queue = 50";
    let weir = recording.queueing(test_store, limit);
    let as_user = |user: &str| get_with("/", &format!("X-User: {user}\r\n"));
    assert_eq!(weir.ask(as_user("busy")).status, 200);
    let _waiting: Vec<Client> = (0..40).map(|_| join_queue(&weir, &as_user("busy"))).collect();
    for user in ["a", "b", "c", "d", "e"] {
        assert_eq!(weir.ask(as_user(user)).status, 200);
    }
    assert!(queue_depth(&weir) >= 38, "they did not wait for those");
}

fn sigterm_answers_queued_requests(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"1/hour\"\nburst = 1\nmax_wait = \"10h\"";
    let limit = format!("key = \"ip\"\nstrategy = \"queue\"\n{limit}");
    let config = Config::to(&recording.upstream).limit(&limit).server("drain = \"1h\"");
    let mut weir = Weir::start(&test_store.configure(config));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting: Vec<Client> =
        (1..=6).map(|number| join_queue(&weir, &numbered(number))).collect();
    weir.signal(Signal::TERM);
    for client in &mut waiting {
        let refused = client.response();
        assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
        assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
        assert!(client.closes());
    }
    assert_eq!(weir.exit().code(), Some(0));
    assert_eq!(recording.upstream.heads(), 1);
}

fn requests_can_queue_for_slots(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = "key = \"ip\"\nalgorithm = \"concurrency\"\nlimit = 2\nstrategy = \"queue\"\n\
                 max_wait = \"1m\"\nmax_queue = 3";
    let weir = Weir::start(&test_store.configure(held.config().limit(limit)));
    let targets = ["/held/0", "/held/1", "/held/2", "/held/3", "/held/4"];
    let mut clients: Vec<Client> = targets
        .into_iter()
        .enumerate()
        .map(|(number, target)| {
            let mut client = weir.connect();
            client.send(get(target));
            let expected = (2.min(number + 1), (number + 1).saturating_sub(2));
            wait_until("it is in flight, or waits", || {
                (held.held_count(), queue_depth(&weir)) == expected
            });
            client
        })
        .collect();
    let refused = weir.get("/");
    assert_eq!((refused.status, refused.one("retry-after")), (429, "1"), "the queue is full");
    // One out, one in, in their order.
    for (number, client) in clients.iter_mut().enumerate() {
        let before = held.upstream.heads();
        held.release(targets[number]);
        assert_eq!(client.response().status, 200);
        if number < 3 {
            wait_until("the next moves up", || held.upstream.heads() > before);
            assert_eq!(held.upstream.last().target, targets[number + 2]);
        }
    }
    assert!(held.most_at_once() <= 2, "{}", held.most_at_once());
    wait_for_depth(&weir, 0);
    wait_until("both slots are free", || {
        fields::list(&weir.get("/").all("ratelimit"))[0].integer("r") == 1
    });
}

fn refusal_by_another_limit_is_not_waited_for(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let numbers = "rate = \"1/hour\"\nburst = 3\nmax_wait = \"10h\"";
    let config = counted_queue(&recording.upstream, numbers, 2);
    let weir = Weir::start(&test_store.configure(config));
    assert_eq!([0; 2].map(|_| weir.get("/").status), [200, 200]);
    for _ in 0..5 {
        let refused = weir.get("/");
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("count")));
        let told = fields::list(&refused.all("ratelimit"));
        assert_eq!(told[0].integer("r"), 1, "and the other was not charged");
    }
    assert_eq!(queue_depth(&weir), 0);
}

fn cost_that_never_fits_is_not_queued(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "rate = \"10/second\"\nburst = 10\nmax_wait = \"10h\"\n\
                 cost = { from = \"header:x-weight\", default = 1, max = 100 }";
    let weir = recording.queueing(test_store, limit);
    let refused = weir.ask(get_with("/", "X-Weight: 11\r\n"));
    assert_eq!((refused.status, refused.error()), (429, "cost_exceeds_limit".into()));
    assert!(!refused.has("retry-after"));
    // What does fit is waited for, however much it is.
    assert_eq!(weir.ask(get_with("/", "X-Weight: 10\r\n")).status, 200);
    let begin = Instant::now();
    assert_eq!(weir.ask(get_with("/", "X-Weight: 10\r\n")).status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(500), "ten take a second");
}
