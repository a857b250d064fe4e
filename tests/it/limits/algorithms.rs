//! Each algorithm as its callers meet it: when it admits again, how it paces, what its headers say.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::load::FREE;
use crate::support::queues::{RecordingUpstream, numbered, queue_depth};
use crate::support::{
    Client, Config, Response, TestStore, Upstream, Weir, fields, get, on_each_store, wait_until,
};

on_each_store!(
    refills_come_at_whole_periods,
    sliding_log_is_exact_in_any_window_and_at_retry_after,
    leaky_bucket_forwards_requests_one_by_one,
    leaky_bucket_forwards_in_order_of_arrival,
    a_month_ends_in_its_time_zone,
    rate_headers_parse_and_count_down,
    waiting_exactly_retry_after_passes,
);

/// What clocks may differ by over a few seconds.
const SKEW: Duration = Duration::from_millis(2);

fn echo(test_store: &TestStore, limit: &str) -> Weir {
    Weir::start(&test_store.configure(Config::echo().limit(&format!("key = \"ip\"\n{limit}"))))
}

fn millis(refusal: &Response) -> u64 {
    refusal.json()["retry_after_ms"].as_u64().expect("retry_after_ms")
}

/// Asks until it is refused, and returns how many passed before.
#[track_caller]
fn spend_all(client: &mut Client) -> (usize, Response) {
    for passed in 0..100 {
        let response = client.ask(get("/"));
        if response.status == 429 {
            return (passed, response);
        }
        assert_eq!(response.status, 200);
    }
    panic!("nothing was ever refused");
}

fn refills_come_at_whole_periods(test_store: &TestStore) {
    const EVERY: Duration = Duration::from_secs(2);
    let weir = echo(test_store, "burst = 5\nrefill = { every = \"2s\", amount = 3 }");
    let mut client = weir.connect();
    let begin = Instant::now();
    let (passed, refusal) = spend_all(&mut client);
    assert_eq!(passed, 5);
    assert!((1..=2000).contains(&millis(&refusal)), "{}", refusal.text());
    for period in 1..=2 {
        // A third of it would do for one, were it continuous.
        wait_until("the refill", || client.ask(get("/")).status == 200);
        assert!(begin.elapsed() + SKEW >= EVERY * period, "in the middle of a period");
        let (more, refusal) = spend_all(&mut client);
        if begin.elapsed() < EVERY * (period + 1) {
            assert_eq!(1 + more, 3, "a refill is three");
            let next = Duration::from_millis(millis(&refusal));
            assert!(begin.elapsed() + next + SKEW >= EVERY * (period + 1), "{next:?}");
        }
    }
}

fn sliding_log_is_exact_in_any_window_and_at_retry_after(test_store: &TestStore) {
    const WINDOW: Duration = Duration::from_secs(2);
    let weir = echo(test_store, "algorithm = \"sliding_log\"\nrate = \"3/2s\"");
    let mut client = weir.connect();
    let mut admitted = Vec::new();
    let mut ask = || {
        let sent = Instant::now();
        let response = client.ask(get("/"));
        if response.status == 200 {
            admitted.push((sent, Instant::now()));
        }
        response
    };
    for _ in 0..3 {
        assert_eq!(ask().status, 200);
        // Apart, so that each ages out at an instant of its own.
        thread::sleep(Duration::from_millis(300));
    }
    for _ in 0..6 {
        let refusal = ask();
        assert_eq!(refusal.status, 429, "three in two seconds, and no more");
        assert!(millis(&refusal) <= 2000, "{}", refusal.text());
        // The wait is what is tested, so it is a sleep.
        thread::sleep(Duration::from_millis(millis(&refusal)));
        assert_eq!(ask().status, 200, "after {} ms", millis(&refusal));
    }
    for (first, fourth) in admitted.iter().zip(&admitted[3..]) {
        assert!(fourth.1 - first.0 + SKEW >= WINDOW, "four in {:?}", fourth.1 - first.0);
    }
}

fn leaky_bucket_forwards_requests_one_by_one(test_store: &TestStore) {
    const PACE: Duration = Duration::from_millis(20);
    let recording = RecordingUpstream::start();
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"50/second\"\nburst = 5";
    let weir =
        Weir::start(&test_store.configure(Config::to(&recording.upstream).limit(limit).also(FREE)));
    let mut clients: Vec<Client> = (0..10).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(get("/free")).status, 200));
    let begin = Instant::now();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
    }
    let answers: Vec<Response> = clients.iter_mut().map(Client::response).collect();
    let took = begin.elapsed();
    let passed = answers.iter().filter(|it| it.status == 200).count();
    // There is room for another for each that has left before the last of them came.
    let most = 5 + (took.as_millis() / PACE.as_millis()) as usize;
    assert!((5..=most).contains(&passed), "{passed} passed, there is room for five, in {took:?}");
    let arrivals = recording.arrivals();
    assert_eq!(arrivals.len(), passed);
    for (turn, (_, arrived)) in (0..).zip(arrivals.iter()) {
        let waited = *arrived - begin;
        assert!(waited + SKEW >= PACE * turn, "{turn} left after {waited:?}");
        assert!(waited < PACE * turn + Duration::from_secs(2), "{turn} left after {waited:?}");
    }
    for refusal in answers.iter().filter(|it| it.status != 200) {
        assert_eq!((refusal.status, refusal.error()), (429, "rate_limit_exceeded".into()));
        assert_eq!(refusal.one("retry-after"), "1");
        assert!(millis(refusal) <= 20, "there is room when the next has left");
    }
}

fn leaky_bucket_forwards_in_order_of_arrival(test_store: &TestStore) {
    let recording = RecordingUpstream::start();
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"4/second\"\nburst = 5";
    let weir = Weir::start(&test_store.configure(Config::to(&recording.upstream).limit(limit)));
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..5).map(|_| weir.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
        wait_until("it waits its turn", || {
            queue_depth(&weir) + recording.upstream.heads() > number
        });
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    assert_eq!(statuses, [200; 5]);
    for (turn, (number, arrived)) in (0..).zip(recording.arrivals()) {
        assert_eq!(number, turn as usize);
        assert!(arrived - begin + SKEW >= Duration::from_millis(250) * turn);
    }
    wait_until("nobody waits", || queue_depth(&weir) == 0);
}

/// Seconds until the month ends in a time zone that is always so far ahead of UTC.
fn month_ends_in(ahead: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let local = now + ahead;
    let (mut day, mut year, mut month) = (0, 1970, 0);
    loop {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        day += lengths[month];
        if day * 86_400 > local {
            return day * 86_400 - local;
        }
        month = (month + 1) % 12;
        year += i64::from(month == 0);
    }
}

fn a_month_ends_in_its_time_zone(test_store: &TestStore) {
    let upstream = Upstream::ok();
    // None of them has a summer time.
    let zones = [
        ("UTC", 0),
        ("Asia/Kolkata", 19_800),
        ("Pacific/Kiritimati", 50_400),
        ("America/Phoenix", -25_200),
        ("Pacific/Pago_Pago", -39_600),
    ];
    let mut tables = String::new();
    for (index, (zone, _)) in zones.iter().enumerate() {
        tables += &format!(
            "[limits.n{index}]\nkey = \"ip\"\nalgorithm = \"fixed_window\"\nrate = \"2/month\"\n\
             timezone = \"{zone}\"\n\
             [[routes]]\nname = \"n{index}\"\npath = \"/{index}\"\nupstream = \"api\"\n\
             limits = [\"n{index}\"]\n"
        );
    }
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).open().routes(&tables)));
    for (index, (zone, ahead)) in zones.into_iter().enumerate() {
        for left in [1, 0, 0] {
            let before = month_ends_in(ahead);
            let response = weir.get(&format!("/{index}"));
            let after = month_ends_in(ahead);
            if after > before {
                // A new month has just begun, and with it a new count.
                break;
            }
            let told = fields::list(&response.all("ratelimit"));
            assert_eq!(told[0].integer("r"), left, "{zone}");
            let t = told[0].integer("t");
            assert!((after..=before + 1).contains(&t), "{zone}: {t}, not {after} to {before}");
            let policy = fields::list(&response.all("ratelimit-policy"));
            assert_eq!(policy[0].integer("q"), 2);
            assert!((28 * 86_400..=31 * 86_400).contains(&policy[0].integer("w")));
            if response.status == 429 {
                let retry: i64 = response.one("retry-after").parse().unwrap();
                assert_eq!(retry, t, "{zone}");
            }
        }
        let response = weir.get(&format!("/{index}"));
        assert!(response.status == 429 || month_ends_in(ahead) > 27 * 86_400, "{zone}");
    }
}

/// One of each algorithm that admits four at once, and whether its policy has a window.
const EACH: [(&str, Option<i64>); 7] = [
    ("rate = \"1/minute\"\nburst = 4", Some(240)),
    ("burst = 4\nrefill = { every = \"1m\", amount = 2 }", Some(120)),
    ("algorithm = \"sliding_window\"\nrate = \"4/day\"", Some(86_400)),
    ("algorithm = \"sliding_log\"\nrate = \"4/hour\"", Some(3_600)),
    ("algorithm = \"fixed_window\"\nrate = \"4/day\"", Some(86_400)),
    ("algorithm = \"leaky_bucket\"\nrate = \"4/2s\"", Some(2)),
    ("algorithm = \"concurrency\"\nlimit = 4", None),
];

fn rate_headers_parse_and_count_down(test_store: &TestStore) {
    for (index, (limit, window)) in EACH.into_iter().enumerate() {
        let config = Config::echo().limit(&format!("key = \"ip\"\n{limit}"));
        let weir = Weir::start(&test_store.configure_case(index, config));
        let mut client = weir.connect();
        for asked in 1..=6 {
            let response = client.ask(get("/"));
            let policies = fields::list(&response.all("ratelimit-policy"));
            let limits = fields::list(&response.all("ratelimit"));
            assert_eq!((policies.len(), limits.len()), (1, 1), "{limit}");
            let (policy, told) = (&policies[0], &limits[0]);
            assert_eq!((policy.name(), told.name()), ("per-ip", "per-ip"));
            assert_eq!(policy.integer("q"), 4, "{limit}");
            match window {
                Some(seconds) => assert_eq!(policy.integer("w"), seconds, "{limit}"),
                None => assert!(policy.get("w").is_none(), "{limit}: {policy:?}"),
            }
            let (left, next) = (told.integer("r"), told.integer("t"));
            assert_eq!(response.one("x-ratelimit-limit"), "4");
            assert_eq!(response.one("x-ratelimit-remaining"), left.to_string());
            assert!(response.one("x-ratelimit-reset").parse::<u64>().is_ok());
            match window {
                // Each has ended before the next comes.
                None => assert_eq!((response.status, left), (200, 3)),
                Some(2) => assert!((0..4).contains(&left)),
                Some(_) => {
                    assert_eq!(response.status, if asked <= 4 { 200 } else { 429 }, "{limit}");
                    assert_eq!(left, (4 - asked).max(0), "{limit}");
                }
            }
            // What was spent in a sliding window may weigh on the next one.
            let most = window.unwrap_or(1) * if limit.contains("sliding_window") { 2 } else { 1 };
            assert!((1..=most).contains(&next), "{limit}: {next}");
            if response.status == 429 {
                let retry: i64 = response.one("retry-after").parse().unwrap();
                assert!(retry >= next, "{limit}: {retry} before {next}");
            }
        }
    }
}

fn waiting_exactly_retry_after_passes(test_store: &TestStore) {
    let limits = [
        "burst = 4\nrefill = { every = \"700ms\", amount = 2 }",
        "burst = 10\nrefill = { every = \"300ms\", amount = 3 }\ncost = 7",
        "algorithm = \"sliding_log\"\nrate = \"3/second\"",
        "algorithm = \"sliding_log\"\nrate = \"10/second\"\ncost = 4",
    ];
    thread::scope(|scope| {
        for (index, limit) in limits.into_iter().enumerate() {
            scope.spawn(move || {
                let config = Config::echo().limit(&format!("key = \"ip\"\n{limit}"));
                let weir = Weir::start(&test_store.configure_case(index, config));
                let mut client = weir.connect();
                for exact in [false, true, true] {
                    let (_, refusal) = spend_all(&mut client);
                    let seconds: u64 = refusal.one("retry-after").parse().unwrap();
                    assert!(seconds >= 1 && millis(&refusal) <= seconds * 1000, "{limit}");
                    let wait = if exact { millis(&refusal) } else { seconds * 1000 };
                    // The wait is what is tested, so it is a sleep.
                    thread::sleep(Duration::from_millis(wait));
                    assert_eq!(client.ask(get("/")).status, 200, "{limit} after {wait} ms");
                }
            });
        }
    });
}
