//! Several gateways with one Redis admit together exactly what one admits alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Config, Redis, Response, Weir, fields, get, get_with};

/// The built-in upstream and a store that is waited for, so that a busy machine never makes a
/// gateway decide without it where counts must be exact; that would show as a 503.
const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn shared(redis: &Redis) -> Config {
    Config::echo().store(&redis.store()).store(PATIENT)
}

/// A route `all` with four limits of all kinds, each by something else.
const FOUR: &str = r#"
    [limits.ip]
    key = "ip"
    rate = "1/hour"
    burst = 1000

    [limits.user]
    key = "header:x-user"
    algorithm = "sliding_window"
    rate = "500/hour"

    [limits.way]
    key = "route"
    algorithm = "fixed_window"
    rate = "400/day"

    [limits.all]
    key = "global"
    rate = "1/hour"
    burst = 2

    [[routes]]
    name = "all"
    path = "/*"
    upstream = "echo"
    limits = ["ip", "user", "way", "all"]
"#;

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

fn exactly_the_burst(gateways: usize, clients: usize, rounds: usize) {
    let redis = Redis::start();
    let config = shared(&redis).limit("key = \"header:x-user\"\nrate = \"1/day\"\nburst = 100");
    let weirs: Vec<Weir> = (0..gateways).map(|_| Weir::start(&config)).collect();
    let each = 300 / (gateways * clients) + 1;
    for round in 0..rounds {
        let (passed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for weir in &weirs {
                for _ in 0..clients {
                    scope.spawn(|| {
                        let mut client = weir.connect();
                        for _ in 0..each {
                            match client.ask(as_user(&format!("round-{round}"))).status {
                                200 => passed.fetch_add(1, Ordering::Relaxed),
                                429 => refused.fetch_add(1, Ordering::Relaxed),
                                status => panic!("answered {status}"),
                            };
                        }
                    });
                }
            }
        });
        let rest = gateways * clients * each - 100;
        assert_eq!((passed.into_inner(), refused.into_inner()), (100, rest), "round {round}");
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
    let weirs = [Weir::start(&config), Weir::start(&config)];
    let passed: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for n in 0..32 {
            let (weir, passed) = (&weirs[n / 8 % 2], &passed);
            scope.spawn(move || {
                let user = n % 8;
                let mut client = weir.connect();
                for _ in 0..6 {
                    let status = client.ask(as_user(&user.to_string())).status;
                    passed[user].fetch_add(usize::from(status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    let passed: Vec<usize> = passed.into_iter().map(AtomicUsize::into_inner).collect();
    assert_eq!(passed.iter().sum::<usize>(), 35, "{passed:?}");
    assert!(passed.iter().all(|it| *it <= 10), "{passed:?}");
}

#[test]
fn a_request_with_four_limits_is_one_script_call() {
    let redis = Redis::start();
    let weir = Weir::start(&shared(&redis).open().routes(FOUR));
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
    let config = shared(&redis).open().routes(FOUR);
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
    let tables = FOUR.replace("burst = 2\n", "burst = 100000\n").replace("1000\n", "100000\n");
    let tables = tables.replace("500/hour", "100000/hour").replace("400/day", "100000/day");
    let weir = Weir::start(&shared(&redis).open().routes(&tables));
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
    let limits = [
        "algorithm = \"token_bucket\"\nrate = \"1/second\"\nburst = 1",
        "algorithm = \"token_bucket\"\nrate = \"3/second\"\nburst = 2",
        "algorithm = \"sliding_window\"\nrate = \"2/second\"",
        "algorithm = \"fixed_window\"\nrate = \"2/second\"",
        "algorithm = \"token_bucket\"\nrate = \"10/second\"\nburst = 10\ncost = 7",
    ];
    thread::scope(|scope| {
        for (n, limit) in limits.into_iter().enumerate() {
            let config = shared(&redis).store(&format!("prefix = \"case-{n}\""));
            scope.spawn(move || {
                let weir = Weir::start(&config.limit(&format!("key = \"ip\"\n{limit}")));
                let mut client = weir.connect();
                for exact in [false, true, true] {
                    let refusal =
                        (0..200).map(|_| client.ask(get("/"))).find(|it| it.status == 429);
                    let refusal = refusal.expect("something is refused");
                    let seconds: u64 = refusal.one("retry-after").parse().unwrap();
                    let millis = refusal.json()["retry_after_ms"].as_u64().unwrap();
                    assert!(seconds >= 1 && millis <= seconds * 1000, "{limit}");
                    // The wait is what is tested, so it is a sleep.
                    let wait = if exact { millis } else { seconds * 1000 };
                    thread::sleep(Duration::from_millis(wait));
                    assert_eq!(client.ask(get("/")).status, 200, "{limit} after {wait} ms");
                }
            });
        }
    });
}

#[test]
fn over_any_time_no_more_than_burst_and_rate_pass_two_gateways() {
    let redis = Redis::start();
    let config = shared(&redis).limit("key = \"ip\"\nrate = \"50/second\"\nburst = 10");
    let weirs = [Weir::start(&config), Weir::start(&config)];
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
