//! Violations: who was refused, by which limit and when, as operators ask for it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::gateway::program;
use crate::support::{
    Client, Config, Redis, Response, Scratch, TestStore, Weir, get_with, on_each_store,
    wait_at_most, wait_until,
};

on_each_store!(
    violations_tell_who_was_refused_by_what,
    violations_are_found_by_caller_limit_route_and_time,
    violations_come_in_pages_newest_first,
    violations_of_a_long_name_are_found,
    command_finds_violations_of_a_user_after_a_restart,
);

/// Two limits on two routes, and callers by name.
fn config() -> Config {
    let window =
        "key = [\"header:x-tag\", \"ip\"]\nalgorithm = \"sliding_window\"\nrate = \"2/day\"";
    let identity = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]\nuser = \"header:x-user\"\n\
        client = \"header:x-client\"";
    Config::echo()
        .open()
        .operated()
        .also(identity)
        .add_limit("calls", "key = \"user\"\nrate = \"1/day\"")
        .add_limit("window", window)
        .add_limit("trial", "key = \"ip\"\nrate = \"1/day\"\nmode = \"shadow\"")
        .route("items", "/items/*", &["calls", "trial"])
        .route("reports", "/reports", &["window"])
}

fn items(client: &mut Client, user: &str) -> Response {
    let lines = format!("X-User: {user}\r\nX-Client: app\r\nX-Request-Id: id-{user}\r\n");
    client.ask(get_with("/items/1", &lines))
}

fn reports(client: &mut Client, tag: &str, ip: &str) -> Response {
    client.ask(get_with("/reports", &format!("X-Tag: {tag}\r\nX-Forwarded-For: {ip}\r\n")))
}

fn answer(weir: &Weir, query: &str) -> Value {
    let response = weir.admin(&format!("/v1/violations{query}"));
    assert_eq!(response.status, 200, "{query}: {}", response.json());
    response.json()
}

fn found(weir: &Weir, query: &str) -> Vec<Value> {
    answer(weir, query)["violations"].as_array().expect("a list").clone()
}

/// Waits until so many are there: a stream is written a moment later.
fn await_violations(weir: &Weir, count: usize) -> Vec<Value> {
    wait_until("all violations are there", || found(weir, "").len() >= count);
    found(weir, "")
}

fn stop(mut weir: Weir) {
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
}

fn violations_tell_who_was_refused_by_what(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(config()));
    let mut client = weir.connect();
    assert_eq!(items(&mut client, "ann").status, 200);
    assert_eq!(items(&mut client, "ann").status, 429);
    for status in [200, 200, 429] {
        assert_eq!(reports(&mut client, "a", "203.0.113.9").status, status);
    }
    let all = await_violations(&weir, 2);
    assert_eq!(all.len(), 2, "what only watches is not listed: {all:?}");
    let (window, calls) = (&all[0], &all[1]);
    for (field, value) in [
        ("event", "rate_limit_exceeded"),
        ("severity", "warning"),
        ("identifier", "ann"),
        ("limit_type", "token_bucket"),
        ("limit", "calls"),
        ("endpoint", "/items/*"),
        ("route", "items"),
        ("ip", "127.0.0.1"),
        ("user", "ann"),
        ("client", "app"),
        ("request_id", "id-ann"),
    ] {
        assert_eq!(calls[field], value, "{field} of {calls}");
    }
    assert_eq!(calls["tokens"], 0);
    let retry_after = calls["retry_after"].as_f64().expect("seconds");
    assert!((86_000.0..=86_400.0).contains(&retry_after), "{calls}");
    for (field, value) in [
        ("event", "sliding_window_limit_exceeded"),
        ("identifier", "a, 203.0.113.9"),
        ("limit_type", "sliding_window"),
        ("ip", "203.0.113.9"),
    ] {
        assert_eq!(window[field], value, "{field} of {window}");
    }
    assert_eq!((&window["estimated_count"], &window["capacity"]), (&2.into(), &2.into()));
    assert_eq!(window.get("user"), None, "what is not known is left out");
    let shadow: Vec<Value> = weir
        .output()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["shadow"] == true)
        .collect();
    assert_eq!((shadow.len(), &shadow[0]["limit"]), (1, &"trial".into()), "but it is logged");
    let source = answer(&weir, "")["source"].clone();
    let wanted = if matches!(test_store, TestStore::Memory) { "memory" } else { "redis" };
    assert_eq!(source, wanted);
}

fn violations_are_found_by_caller_limit_route_and_time(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(config()));
    let mut client = weir.connect();
    for user in ["ann", "ben"] {
        (0..2).for_each(|_| drop(items(&mut client, user)));
    }
    (0..3).for_each(|_| drop(reports(&mut client, "a", "203.0.113.9")));
    let all = await_violations(&weir, 3);
    // Several may be of one millisecond.
    let time = |it: &Value| it["time"].as_f64().expect("a time");
    let then = time(&all[1]);
    let since = all.iter().filter(|it| time(it) >= then).count();
    let until = all.iter().filter(|it| time(it) <= then).count();
    for (query, count) in [
        ("?user=ann".to_owned(), 1),
        ("?user=ann&limit=window".to_owned(), 0),
        ("?client=app".to_owned(), 2),
        ("?limit=calls".to_owned(), 2),
        ("?route=reports".to_owned(), 1),
        ("?ip=203.0.113.0%2F24".to_owned(), 1),
        ("?ip=127.0.0.1".to_owned(), 2),
        ("?since=1h&user=".to_owned(), 3),
        (format!("?since={then}"), since),
        (format!("?until={then}"), until),
        ("?until=1h".to_owned(), 0),
        ("?key=ben".to_owned(), 1),
        ("?key=a,%20203.0.113.9".to_owned(), 1),
        ("?since=2026-01-01T00:00Z".to_owned(), 3),
        ("?until=2026-01-01%2000:00".to_owned(), 0),
    ] {
        assert_eq!(found(&weir, &query).len(), count, "{query} of {all:?}");
    }
    for (query, hint) in [
        ("?limit=nope", Some("no limit or guard `nope` in the configuration")),
        ("?route=nope", Some("no route `nope` in the configuration")),
        ("?limit=trial", None),
        ("?limit=tenants", Some("no limit or guard `tenants` in the configuration")),
        ("?route=items", None),
    ] {
        assert_eq!(answer(&weir, query).get("hint").and_then(Value::as_str), hint, "{query}");
    }
    for (query, why) in [
        ("?usr=ann", "no parameter"),
        ("?usr", "no parameter"),
        ("?max=0", "1 to 1000"),
        ("?since=1m&until=1h", "is later than until"),
        ("?user=ann&user=ben", "given twice"),
    ] {
        let response = weir.admin(&format!("/v1/violations{query}"));
        assert_eq!(response.status, 400);
        let said = response.json()["error_description"].to_string();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(weir.operate("DELETE", "/v1/violations", "").status, 405);
}

fn violations_come_in_pages_newest_first(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(config()));
    let mut client = weir.connect();
    let users: Vec<String> = (0..7).map(|number| format!("user-{number}")).collect();
    for user in &users {
        (0..2).for_each(|_| drop(items(&mut client, user)));
    }
    await_violations(&weir, users.len());
    let mut seen = Vec::new();
    let mut query = "?max=3".to_owned();
    loop {
        let page = answer(&weir, &query);
        let violations = page["violations"].as_array().expect("a list");
        seen.extend(violations.iter().map(|it| it["user"].as_str().expect("a name").to_owned()));
        let Some(before) = page["before"].as_str() else { break };
        assert_eq!(violations.len(), 3);
        query = format!("?max=3&before={before}");
        assert_eq!(items(&mut client, "user-0").status, 429, "more comes meanwhile");
    }
    seen.reverse();
    assert_eq!(seen, users);
    let none = answer(&weir, "?before=0-0");
    assert_eq!((&none["violations"], &none["before"]), (&json!([]), &Value::Null));
}

fn violations_of_a_long_name_are_found(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(config()));
    let user = "ab".repeat(500);
    (0..2).for_each(|_| drop(items(&mut weir.connect(), &user)));
    let shown = await_violations(&weir, 1)[0]["user"].as_str().unwrap().to_owned();
    assert!(shown.len() < user.len());
    let shown = shown.replace('…', "%e2%80%a6");
    for query in [format!("?user={user}"), format!("?key={user}"), format!("?user={shown}")] {
        assert_eq!(found(&weir, &query).len(), 1, "{query}");
    }
    assert_eq!(found(&weir, &format!("?user=b{user}")).len(), 0);
}

fn command_finds_violations_of_a_user_after_a_restart(test_store: &TestStore) {
    let folder = Scratch::new();
    let config = match test_store {
        TestStore::Memory => {
            let path = folder.path().join("weir.snapshot");
            config().store(&format!("snapshot = {path:?}\nsnapshot_interval = \"1h\""))
        }
        TestStore::Redis(_) | TestStore::Cluster(_) => test_store.configure(config()),
    };
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    for user in ["ann", "ben"] {
        (0..6).for_each(|_| drop(items(&mut client, user)));
    }
    drop(client);
    stop(weir);
    let weir = Weir::start(&config);
    let said = |args: &[&str]| {
        let admin = weir.admin_address().to_string();
        let mut command = program();
        let output = command.args(["violations", "--admin", &admin]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let answer: Value = serde_json::from_str(&said(&["--user", "ann", "--json"])).unwrap();
    let violations = answer["violations"].as_array().expect("a list");
    let repeated: Vec<Option<u64>> = violations.iter().map(|it| it["repeated"].as_u64()).collect();
    assert_eq!(repeated, [Some(2), None, None, None], "three whole, two in a sum: {answer}");
    let table = said(&["--user", "ann"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("TIME ") && !table.contains("ben"), "{table}");
    assert!(lines[1].contains("rate_limit_exceeded") && lines[1].ends_with(" 2"), "{table}");
    let page = said(&["--max", "1"]);
    assert!(page.contains("there are more: --before "), "{page}");
    assert_eq!(said(&["--user", "nobody"]), "no violations\n");
    let hint = "no violations: there is no limit or guard `nope` in the configuration\n";
    assert_eq!(said(&["--limit", "nope"]), hint);
    let (time, _) = lines[4].split_once(' ').expect("a time");
    let then =
        said(&["--key", "ann", "--since", time, "--until", lines[1].split_once(' ').unwrap().0]);
    assert_eq!(then, table, "times are read as they are printed");
}

#[test]
fn command_says_why_there_is_no_answer() {
    let weir = Weir::start(&config());
    let said = |args: &[&str]| {
        let admin = weir.admin_address().to_string();
        let output = program().args(["violations", "--admin", &admin]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, why) = said(&["--since", "soon"]);
    assert!(code == Some(2) && why.contains("Unix seconds"), "{code:?} {why}");
    let (code, why) = said(&["--since", "1m", "--until", "1h"]);
    assert!(code == Some(2) && why.contains("swap them"), "{code:?} {why}");
    let (code, why) = said(&["--max", "9999"]);
    assert!(code == Some(2) && why.contains("from 1 to 1000"), "{code:?} {why}");
    let output = program().args(["violations", "--admin", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let data = weir.address().to_string();
    let output = program().args(["violations", "--admin", &data]).output().unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("no /v1 there") && why.contains("admin.token_env"), "{why}");
}

#[test]
fn command_names_the_variable_that_a_token_is_expected_in() {
    let weir = Weir::start(&config().admin("listen = \"0.0.0.0:0\""));
    let admin = weir.admin_address().to_string();
    let said = |variable: &str| {
        let mut command = program();
        command.env_remove("WEIR_ADMIN_TOKEN").env("WRONG_TOKEN", "wrong");
        let output = command.args(["violations", "--admin", &admin]);
        let output = output.args(["--token-env", variable]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, why) = said("WEIR_ADMIN_TOKEN");
    assert_eq!(code, Some(1));
    assert!(why.contains("Set WEIR_ADMIN_TOKEN") && why.contains("--token-env"), "{why}");
    let (code, why) = said("WRONG_TOKEN");
    assert!(code == Some(1) && why.contains("what is in WRONG_TOKEN"), "{why}");
    assert_eq!(said("WEIR_TEST_TOKEN").0, Some(0));
}

#[test]
fn hashed_callers_are_found_by_name() {
    let hashed = "[telemetry]\nhash_keys = true";
    let weir = Weir::start(&config().also(hashed));
    let mut client = weir.connect();
    (0..2).for_each(|_| drop(items(&mut client, "ann")));
    let all = await_violations(&weir, 1);
    assert!(!all[0].to_string().contains("\"ann\""), "{}", all[0]);
    assert!(!all[0].to_string().contains("127.0.0.1"), "{}", all[0]);
    for query in ["?user=ann", "?ip=127.0.0.1", "?client=app"] {
        assert_eq!(found(&weir, query).len(), 1, "{query}");
    }
    assert_eq!(found(&weir, "?user=ben").len(), 0);
}

#[test]
fn gateways_share_the_stream_and_it_stays_within_its_bound() {
    let redis = Redis::start();
    let store = TestStore::Redis(redis);
    let gateways = [(); 2].map(|()| Weir::start(&store.configure(config())));
    let TestStore::Redis(redis) = &store else { unreachable!("it is Redis") };
    let key = redis.keys().into_iter().find(|it| it.name.ends_with(":@violations"));
    assert!(key.is_none(), "nothing was refused yet");
    let mut client = gateways[0].connect();
    (0..2).for_each(|_| drop(items(&mut client, "ann")));
    wait_until("the other gateway knows", || found(&gateways[1], "?user=ann").len() == 1);
    let stream = redis.keys().into_iter().find(|it| it.name.ends_with(":@violations")).unwrap();
    // As if there had been many more; Redis trims some 10,000 with each entry that is added.
    let fill = "for i = 1, 15000 do redis.call('XADD', KEYS[1], '*', 'violation', '{}') end";
    redis.command(&["EVAL", fill, "1", &stream.name]);
    (0..2).for_each(|_| drop(items(&mut client, "ben")));
    wait_at_most(Duration::from_secs(10), "the stream is cut to its bound", || {
        let length = redis.command(&["XLEN", &stream.name]);
        (10_000..=10_200).contains(&length.integer())
    });
    assert_eq!(found(&gateways[1], "?user=ben").len(), 1);
}

#[test]
fn without_the_stream_a_gateway_tells_of_its_own() {
    let store = TestStore::redis();
    let own = "[telemetry]\naudit_log = \"stderr\"";
    let weir = Weir::start(&store.configure(config().also(own)));
    let mut client = weir.connect();
    (0..2).for_each(|_| drop(items(&mut client, "ann")));
    assert_eq!(answer(&weir, "?user=ann")["source"], "memory");
    assert_eq!(found(&weir, "?user=ann").len(), 1);
    let TestStore::Redis(redis) = &store else { unreachable!("it is Redis") };
    assert!(!redis.keys().iter().any(|it| it.name.contains("@violations")));
}
