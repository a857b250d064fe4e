//! How many requests pass: exactly as many as the limit allows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Config, Response, Upstream, Weir, fields, get, get_with};

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
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    for round in 0..5 {
        let (passed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    let mut client = weir.connect();
                    for _ in 0..5 {
                        let response = client.ask(get_with("/", &format!("X-Round: {round}\r\n")));
                        let counter = if response.status == 200 { &passed } else { &refused };
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((passed.into_inner(), refused.into_inner()), (100, 220), "round {round}");
    }
    assert_eq!(upstream.heads(), 500);
}

#[test]
fn several_limits_at_once_stay_exact_under_contention() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).mix(40, 10, 35));
    let passed: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for n in 0..32 {
            let (weir, passed) = (&weir, &passed);
            scope.spawn(move || {
                let user = n % 8;
                let mut client = weir.connect();
                for _ in 0..6 {
                    let response = client.ask(get_with("/", &format!("X-User: {user}\r\n")));
                    passed[user].fetch_add(usize::from(response.status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    let passed: Vec<usize> = passed.into_iter().map(AtomicUsize::into_inner).collect();
    assert_eq!(passed.iter().sum::<usize>(), 35, "{passed:?}");
    assert!(passed.iter().all(|it| *it <= 10), "{passed:?}");
}

#[test]
fn refused_request_charges_no_limit() {
    let upstream = Upstream::ok();
    let tables = r#"
        [limits.user]
        key = "header:x-user"
        rate = "1/hour"
        burst = 3

        [limits.all]
        key = "global"
        rate = "1/hour"
        burst = 2

        [[routes]]
        name = "both"
        path = "/both"
        upstream = "api"
        limits = ["user", "all"]

        [[routes]]
        name = "turned"
        path = "/turned"
        upstream = "api"
        limits = ["all", "user"]

        [[routes]]
        name = "user"
        path = "/user"
        upstream = "api"
        limits = ["user"]
    "#;
    let weir = Weir::start(&Config::to(&upstream).open().routes(tables));
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
    let limits = [
        "algorithm = \"token_bucket\"\nrate = \"1/second\"\nburst = 1",
        "algorithm = \"token_bucket\"\nrate = \"3/second\"\nburst = 2",
        "algorithm = \"token_bucket\"\nrate = \"7/5s\"\nburst = 3",
        "algorithm = \"sliding_window\"\nrate = \"2/second\"",
        "algorithm = \"fixed_window\"\nrate = \"2/second\"",
        "algorithm = \"token_bucket\"\nrate = \"10/second\"\nburst = 10\ncost = 7",
    ];
    thread::scope(|scope| {
        for limit in limits {
            let upstream = &upstream;
            scope.spawn(move || {
                let config = Config::to(upstream).limit(&format!("key = \"ip\"\n{limit}"));
                let weir = Weir::start(&config);
                for exact in [false, true] {
                    let refusal = spend_all(&weir);
                    let problem = refusal.json();
                    let seconds: u64 = refusal.one("retry-after").parse().unwrap();
                    let millis = problem["retry_after_ms"].as_u64().unwrap();
                    assert_eq!(problem["retry_after"], seconds);
                    assert!(seconds >= 1 && millis <= seconds * 1000, "{limit}: {problem}");
                    // The wait is what is tested, so it is a sleep.
                    thread::sleep(Duration::from_millis(if exact {
                        millis
                    } else {
                        seconds * 1000
                    }));
                    assert_eq!(weir.get("/").status, 200, "{limit} after {problem}");
                }
            });
        }
    });
}

fn spend_all(weir: &Weir) -> Response {
    let mut client = weir.connect();
    for _ in 0..100 {
        let response = client.ask(get("/"));
        if response.status == 429 {
            return response;
        }
    }
    panic!("nothing was ever refused");
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
    let ask = |client: &mut crate::support::Client, user: &str| {
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
    let tables = r#"
        [limits.cheap]
        key = "ip"
        rate = "1/hour"
        burst = 2

        [limits.dear]
        key = "ip"
        rate = "1/hour"
        burst = 5
        cost = 6

        [[routes]]
        name = "dear"
        path = "/dear"
        upstream = "api"
        limits = ["cheap", "dear"]

        [[routes]]
        name = "cheap"
        path = "/*"
        upstream = "api"
        limits = ["cheap"]
    "#;
    let weir = Weir::start(&Config::to(&upstream).open().routes(tables));
    for _ in 0..5 {
        let refused = weir.get("/dear");
        assert_eq!((refused.status, refused.error()), (429, "cost_exceeds_limit".into()));
        assert!(refused.all("retry-after").is_empty(), "waiting does not help");
    }
    assert_eq!([0; 3].map(|_| weir.get("/").status), [200, 200, 429]);
    assert_eq!(upstream.heads(), 2);
}
