//! Several gateways with one Redis admit together exactly what one admits alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::limits::exactness::waits_as_told;
use crate::support::{Config, Redis, Response, Weir, fields, get, get_with, passed_at_once};

/// The built-in upstream and a store that is waited for, so that a busy machine never makes a
/// gateway decide without it where counts must be exact; that would show as a 503.
const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn shared(redis: &Redis) -> Config {
    Config::echo().store(&redis.store()).store(PATIENT)
}

/// A route `all` with four limits of all kinds, each by something else, which allow so many.
fn with_four_limits(redis: &Redis, [ip, user, way, all]: [u32; 4]) -> Config {
    let bucket = |key: &str, burst| format!("key = \"{key}\"\nrate = \"1/hour\"\nburst = {burst}");
    let window = |key: &str, algorithm: &str, rate: &str| {
        format!("key = \"{key}\"\nalgorithm = \"{algorithm}\"\nrate = \"{rate}\"")
    };
    let user = window("header:x-user", "sliding_window", &format!("{user}/hour"));
    let way = window("route", "fixed_window", &format!("{way}/day"));
    shared(redis)
        .open()
        .add_limit("ip", &bucket("ip", ip))
        .add_limit("user", &user)
        .add_limit("way", &way)
        .add_limit("all", &bucket("global", all))
        .route("all", "/*", &["ip", "user", "way", "all"])
}

/// Of the last one two pass.
const FEW: [u32; 4] = [1000, 500, 400, 2];

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

fn exactly_the_burst(gateways: usize, clients: usize, rounds: usize) {
    let redis = Redis::start();
    let config = shared(&redis).limit("key = \"header:x-user\"\nrate = \"1/day\"\nburst = 100");
    let weirs: Vec<Weir> = (0..gateways).map(|_| Weir::start(&config)).collect();
    let each = 300 / (gateways * clients) + 1;
    for round in 0..rounds {
        let request = as_user(&format!("round-{round}"));
        let passed = passed_at_once(&weirs, gateways * clients, each, &[request]);
        assert_eq!(passed, [100], "round {round}");
    }
    assert!(weirs.iter().all(|weir| !weir.degraded()));
}

#[test]
fn four_gateways_pass_exactly_the_burst() {
    exactly_the_burst(4, 16, 4);
}

#[test]
fn eight_gateways_pass_exactly_the_burst() {
    exactly_the_burst(8, 16, 2);
}

#[test]
fn several_limits_at_once_stay_exact_over_two_gateways() {
    let redis = Redis::start();
    let config = shared(&redis).mix(40, 10, 35);
    let weirs = Weir::start_two(&config);
    let requests = [0, 1, 2, 3, 4, 5, 6, 7].map(|user| as_user(&user.to_string()));
    let passed = passed_at_once(&weirs, 32, 6, &requests);
    assert_eq!(passed.iter().sum::<usize>(), 35, "{passed:?}");
    assert!(passed.iter().all(|it| *it <= 10), "{passed:?}");
}

#[test]
fn a_request_with_four_limits_is_one_script_call() {
    let redis = Redis::start();
    let weir = Weir::start(&with_four_limits(&redis, FEW));
    let mut client = weir.connect();
    // The first may have to bring the script.
    assert_eq!(client.ask(as_user("a")).status, 200);
    let monitor = redis.monitor();
    assert_eq!(client.ask(as_user("a")).status, 200);
    let calls = monitor.take_decisions();
    assert_eq!(calls.len(), 1, "{calls:#?}");
    let buckets = redis.buckets();
    assert_eq!(buckets.len(), 4);
    for bucket in buckets {
        assert!(calls[0].contains(&bucket), "{bucket} in {}", calls[0]);
    }
}

#[test]
fn a_refusal_charges_nothing_and_writes_nothing() {
    let redis = Redis::start();
    let config = with_four_limits(&redis, FEW);
    let weir = Weir::start(&config);
    assert_eq!([0; 2].map(|_| weir.ask(as_user("spender")).status), [200, 200]);
    let before = redis.buckets();
    // Another gateway has never seen the empty bucket: it must ask.
    let other = Weir::start(&config);
    let (monitor, calls) = (redis.monitor(), redis.script_calls());
    let refused = other.ask(as_user("a"));
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("all")));
    assert!(redis.script_calls() > calls, "it asked");
    let limits = fields::list(&refused.all("ratelimit"));
    let left: Vec<_> = limits.iter().map(|it| (it.name(), it.integer("r"))).collect();
    assert_eq!(left, [("ip", 998), ("user", 500), ("way", 398), ("all", 0)]);
    for user in ["a", "b", "spender"] {
        for weir in [&weir, &other] {
            assert_eq!(weir.ask(as_user(user)).status, 429);
        }
    }
    let writes = monitor.take_writes();
    assert!(writes.is_empty(), "{writes:#?}");
    assert_eq!(redis.buckets(), before);
}

#[test]
fn sixty_four_requests_in_flight_share_script_calls() {
    const EACH: usize = 60;
    let redis = Redis::start();
    let weir = Weir::start(&with_four_limits(&redis, [100_000; 4]));
    assert_eq!(weir.ask(as_user("0")).status, 200);
    let calls = redis.script_calls();
    // Each connection has its next request waiting, so that all of them are always in flight.
    thread::scope(|scope| {
        for user in 0..64 {
            let weir = &weir;
            scope.spawn(move || {
                let mut client = weir.connect();
                client.send(as_user(&user.to_string()).repeat(EACH));
                for _ in 0..EACH {
                    assert_eq!(client.response().status, 200);
                }
            });
        }
    });
    let (calls, requests) = (redis.script_calls() - calls, 64 * EACH as u64);
    assert!(calls > 0 && calls * 4 <= requests, "{calls} calls for {requests} requests");
    let left = fields::list(&weir.ask(as_user("0")).all("ratelimit"));
    let all = left.iter().find(|it| it.name() == "all").unwrap();
    assert_eq!(all.integer("r"), 100_000 - requests as i64 - 2, "each was charged once");
}

const ALGORITHMS: [&str; 9] = [
    "algorithm = \"token_bucket\"\nrate = \"1/hour\"\nburst = 5",
    "algorithm = \"token_bucket\"\nrate = \"7/hour\"",
    "algorithm = \"token_bucket\"\nrate = \"1/hour\"\nburst = 10\ncost = 3",
    "algorithm = \"sliding_window\"\nrate = \"4/day\"",
    "algorithm = \"fixed_window\"\nrate = \"6/day\"",
    "algorithm = \"fixed_window\"\nrate = \"6/month\"\ntimezone = \"Europe/Berlin\"",
    "algorithm = \"sliding_log\"\nrate = \"5/hour\"",
    "algorithm = \"sliding_log\"\nrate = \"10/hour\"\ncost = 3",
    "burst = 5\nrefill = { every = \"1h\", amount = 2 }",
];

#[test]
fn answers_are_those_of_the_embedded_store() {
    let redis = Redis::start();
    for (n, limit) in ALGORITHMS.into_iter().enumerate() {
        let limit = format!("key = \"ip\"\n{limit}");
        let through = shared(&redis).store(&format!("prefix = \"case-{n}\"")).limit(&limit);
        let (through, alone) = (Weir::start(&through), Weir::start(&Config::echo().limit(&limit)));
        let (mut through, mut alone) = (through.connect(), alone.connect());
        let mut statuses = Vec::new();
        for _ in 0..9 {
            let (ours, theirs) = (through.ask(get("/")), alone.ask(get("/")));
            same_answer(&ours, &theirs, &limit);
            statuses.push(ours.status);
        }
        assert!(statuses.contains(&200) && statuses.contains(&429), "{limit}: {statuses:?}");
    }
}

/// The same but for the moment: what counts down may differ by the time between the two.
#[track_caller]
fn same_answer(ours: &Response, theirs: &Response, limit: &str) {
    assert_eq!(ours.status, theirs.status, "{limit}");
    for name in ["ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining"] {
        assert_eq!(ours.all(name), theirs.all(name), "{limit}: {name}");
    }
    let near = |a: i64, b: i64, what: &str| {
        assert!((a - b).abs() <= 5, "{limit}: {what} is {a} through Redis and {b} embedded");
    };
    let parts = |it: &Response| {
        let members = fields::list(&it.all("ratelimit"));
        let member = members.first().expect("a member").clone();
        (member.name().to_owned(), member.integer("r"), member.integer("t"))
    };
    let ((our_name, our_r, our_t), (name, r, t)) = (parts(ours), parts(theirs));
    assert_eq!((our_name, our_r), (name, r), "{limit}");
    near(our_t, t, "t");
    let number = |it: &Response, name: &str| it.one(name).parse::<i64>().unwrap();
    near(number(ours, "x-ratelimit-reset"), number(theirs, "x-ratelimit-reset"), "the reset");
    if ours.status == 429 {
        near(number(ours, "retry-after"), number(theirs, "retry-after"), "Retry-After");
        assert_eq!(ours.error(), theirs.error());
    }
}

#[test]
fn waiting_exactly_retry_after_always_passes() {
    let redis = Redis::start();
    waits_as_told(|number| shared(&redis).store(&format!("prefix = \"case-{number}\"")));
}

#[test]
fn over_any_time_no_more_than_burst_and_rate_pass_two_gateways() {
    let redis = Redis::start();
    let config = shared(&redis).limit("key = \"ip\"\nrate = \"50/second\"\nburst = 10");
    let weirs = Weir::start_two(&config);
    let begin = std::time::Instant::now();
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for weir in weirs.iter().cycle().take(6) {
            let (passed, begin) = (&passed, &begin);
            scope.spawn(move || {
                let mut client = weir.connect();
                while begin.elapsed() < Duration::from_secs(2) {
                    let status = client.ask(get("/")).status;
                    passed.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    let (passed, most) = (passed.into_inner(), 10.0 + 50.0 * begin.elapsed().as_secs_f64());
    assert!(passed as f64 <= most, "{passed} passed, at most {most} may");
    assert!(passed > 10, "nothing was refilled");
}

#[test]
fn a_reload_that_names_another_store_keeps_the_one_that_is_open() {
    let redis = Redis::start();
    let limit = "key = \"header:x-user\"\nrate = \"1/hour\"\nburst = 5";
    let config = shared(&redis).limit(limit);
    let weir = Weir::start(&config);
    let left = || fields::list(&weir.ask(as_user("a")).all("ratelimit"))[0].integer("r");
    assert_eq!(left(), 4);
    weir.reload(&config.clone().store("prefix = \"other\""));
    assert_eq!(left(), 3);
    weir.reload(&Config::echo().limit(limit));
    assert_eq!(left(), 2);
    assert_eq!(redis.buckets().len(), 1, "{:?}", redis.buckets());
    assert!(weir.output().contains("store has changed; that takes a restart"));
}
