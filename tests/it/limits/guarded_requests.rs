//! What guards count of requests that get no further: those that can be read in two ways, and those
//! that fail before a limit is asked. A caller that is blocked hears of that first.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::guards::{is_blocked, is_warned};
use crate::support::issuer::{bearer, claims, now};
use crate::support::queues::join_queue;
use crate::support::{
    Config, Issuer, KeyServer, Scratch, TestStore, Weir, get, get_with, on_each_store, wait_until,
};

on_each_store!(
    ambiguous_request_is_refused_and_counted_by_address,
    guard_in_shadow_mode_refuses_no_ambiguous_request,
    failed_request_is_counted,
    queued_request_is_counted_once_whatever_is_reloaded,
);

/// What a guard asks for, a request, and how it is answered.
struct Case {
    guard: &'static str,
    request: String,
    status: u16,
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A request to the route of case 0, 1, ….
fn to(case: usize, rest: &str, lines: &str) -> String {
    get_with(&format!("/{case}{rest}"), lines)
}

fn post(case: usize, lines: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /{case} HTTP/1.1\r\nHost: weir.test\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Requests in which a guard finds more than one thing, or something that can be read in two ways.
fn ambiguous() -> Vec<Case> {
    let case = |guard, request, status| Case { guard, request, status };
    let basic = "Authorization: Basic  YW5uOng=\r\n";
    let long = "x".repeat(70_000);
    vec![
        case("key = \"query:k\"", to(0, "?k=a&k=a", ""), 400),
        case("key = \"query:k\"", to(1, "?k=a;x=b", ""), 400),
        case("key = \"header:x-user\"", to(2, "", "X-User: a\r\nX-User: a\r\n"), 400),
        case("key = \"cookie:sid\"", to(3, "", "Cookie: sid=a; sid=b\r\n"), 400),
        case("key = \"cookie:sid\"", to(4, "", "Cookie: sid=\"a\r\n"), 400),
        case("key = \"basic:user\"", to(5, "", basic), 400),
        case("key = \"form:k\"", post(6, FORM, "k=a&k=b"), 400),
        case("key = \"form:k\"", post(7, FORM, &long), 413),
        case("key = \"form:k\"", post(8, "Content-Type: multipart/form-data\r\n", "k"), 415),
        case("key = \"ip\"\nwhen = { \"query:k\" = \"a\" }", to(9, "?k=b&k=a", ""), 400),
        case("key = [\"ip\", \"query:k\"]", to(10, "?k=a&k=b", ""), 400),
    ]
}

/// One route for each case, and a guard on it: more than two requests in a second are too many.
fn guarded(test_store: &TestStore, cases: &[Case], more: &str, tables: &str) -> Config {
    let mut text = String::new();
    for (number, Case { guard, .. }) in cases.iter().enumerate() {
        let _ = writeln!(
            text,
            "[guards.g{number}]\n{guard}\n{more}\nwindow = \"1s\"\nthreshold = 2\npenalty = \"1h\"\n\
             [[routes]]\nname = \"r{number}\"\npath = \"/{number}\"\nupstream = \"echo\"\n\
             guards = [\"g{number}\"]"
        );
    }
    let config = Config::echo().open().server("max_body = \"1MiB\"");
    test_store.configure(config.routes(&text).also(tables))
}

/// Sends the requests of all cases, again and again, until each was blocked.
#[track_caller]
fn block_each(weir: &Weir, cases: &[Case]) {
    let mut blocked = vec![false; cases.len()];
    let began = Instant::now();
    while blocked.contains(&false) {
        assert!(began.elapsed() < Duration::from_secs(30), "{blocked:?}");
        for (number, Case { guard, request, status }) in cases.iter().enumerate() {
            for _ in 0..3 {
                let response = weir.ask(request);
                if is_blocked(&response) {
                    blocked[number] = true;
                    break;
                }
                assert!(!blocked[number], "{number}, {guard}: {response:?}");
                assert_eq!(response.status, *status, "{number}, {guard}: {response:?}");
            }
        }
    }
}

fn ambiguous_request_is_refused_and_counted_by_address(test_store: &TestStore) {
    let cases = ambiguous();
    let weir = Weir::start(&guarded(test_store, &cases, "", ""));
    block_each(&weir, &cases);
    let plain = weir.get("/0?k=a");
    assert_eq!((plain.status, is_warned(&plain)), (200, false), "others have keys of their own");
    let listed = weir.penalties();
    assert!(listed.as_array().unwrap().iter().all(|it| it["key"] == "127.0.0.1"), "{listed}");
}

fn guard_in_shadow_mode_refuses_no_ambiguous_request(test_store: &TestStore) {
    let cases = ambiguous();
    let weir = Weir::start(&guarded(test_store, &cases, "mode = \"shadow\"", ""));
    for (number, Case { request, .. }) in cases.iter().enumerate() {
        let guard = format!("g{number}");
        let labels = [("guard", guard.as_str()), ("action", "shadow_warned")];
        wait_until("it is counted", || {
            for _ in 0..3 {
                let response = weir.ask(request);
                assert_eq!((response.status, is_warned(&response)), (200, false), "{number}");
            }
            weir.metrics().value("weir_guard_detections_total", &labels) == Some(1.0)
        });
    }
}

/// A token is asked for by all routes.
fn with_tokens(server: &KeyServer, more: &str) -> String {
    let url = server.url();
    format!("[identity]\nuser = \"jwt:sub\"\n[identity.jwt]\njwks_url = \"{url}\"\n{more}")
}

fn failed_request_is_counted(test_store: &TestStore) {
    let (issuer, stranger) = (Issuer::ed25519("one"), Issuer::ed25519("one"));
    let server = KeyServer::start(&[&issuer]);
    let token = |user: &str| bearer(&issuer.token(&claims(user)));
    let case = |guard, request, status| Case { guard, request, status };
    let twice = "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n";
    let large = "Content-Length: 20000000\r\n";
    let last_hop =
        |number: usize| to(number, "", "Max-Forwards: 0\r\n").replacen("GET", "OPTIONS", 1);
    let cases = [
        case("key = \"ip\"", to(0, "", ""), 401),
        case("key = \"user\"", to(1, "", ""), 401),
        case("key = \"user\"", to(2, "", &bearer(&stranger.token(&claims("ann")))), 401),
        case("key = \"ip\"", to(3, "", twice), 400),
        case("key = \"ip\"", to(4, "", &format!("{}{large}", token("ann"))), 413),
        case("key = \"user\"", to(5, "", &format!("{}{large}", token("ann"))), 413),
        case("key = \"ip\"", last_hop(6), 200),
        case("key = \"route\"", last_hop(7), 200),
        case("key = \"global\"", to(8, "", "Authorization: Bearer a.b.c\r\n"), 400),
    ];
    let tables = with_tokens(&server, "required = true");
    let weir = Weir::start(&guarded(test_store, &cases, "", &tables));
    wait_until("keys are there", || weir.ask(to(1, "", &token("zoe"))).status == 200);
    block_each(&weir, &cases);
    assert!(is_blocked(&weir.ask(to(0, "", &token("ann")))), "the address is blocked");
    assert_eq!(weir.ask(to(1, "", &token("ann"))).status, 200, "a user has a key of its own");
    assert!(is_blocked(&weir.ask(to(5, "", &token("ann")))), "the user was known");
    assert_eq!(weir.ask(to(5, "", &token("bob"))).status, 200);
}

#[test]
fn body_of_a_blocked_caller_is_not_asked_for() {
    let cases = [Case { guard: "key = \"ip\"", request: to(0, "", ""), status: 403 }];
    let limit = "[limits.client]\nkey = \"form:client\"\nmissing = \"deny\"\nrate = \"9/second\"";
    let text = guarded(&TestStore::Memory, &cases, "", limit).text();
    let text = text.replace("guards = [", "limits = [\"client\"]\nguards = [");
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &text);
    let weir = Weir::start_from(scratch, file);
    let lines = format!("{FORM}Expect: 100-continue\r\nContent-Length: 8\r\n");
    let head = to(0, "", &lines).replacen("GET", "POST", 1);
    let mut client = weir.connect();
    client.send(&head);
    let interim = client.wire.take_through(b"\r\n\r\n").unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", interim.escape_ascii());
    block_each(&weir, &cases);
    let response = weir.ask(&head);
    assert!(is_blocked(&response) && response.interim.is_empty(), "{response:?}");
}

#[test]
fn request_that_one_guard_has_blocked_no_other_counts() {
    let guard = |name: &str, key: &str, threshold: u32| {
        format!(
            "[guards.{name}]\nkey = \"{key}\"\nwindow = \"1s\"\nthreshold = {threshold}\n\
             penalty = \"1h\"\n"
        )
    };
    let route = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
                 guards = [\"wide\", \"narrow\"]\n";
    let tables =
        [guard("wide", "global", 8), guard("narrow", "header:x-user", 3), route.to_owned()];
    let weir = Weir::start(&Config::echo().open().routes(&tables.concat()));
    let mut client = weir.connect();
    let request = get_with("/", "X-User: eve\r\n");
    // Four in a window are an offence of the narrow guard alone.
    let mut blocked = false;
    while !blocked {
        let second = now();
        blocked = (0..4).any(|_| is_blocked(&client.ask(&request)));
        wait_until("the window ends", || blocked || now() > second);
    }
    for _ in 0..100 {
        assert!(is_blocked(&client.ask(&request)));
    }
    let warned = [("guard", "wide"), ("action", "warned")];
    assert_eq!(weir.metrics().value("weir_guard_detections_total", &warned), Some(0.0));
    assert!(!is_warned(&client.ask(get("/"))));
}

fn queued_request_is_counted_once_whatever_is_reloaded(test_store: &TestStore) {
    let config = |rate: usize| {
        let tables = format!(
            "[guards.flood]\nkey = \"ip\"\nwindow = \"1d\"\nthreshold = 3\npenalty = \"1h\"\n\
             [limits.queued]\nkey = \"global\"\nrate = \"{rate}/hour\"\nburst = 1\n\
             strategy = \"queue\"\nmax_wait = \"10h\"\n\
             [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
             limits = [\"queued\"]\nguards = [\"flood\"]\n"
        );
        test_store.configure(Config::echo().open().routes(&tables))
    };
    let weir = Weir::start(&config(1));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting = join_queue(&weir, &get("/"));
    for rate in [2, 1, 2, 1] {
        weir.reload(&config(rate));
    }
    weir.reload(&config(36_000));
    let response = waiting.response();
    assert_eq!((response.status, is_warned(&response)), (200, false));
    let statuses = [0; 2].map(|_| is_warned(&weir.get("/")));
    assert_eq!(statuses, [false, true], "four requests in all");
}
