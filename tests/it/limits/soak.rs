//! Limits of every kind on one route, with clients that leave, reloads and a Redis that dies: in the
//! end every slot and every queue is free again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::queues::queue_depth;
use crate::support::slots::{assert_exact_slots, concurrency_limit, hold_with};
use crate::support::{
    Config, FaultProxy, HeldUpstream, Redis, Response, SetOnDrop, TestStore, Weir, fields,
    get_with, on_each_store, wait_until,
};

on_each_store!(all_limits_combined_return_to_their_start);

const SLOTS: usize = 6;
const BURST: f64 = 40.0;
const RATE: f64 = 150.0;

/// `/mix/…` has all limits, everything else only the slots. `second` is what a reload changes.
fn config(held: &HeldUpstream, second: bool) -> Config {
    let (strategy, candidate, algorithm) = match second {
        false => ("degrade", "candidate = { rate = \"5/second\" }", "sliding_log"),
        true => ("queue\"\nmax_wait = \"300ms", "", "sliding_window"),
    };
    let limits = format!(
        r#"
        [limits.waiting]
        key = "header:x-user"
        algorithm = "concurrency"
        limit = 2
        strategy = "queue"
        max_wait = "400ms"
        max_queue = 5

        [limits.all]
        key = "global"
        rate = "{RATE}/second"
        burst = {BURST}

        [limits.queued]
        key = "header:x-user"
        rate = "60/second"
        burst = 5
        cost = {{ from = "header:x-weight", default = 1, max = 10 }}
        strategy = "queue"
        max_wait = "500ms"
        max_queue = 4

        [limits.leaky]
        key = "header:x-user"
        algorithm = "leaky_bucket"
        rate = "80/second"
        burst = 8

        [limits.changing]
        key = "ip"
        algorithm = "{algorithm}"
        rate = "100/second"
        strategy = "{strategy}"
        {candidate}

        [limits.portions]
        key = "header:x-user"
        refill = {{ every = "100ms", amount = 20 }}
        burst = 40
        cost = {{ from = "response:x-cost", default = 1, max = 5 }}

        [limits.failures]
        key = "header:x-user"
        algorithm = "fixed_window"
        rate = "200/second"
        count = ["5xx", "499"]

        [limits.watching]
        key = "global"
        algorithm = "concurrency"
        limit = 3
        mode = "shadow"

    "#
    );
    let all = [
        "slots", "waiting", "all", "queued", "leaky", "changing", "portions", "failures",
        "watching",
    ];
    held.config()
        .open()
        .upstream("retries = 0")
        .add_limit("slots", &concurrency_limit(SLOTS))
        .also(&limits)
        .route("mix", "/mix/*", &all)
        .route_lines("strip_prefix = \"/mix\"")
        .route("rest", "/*", &["slots"])
}

/// What the clients do is random, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % most
    }
}

/// What is left is never stated to be above the quota.
fn check_headers(response: &Response) {
    let policies = fields::list(&response.all("ratelimit-policy"));
    for told in fields::list(&response.all("ratelimit")) {
        let policy = policies.iter().find(|it| it.name() == told.name()).expect("its policy");
        assert!(told.integer("r") <= policy.integer("q"), "{response:?}");
    }
}

/// What a crowd of clients has done so far.
#[derive(Default)]
struct Crowd {
    over: AtomicBool,
    /// Clients that have come and gone.
    visits: AtomicUsize,
    /// Requests that passed, of those whose clients waited for the answer.
    passed: AtomicUsize,
}

impl Crowd {
    /// Waits until a few hundred more clients have come and gone.
    #[track_caller]
    fn go_on(&self) {
        let goal = self.visits.load(Ordering::Relaxed) + 250;
        wait_until("more clients come", || self.visits.load(Ordering::Relaxed) >= goal);
    }
}

/// One client after another, some of which leave in the middle.
fn come_and_go(weir: &Weir, number: u64, crowd: &Crowd, allowed: &[u16]) {
    let mut dice = Random(number);
    while !crowd.over.load(Ordering::Relaxed) {
        crowd.visits.fetch_add(1, Ordering::Relaxed);
        let mut client = weir.connect();
        let target = ["/mix/", "/mix/slow", "/mix/broken", "/mix/begun", "/mix/cut"]
            [[0, 1, 1, 2, 3, 4][dice.below(6) as usize]];
        let weight = ["1", "3", "0", "", "11"][dice.below(5) as usize];
        let user = dice.below(4);
        let lines = format!("X-User: {user}\r\nX-Weight: {weight}\r\n");
        let request = get_with(target, &lines);
        // At what moment a client leaves is random, and not a condition to wait for.
        let pause = Duration::from_millis(dice.below(40));
        match dice.below(8) {
            0 => {
                client.send(&request);
                thread::sleep(pause);
                client.wire.reset();
            }
            1 => {
                client.send(&request);
                thread::sleep(pause);
                drop(client);
            }
            2 => {
                client.send(request.repeat(4));
                thread::sleep(pause);
                client.wire.reset();
            }
            _ if target == "/mix/begun" => {
                client.send(&request);
                thread::sleep(pause);
                client.wire.reset();
            }
            _ => {
                let Ok(response) = client.try_ask(&request) else { panic!("no answer") };
                assert!(allowed.contains(&response.status), "{response:?}");
                check_headers(&response);
                if matches!(response.status, 200 | 502) {
                    crowd.passed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Has clients come and go while `happen` lets things happen. How many passed, and in what time.
fn with_crowd(weir: &Weir, allowed: &[u16], happen: impl FnOnce(&Crowd)) -> (f64, f64) {
    let crowd = Crowd::default();
    let begin = Instant::now();
    thread::scope(|scope| {
        let end = SetOnDrop(&crowd.over);
        for number in 0..24 {
            let crowd = &crowd;
            scope.spawn(move || come_and_go(weir, number, crowd, allowed));
        }
        happen(&crowd);
        drop(end);
    });
    (crowd.passed.into_inner() as f64, begin.elapsed().as_secs_f64())
}

#[track_caller]
fn judge(weir: &Weir, held: &HeldUpstream) {
    held.release("/begun");
    wait_until("no request is queued", || queue_depth(weir) == 0);
    wait_until("its store is in use", || !weir.degraded());
    assert_exact_slots(&[weir], held, SLOTS);
    // The slots of each user, too.
    for user in 0..4 {
        let request = get_with("/mix/held", &format!("X-User: {user}\r\n"));
        let mut clients = [0; 2].map(|_| hold_with(weir, held, &request));
        held.release("/held");
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    }
    assert!(!weir.output().contains("panicked"), "{}", weir.output());
}

fn all_limits_combined_return_to_their_start(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let [first, second] = [false, true].map(|it| test_store.configure(config(&held, it)));
    let weir = Weir::start(&first);
    let (passed, seconds) = with_crowd(&weir, &[200, 429, 502], |crowd| {
        for config in [&second, &first, &second, &first] {
            crowd.go_on();
            weir.reload(config);
        }
        crowd.go_on();
    });
    assert!(passed > 20.0, "{passed} passed");
    assert!(passed <= BURST + RATE * seconds, "{passed} passed in {seconds} s");
    judge(&weir, &held);
}

#[test]
fn all_limits_combined_return_to_their_start_while_redis_fails() {
    let mut redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = HeldUpstream::start();
    let [first, second] =
        [false, true].map(|it| config(&held, it).store(&proxy.store()).store("timeout = \"50ms\""));
    let weir = Weir::start(&first);
    let other = Weir::start(&first);
    let (passed, _) = with_crowd(&weir, &[200, 429, 502], |crowd| {
        let degraded = || wait_until("it decides without Redis", || weir.degraded());
        let back = || wait_until("Redis is in use again", || !weir.degraded());
        proxy.cut();
        crowd.go_on();
        redis.restart();
        weir.reload(&second);
        back();
        crowd.go_on();
        redis.stop();
        degraded();
        redis.cont();
        weir.reload(&first);
        back();
        crowd.go_on();
        redis.kill();
        degraded();
        crowd.go_on();
        redis.restart();
        back();
        crowd.go_on();
    });
    assert!(passed > 20.0, "{passed} passed");
    judge(&weir, &held);
    judge(&other, &held);
}
