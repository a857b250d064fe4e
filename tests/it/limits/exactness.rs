//! How many requests pass: exactly as many as the limit allows.

use std::thread;
use std::time::Duration;

use crate::support::{
    Client, Config, Response, Upstream, Weir, fields, get, get_with, passed_at_once,
};

#[test]
fn burst_passes_and_the_next_request_is_refused() {
    let upstream = Upstream::ok();
    let rows = [
        ("algorithm = \"token_bucket\"\nrate = \"1/hour\"\nburst = 5", 5),
        ("rate = \"7/hour\"", 7),
        ("rate = \"3/hour\"\nburst = 1", 1),
        ("algorithm = \"sliding_window\"\nrate = \"4/day\"", 4),
        ("algorithm = \"fixed_window\"\nrate = \"6/day\"", 6),
        ("rate = \"1/hour\"\nburst = 10\ncost = 3", 3),
        ("algorithm = \"fixed_window\"\nrate = \"10/day\"\ncost = 5", 2),
    ];
    for (limit, passes) in rows {
        let weir = Weir::start(&Config::to(&upstream).limit(&format!("key = \"ip\"\n{limit}")));
        let mut client = weir.connect();
        let statuses: Vec<u16> = (0..passes + 3).map(|_| client.ask(get("/")).status).collect();
        let expected: Vec<u16> =
            (0..passes + 3).map(|n| if n < passes { 200 } else { 429 }).collect();
        assert_eq!(statuses, expected, "{limit}");
    }
}

#[test]
fn sixty_four_clients_get_exactly_the_burst() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-round\"\nrate = \"1/day\"\nburst = 100";
    let weirs = [Weir::start(&Config::to(&upstream).limit(limit))];
    for round in 0..5 {
        let request = get_with("/", &format!("X-Round: {round}\r\n"));
        assert_eq!(passed_at_once(&weirs, 64, 5, &[request]), [100], "round {round}");
    }
    assert_eq!(upstream.heads(), 500);
}

#[test]
fn several_limits_at_once_stay_exact_under_contention() {
    let upstream = Upstream::ok();
    let weirs = [Weir::start(&Config::to(&upstream).mix(40, 10, 35))];
    let requests =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|user| get_with("/", &format!("X-User: {user}\r\n")));
    let passed = passed_at_once(&weirs, 32, 6, &requests);
    assert_eq!(passed.iter().sum::<usize>(), 35, "{passed:?}");
    assert!(passed.iter().all(|it| *it <= 10), "{passed:?}");
}

#[test]
fn refused_request_charges_no_limit() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().bucket("user", "header:x-user", 3);
    let config = config
        .bucket("all", "global", 2)
        .route("both", "/both", &["user", "all"])
        .route("turned", "/turned", &["all", "user"])
        .route("user", "/user", &["user"]);
    let weir = Weir::start(&config);
    let ask = |target: &str, user: &str| weir.ask(get_with(target, &format!("X-User: {user}\r\n")));
    assert_eq!(ask("/both", "spender").status, 200);
    assert_eq!(ask("/turned", "spender").status, 200);
    // The global bucket is empty: refusals must leave the user's as it is, and say so.
    for target in ["/both", "/turned", "/both", "/turned", "/both"] {
        let response = ask(target, "a");
        assert_eq!((response.status, response.json()["limit"].as_str()), (429, Some("all")));
        let user = fields::list(&response.all("ratelimit"));
        let user = user.iter().find(|it| it.name() == "user").expect("every limit that applied");
        assert_eq!(user.integer("r"), 3);
    }
    let statuses: Vec<u16> = (0..4).map(|_| ask("/user", "a").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[test]
fn waiting_exactly_retry_after_always_passes() {
    let upstream = Upstream::ok();
    waits_as_told(|_| Config::to(&upstream));
}

/// For limits of several kinds, each on a gateway of its own: what waits as long as a refusal says,
/// in seconds or in milliseconds, passes.
pub(crate) fn waits_as_told(config: impl Fn(usize) -> Config) {
    let limits = [
        "algorithm = \"token_bucket\"\nrate = \"1/second\"\nburst = 1",
        "algorithm = \"token_bucket\"\nrate = \"3/second\"\nburst = 2",
        "algorithm = \"token_bucket\"\nrate = \"7/5s\"\nburst = 3",
        "algorithm = \"sliding_window\"\nrate = \"2/second\"",
        "algorithm = \"fixed_window\"\nrate = \"2/second\"",
        "algorithm = \"token_bucket\"\nrate = \"10/second\"\nburst = 10\ncost = 7",
    ];
    thread::scope(|scope| {
        for (number, limit) in limits.into_iter().enumerate() {
            let config = config(number).limit(&format!("key = \"ip\"\n{limit}"));
            scope.spawn(move || {
                let weir = Weir::start(&config);
                let mut client = weir.connect();
                for exact in [false, true, true] {
                    let problem = refusal(&mut client).json();
                    let [seconds, millis] =
                        ["retry_after", "retry_after_ms"].map(|it| problem[it].as_u64().unwrap());
                    assert!(seconds >= 1 && millis <= seconds * 1000, "{limit}: {problem}");
                    // The wait is what is tested, so it is a sleep.
                    let wait = if exact { millis } else { seconds * 1000 };
                    thread::sleep(Duration::from_millis(wait));
                    assert_eq!(client.ask(get("/")).status, 200, "{limit} after {problem}");
                }
            });
        }
    });
}

/// The answer to the first request that is refused.
fn refusal(client: &mut Client) -> Response {
    let mut responses = (0..200).map(|_| client.ask(get("/")));
    let refusal = responses.find(|it| it.status == 429).expect("something is refused");
    let seconds: u64 = refusal.one("retry-after").parse().unwrap();
    assert_eq!(refusal.json()["retry_after"], seconds);
    refusal
}

#[test]
fn no_more_than_burst_plus_rate_pass_over_any_time() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"50/second\"\nburst = 10";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let begin = std::time::Instant::now();
    let mut client = weir.connect();
    let mut passed = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        passed += u32::from(client.ask(get("/")).status == 200);
    }
    let most = 10.0 + 50.0 * begin.elapsed().as_secs_f64();
    assert!(f64::from(passed) <= most, "{passed} passed, at most {most} may");
    assert!(passed > 10, "nothing was refilled");
}

#[test]
fn full_table_evicts_no_bucket_and_admits_no_one_for_free() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1";
    let store = "[store]\nkind = \"memory\"\nmax_keys = 1000";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(store));
    let ask = |client: &mut Client, user: &str| {
        client.ask(get_with("/", &format!("X-User: {user}\r\n"))).status
    };
    let mut client = weir.connect();
    assert_eq!(ask(&mut client, "victim"), 200);
    let flood = (0..3000).filter(|n| ask(&mut client, &format!("flood-{n}")) == 200).count();
    assert!(flood < 3000, "new keys in a full table share buckets");
    assert!(flood >= 900, "{flood} of the first thousand keys got a bucket");
    assert_eq!(ask(&mut client, "victim"), 429, "forgotten to make room");
    for n in [0, 1, 500, 2000, 2999] {
        assert_eq!(ask(&mut client, &format!("flood-{n}")), 429, "flood-{n}");
    }
    let buckets = weir.metrics().value("weir_buckets", &[]).expect("weir_buckets");
    assert!(buckets >= 900.0, "{buckets}");
}

#[test]
fn cost_above_the_limit_never_passes_and_charges_nothing() {
    let upstream = Upstream::ok();
    let dear = "key = \"ip\"\nrate = \"1/hour\"\nburst = 5\ncost = 6";
    let config = Config::to(&upstream).open().bucket("cheap", "ip", 2).add_limit("dear", dear);
    let config = config.route("dear", "/dear", &["cheap", "dear"]);
    let weir = Weir::start(&config.route("cheap", "/*", &["cheap"]));
    for _ in 0..5 {
        let refused = weir.get("/dear");
        assert_eq!((refused.status, refused.error()), (429, "cost_exceeds_limit".into()));
        assert!(refused.all("retry-after").is_empty(), "waiting does not help");
    }
    assert_eq!([0; 3].map(|_| weir.get("/").status), [200, 200, 429]);
    assert_eq!(upstream.heads(), 2);
}
