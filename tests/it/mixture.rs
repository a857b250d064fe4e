//! Limits of every kind on one route, with clients that leave, reloads and a Redis that dies: what
//! is left in the end is as it was in the beginning.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::places::{exactly, hold_with};
use crate::support::{
    FaultProxy, Held, Home, Redis, Response, Weir, fields, get_with, on_each_store, wait_until,
};

on_each_store!(nothing_is_left_of_a_mixture_of_all_limits);

const PLACES: usize = 6;
const BURST: f64 = 40.0;
const RATE: f64 = 150.0;

/// `/mix/…` has all of them, and all else the places only. What changes with a reload has two forms.
fn tables(second: bool) -> String {
    let (strategy, candidate, algorithm) = match second {
        false => ("degrade", "candidate = { rate = \"5/second\" }", "sliding_log"),
        true => ("queue\"\nmax_wait = \"300ms", "", "sliding_window"),
    };
    format!(
        r#"
        [limits.places]
        key = "global"
        algorithm = "concurrency"
        limit = {PLACES}

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

        [limits.line]
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

        [[routes]]
        name = "mix"
        path = "/mix/*"
        strip_prefix = "/mix"
        upstream = "api"
        limits = ["places", "waiting", "all", "line", "leaky", "changing", "portions", "failures",
                  "watching"]

        [[routes]]
        name = "rest"
        path = "/*"
        upstream = "api"
        limits = ["places"]
    "#
    )
}

/// What everybody does is random, and the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % most
    }
}

/// Nothing is ever told to be above its quota.
fn look_at(response: &Response) {
    let policies = fields::list(&response.all("ratelimit-policy"));
    for told in fields::list(&response.all("ratelimit")) {
        let policy = policies.iter().find(|it| it.name() == told.name()).expect("its policy");
        assert!(told.integer("r") <= policy.integer("q"), "{response:?}");
    }
}

/// One client after another, some of which leave in the middle. How many passed that stayed.
fn come_and_go(weir: &Weir, number: u64, over: &AtomicBool, allowed: &[u16]) -> usize {
    let mut dice = Dice(number);
    let mut passed = 0;
    while !over.load(Ordering::Relaxed) {
        let mut client = weir.connect();
        let target = ["/mix/", "/mix/slow", "/mix/broken", "/mix/begun", "/mix/cut"]
            [[0, 1, 1, 2, 3, 4][dice.below(6) as usize]];
        let weight = ["1", "3", "-5", "1e309", "11"][dice.below(5) as usize];
        let user = dice.below(4);
        let lines = format!("X-User: {user}\r\nX-Weight: {weight}\r\n");
        let request = get_with(target, &lines);
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
                look_at(&response);
                passed += usize::from(matches!(response.status, 200 | 502));
            }
        }
    }
    passed
}

/// Has clients come and go while `happen` lets things happen. How many passed, and in what time.
fn crowd(weir: &Weir, allowed: &[u16], happen: impl FnOnce()) -> (f64, f64) {
    let (over, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        for number in 0..24 {
            let (over, passed) = (&over, &passed);
            scope.spawn(move || {
                let count = come_and_go(weir, number, over, allowed);
                passed.fetch_add(count, Ordering::Relaxed);
            });
        }
        happen();
        over.store(true, Ordering::Relaxed);
    });
    (passed.into_inner() as f64, begin.elapsed().as_secs_f64())
}

#[track_caller]
fn judge(weir: &Weir, held: &Held) {
    held.let_go("/begun");
    wait_until("nobody waits", || {
        weir.metrics().value("weir_queue_depth", &[]).is_none_or(|depth| depth == 0.0)
    });
    wait_until("it goes by its store", || !weir.degraded());
    exactly(&[weir], held, PLACES);
    // Those of each user, too.
    for user in 0..4 {
        let request = get_with("/mix/held", &format!("X-User: {user}\r\n"));
        let mut clients = [0; 2].map(|_| hold_with(weir, held, &request));
        held.let_go("/held");
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    }
    assert!(!weir.said().contains("panicked"), "{}", weir.said());
}

fn nothing_is_left_of_a_mixture_of_all_limits(home: &Home) {
    let held = Held::start();
    let [first, second] = [false, true]
        .map(|it| home.of(held.config().open().routes(&tables(it)).upstream("retries = 0")));
    let weir = Weir::start(&first);
    let (passed, seconds) = crowd(&weir, &[200, 429, 502], || {
        for config in [&second, &first, &second, &first] {
            thread::sleep(Duration::from_millis(700));
            weir.reload(config);
        }
        thread::sleep(Duration::from_millis(700));
    });
    assert!(passed > 20.0, "{passed} passed");
    assert!(passed <= BURST + RATE * seconds, "{passed} passed in {seconds} s");
    judge(&weir, &held);
}

#[test]
fn nothing_is_left_of_a_mixture_while_redis_comes_and_goes() {
    let mut redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    let held = Held::start();
    let [first, second] = [false, true].map(|it| {
        let config = held.config().open().routes(&tables(it)).upstream("retries = 0");
        config.store(&proxy.store()).store("timeout = \"50ms\"")
    });
    let weir = Weir::start(&first);
    let other = Weir::start(&first);
    let (passed, _) = crowd(&weir, &[200, 429, 502], || {
        proxy.cut();
        thread::sleep(Duration::from_millis(500));
        redis.restart();
        weir.reload(&second);
        thread::sleep(Duration::from_millis(700));
        redis.stop();
        thread::sleep(Duration::from_millis(300));
        redis.cont();
        weir.reload(&first);
        thread::sleep(Duration::from_millis(500));
        redis.kill();
        thread::sleep(Duration::from_millis(500));
        redis.restart();
        thread::sleep(Duration::from_millis(700));
    });
    assert!(passed > 20.0, "{passed} passed");
    judge(&weir, &held);
    judge(&other, &held);
}
