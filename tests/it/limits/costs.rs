//! What a request costs, where its cost comes from, and when it is charged.

use std::thread;
use std::time::Duration;

use crate::support::upstream::ok;
use crate::support::{
    Config, HeldUpstream, Response, TestStore, Upstream, Weir, fields, get, get_with,
    on_each_store, wait_until,
};

on_each_store!(
    cost_in_plain_digits_is_charged_up_to_the_maximum,
    cost_in_another_spelling_is_refused_and_charges_nothing,
    a_cost_above_the_burst_never_passes_and_charges_nothing,
    a_route_has_a_cost_of_its_own,
    client_cannot_strip_its_cost_header,
    response_states_the_cost_of_its_request,
    debt_is_refilled_before_another_request_passes,
    debt_is_bounded_by_the_maximum_cost_of_a_request,
    only_failed_logins_are_charged,
    client_that_leaves_before_the_response_is_charged,
    failing_upstream_is_charged_by_its_status,
);

/// A thousand for each user, and none comes back while a test runs.
const THOUSAND: &str = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1000\n";

/// A gateway where each user has that much to spend at these costs.
pub(crate) fn with_thousand(test_store: &TestStore, config: Config, cost: &str) -> Weir {
    let limit = format!("{THOUSAND}cost = {cost}");
    Weir::start(&test_store.configure(config.limit(&limit)))
}

fn left(response: &Response) -> i64 {
    fields::list(&response.all("ratelimit"))[0].integer("r")
}

/// What a request with these lines was charged, as a user of its own.
#[track_caller]
pub(crate) fn charged(weir: &Weir, user: &str, target: &str, lines: &str) -> i64 {
    let response = weir.ask(get_with(target, &format!("X-User: {user}\r\n{lines}")));
    assert_eq!(response.status, 200, "{target} {lines:?}");
    1000 - left(&response)
}

fn cost_in_plain_digits_is_charged_up_to_the_maximum(test_store: &TestStore) {
    let cost = "{ from = \"header:x-weight\", default = 2, max = 100 }";
    let weir = with_thousand(test_store, Config::echo(), cost);
    let rows = [
        ("0", 2),
        ("000", 2),
        ("", 2),
        ("  ", 2),
        ("999999999999", 100),
        ("18446744073709551616", 100),
        ("99999999999999999999999999999999999999", 100),
        ("101", 100),
        ("100", 100),
        ("5", 5),
        ("\t5 ", 5),
        ("005", 5),
        ("1", 1),
    ];
    for (number, (value, cost)) in rows.into_iter().enumerate() {
        let lines = format!("X-Weight: {value}\r\n");
        let user = format!("user-{number}");
        assert_eq!(charged(&weir, &user, "/", &lines), cost, "{value:?}");
    }
    assert_eq!(charged(&weir, "absent", "/", ""), 2);
}

/// What one reader takes for the default is a number to another: `+50`, `5_0`, `1e3`.
fn cost_in_another_spelling_is_refused_and_charges_nothing(test_store: &TestStore) {
    let cost = "{ from = \"header:x-weight\", default = 2, max = 100 }";
    let weir = with_thousand(test_store, Config::echo(), cost);
    let plain = [
        "-5",
        "-0",
        "-1000",
        "NaN",
        "nan",
        "inf",
        "-inf",
        "Infinity",
        "1e309",
        "1e3",
        "0x10",
        "+5",
        "+1000",
        "5.0",
        "5,",
        ",5",
        "2,",
        "1_0",
        "5 5",
        "\"5\"",
        "5;6",
        "five",
        "\u{665}\u{660}",
    ];
    let spellings = plain.iter().map(|value| value.as_bytes());
    for value in spellings.chain([&b"50\xa0"[..], b"\xa050", b"5\x85"]) {
        let head = b"GET / HTTP/1.1\r\nHost: weir.test\r\nX-User: ann\r\nX-Weight: ";
        let response = weir.ask([&head[..], value, b"\r\n\r\n"].concat());
        let told = (response.status, response.error());
        assert_eq!(told, (400, "bad_request".into()), "{}", value.escape_ascii());
    }
    assert_eq!(charged(&weir, "ann", "/", "X-Weight: 7\r\n"), 7, "and nothing before");
}

fn a_cost_above_the_burst_never_passes_and_charges_nothing(test_store: &TestStore) {
    let small = "key = \"ip\"\nrate = \"1/day\"\nburst = 50\n\
        cost = { from = \"header:x-weight\", default = 1, max = 100 }";
    let config = Config::echo().open().add_limit("small", small).bucket("beside", "ip", 10);
    let config = config.route("all", "/*", &["beside", "small"]);
    let weir = Weir::start(&test_store.configure(config));
    let ask = |weight: &str| weir.ask(get_with("/", &format!("X-Weight: {weight}\r\n")));
    let told = |response: &Response| {
        let told = fields::list(&response.all("ratelimit"));
        [told[0].integer("r"), told[1].integer("r")]
    };
    for weight in ["51", "100", "100000000000000000000"] {
        let refused = ask(weight);
        assert_eq!((refused.status, refused.error()), (429, "cost_exceeds_limit".into()));
        assert!(!refused.has("retry-after"), "waiting does not help");
        assert_eq!(refused.json()["limit"], "small");
        assert!(refused.json().get("retry_after").is_none(), "{}", refused.text());
    }
    assert_eq!(told(&ask("1")), [9, 49], "nothing was charged");
    assert_eq!(told(&ask("49")), [8, 0], "what is there may be spent at once");
    let refused = ask("1");
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
    assert!(refused.has("retry-after"));
}

fn a_route_has_a_cost_of_its_own(test_store: &TestStore) {
    let config = Config::echo()
        .open()
        .add_limit("user", &(THOUSAND.to_owned() + "cost = 2"))
        .route("dear", "/dear", &["user"])
        .route_lines("cost = 30")
        .route("told", "/told", &["user"])
        .route_lines("cost = { from = \"header:x-weight\", default = 4, max = 40 }")
        .route("rest", "/*", &["user"]);
    let weir = Weir::start(&test_store.configure(config));
    let mut spent = 0;
    let rows = [("/", "", 2), ("/dear", "", 30), ("/told", "", 4), ("/told", "9", 9)];
    for (target, weight, cost) in rows.into_iter().chain([("/dear", "9", 30), ("/told", "99", 40)])
    {
        spent += cost;
        let lines =
            if weight.is_empty() { String::new() } else { format!("X-Weight: {weight}\r\n") };
        assert_eq!(charged(&weir, "one", target, &lines), spent, "{target} {weight}");
    }
}

fn client_cannot_strip_its_cost_header(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let cost = "{ from = \"header:x-weight\", default = 1, max = 100 }";
    let weir = with_thousand(test_store, Config::to(&upstream), cost);
    for (number, name) in ["x-weight", "X-Weight", "close, X-WEIGHT"].into_iter().enumerate() {
        let lines = format!("Connection: {name}\r\nX-Weight: 50\r\n");
        assert_eq!(charged(&weir, &format!("user-{number}"), "/", &lines), 50, "{name}");
        assert_eq!(upstream.last().one("x-weight"), "50", "{name}");
    }
    // Nor say one thing to us and another to the upstream.
    assert_eq!(charged(&weir, "disguised", "/", "X_Weight: 50\r\n"), 1);
    assert!(!upstream.last().has("x_weight"), "{}", upstream.last().raw);
}

/// Answers with the header lines that the query names, percent signs for spaces and all.
fn telling() -> Upstream {
    Upstream::replying(|request| {
        let status = request.all("x-status").first().map_or("200", |it| *it).to_owned();
        let lines: String =
            request.all("x-tell").iter().map(|value| format!("X-Cost: {value}\r\n")).collect();
        format!("HTTP/1.1 {status} Told\r\n{lines}Content-Length: 2\r\n\r\nok").into_bytes()
    })
}

/// A request of a user whose response states this cost.
fn tell(user: &str, cost: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\nX-Tell: {cost}\r\n"))
}

fn response_states_the_cost_of_its_request(test_store: &TestStore) {
    let upstream = telling();
    let cost = "{ from = \"response:x-cost\", default = 3, max = 100 }";
    let weir = with_thousand(test_store, Config::to(&upstream), cost);
    let rows = [
        ("X-Tell: 7\r\n", 7),
        ("X-Tell: 0\r\n", 0),
        ("X-Tell: 100\r\n", 100),
        ("X-Tell: 101\r\n", 100),
        ("X-Tell: 999999999999999999999\r\n", 100),
        ("", 3),
        ("X-Tell: -5\r\n", 3),
        ("X-Tell: +5\r\n", 3),
        ("X-Tell: 5.0\r\n", 3),
        ("X-Tell: 1e3\r\n", 3),
        ("X-Tell: inf\r\n", 3),
        ("X-Tell: NaN\r\n", 3),
        ("X-Tell: 0x10\r\n", 3),
        ("X-Tell: \r\n", 3),
        ("X-Tell: 5\r\nX-Tell: 6\r\n", 3),
        // A cost stated by the client is ignored.
        ("X-Cost: 0\r\n", 3),
    ];
    for (number, (lines, cost)) in rows.into_iter().enumerate() {
        let user = format!("user-{number}");
        let mut spent = 0;
        for _ in 0..3 {
            spent += cost;
            // Stated in the response that costs it, and still true in the next.
            assert_eq!(charged(&weir, &user, "/", lines), spent, "{lines:?}");
        }
        let response = weir.ask(tell(&user, "0"));
        assert_eq!(1000 - left(&response), spent, "{lines:?}");
        assert_eq!(response.one("x-cost"), "0", "the client sees what it was charged");
    }
}

fn debt_is_refilled_before_another_request_passes(test_store: &TestStore) {
    let upstream = telling();
    let limit = "key = \"header:x-user\"\nrate = \"10/second\"\nburst = 10\n\
                 cost = { from = \"response:x-cost\", default = 1, max = 20 }";
    let weir = Weir::start(&test_store.configure(Config::to(&upstream).limit(limit)));
    let response = weir.ask(tell("a", "25"));
    assert_eq!((response.status, left(&response)), (200, 0), "it passed before it was known");
    // Ten below zero, and one above it is what the next has to find.
    let refused = weir.ask(tell("a", "0"));
    assert_eq!((refused.status, left(&refused)), (429, 0));
    let wait = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert!((600..=1100).contains(&wait), "{wait} ms for eleven");
    assert_eq!(weir.ask(tell("b", "0")).status, 200, "others have nothing to pay");
    // The wait is what is tested, so it is a sleep.
    thread::sleep(Duration::from_millis(wait));
    assert_eq!(weir.ask(tell("a", "0")).status, 200);
}

fn debt_is_bounded_by_the_maximum_cost_of_a_request(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = "key = \"ip\"\nrate = \"1/second\"\nburst = 5\n\
                 cost = { from = \"response:x-cost\", default = 30, max = 30 }";
    let weir = Weir::start(&test_store.configure(held.config().limit(limit)));
    let mut clients: Vec<_> = (0..8).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/held")));
    wait_until("all are in flight", || held.held_count() == 8);
    held.release("/held");
    for client in &mut clients {
        assert_eq!(client.response().status, 200, "one was there when it came");
    }
    let refused = weir.get("/");
    assert_eq!(refused.status, 429);
    let wait = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert!((25_000..=31_000).contains(&wait), "{wait} ms, of 8 times 30 that were charged");
}

fn only_failed_logins_are_charged(test_store: &TestStore) {
    let upstream = telling();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 3\ncount = ";
    let rows = [
        ("\"401\"", vec!["401"], vec!["200", "403", "404", "500"]),
        ("[\"401\", \"403\"]", vec!["401", "403"], vec!["200", "302", "404", "503"]),
        ("\"4xx\"", vec!["400", "429", "499"], vec!["200", "399", "500"]),
        ("[\"5xx\", \"404\"]", vec!["500", "404", "599"], vec!["200", "403", "405"]),
    ];
    for (number, (count, charged, free)) in rows.into_iter().enumerate() {
        let config = Config::to(&upstream).limit(&format!("{limit}{count}"));
        let weir = Weir::start(&test_store.configure_case(number, config));
        let ask = |user: &str, status: &str| {
            let response =
                weir.ask(get_with("/", &format!("X-User: {user}\r\nX-Status: {status}\r\n")));
            (response.status.to_string(), left(&response))
        };
        for status in &free {
            for _ in 0..5 {
                assert_eq!(ask("good", status), ((*status).to_owned(), 3), "{count}");
            }
        }
        for (status, left) in charged.iter().cycle().zip([2, 1, 0]) {
            assert_eq!(ask("bad", status), ((*status).to_owned(), left), "{count}");
        }
        let before = upstream.heads();
        for status in charged.iter().chain(&free) {
            assert_eq!(ask("bad", status), ("429".to_owned(), 0), "{count}");
        }
        assert_eq!(upstream.heads(), before, "not even the right password is tried");
        assert_eq!(ask("good", "200"), ("200".to_owned(), 3), "{count}");
    }
}

#[test]
fn deferred_charge_of_one_gateway_counts_at_another() {
    let test_store = TestStore::redis();
    let upstream = telling();
    let costs = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 10\n\
                 cost = { from = \"response:x-cost\", default = 1, max = 50 }";
    let logins = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 2\ncount = \"401\"";
    let config = test_store.configure(Config::to(&upstream).limit(costs));
    let [one, two] = Weir::start_two(&config);
    assert_eq!(left(&one.ask(tell("a", "4"))), 6);
    assert_eq!(left(&two.ask(tell("a", "3"))), 3);
    assert_eq!(left(&one.ask(tell("a", "50"))), 0);
    assert_eq!([one.ask(tell("a", "0")).status, two.ask(tell("a", "0")).status], [429, 429]);
    let config =
        test_store.configure(Config::to(&upstream).limit(logins).store("prefix = \"logins\""));
    let [one, two] = Weir::start_two(&config);
    let fail = |weir: &Weir| weir.ask(get_with("/", "X-User: b\r\nX-Status: 401\r\n")).status;
    assert_eq!([fail(&one), fail(&two)], [401, 401]);
    assert_eq!([fail(&one), fail(&two)], [429, 429]);
}

fn client_that_leaves_before_the_response_is_charged(test_store: &TestStore) {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::replying(move |request| {
        if request.target == "/slow" {
            let _ = wait.lock().unwrap().recv_timeout(crate::support::PATIENCE);
            return ok("ok");
        }
        b"HTTP/1.1 200 OK\r\nX-Cost: 0\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let cost = "{ from = \"response:x-cost\", default = 40, max = 100 }";
    let weir = with_thousand(test_store, Config::to(&upstream), cost);
    let spent = || 1000 - left(&weir.ask(get_with("/", "X-User: a\r\n")));
    for (times, resets) in [(1, true), (2, false)] {
        let mut client = weir.connect();
        let before = upstream.heads();
        client.send(get_with("/slow", "X-User: a\r\n"));
        wait_until("it is in flight", || upstream.heads() > before);
        // The upstream is at work on it in either case, so its response is waited for.
        if resets {
            client.wire.reset();
        } else {
            drop(client);
        }
        assert_eq!(spent(), 40 * (times - 1), "not before it ends");
        go.send(()).unwrap();
        wait_until("it is charged", || spent() == 40 * times);
    }
    assert_eq!(spent(), 80, "once");
}

fn failing_upstream_is_charged_by_its_status(test_store: &TestStore) {
    let held = HeldUpstream::start();
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 3\ncount = \"5xx\"";
    let config = held.config().limit(limit).upstream("retries = 0");
    let weir = Weir::start(&test_store.configure(config));
    let answers = [0; 4].map(|_| weir.get("/broken").status);
    assert_eq!(answers, [502, 502, 502, 429]);
}
