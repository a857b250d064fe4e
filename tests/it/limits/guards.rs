//! Guards: floods are warned of, then blocked, and what is refused counts as well.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Client, Config, Response, Scratch, TestStore, Upstream, Weir, get, get_with, on_each_store,
    wait_at_most, wait_until,
};

on_each_store!(
    flood_is_warned_then_blocked_then_clean_again,
    one_offence_never_blocks_whatever_windows_follow,
    warned_request_is_marked_to_the_upstream_and_in_the_answer,
    clients_cannot_set_or_strip_the_warning,
    flood_that_a_limit_refuses_is_still_a_flood,
    blocked_request_charges_no_limit,
    guard_in_shadow_mode_counts_and_stops_nobody,
    what_was_noticed_in_shadow_mode_stops_nobody_later,
    allowed_callers_are_not_counted,
    guard_counts_only_where_its_conditions_hold,
    changed_window_counts_from_then_on,
);

const MARK: &str = "x-weir-warning";

/// More than three requests in a second are too many.
pub(crate) const FLOOD: &str = "[guards.flood]\nkey = \"header:x-user\"\nwindow = \"1s\"\n\
                                threshold = 3\npenalty = \"3s\"\n";

pub(crate) fn tables(guard: &str, route: &str) -> String {
    format!(
        "{guard}\n[[routes]]\nname = \"all\"\npath = \"/a/*\"\nupstream = \"api\"\n\
         guards = [\"flood\"]\n{route}\n[[routes]]\nname = \"free\"\npath = \"/free\"\n\
         upstream = \"api\"\n"
    )
}

pub(crate) fn guarded(
    test_store: &TestStore,
    upstream: &Upstream,
    guard: &str,
    route: &str,
) -> Weir {
    let config = Config::to(upstream).open().operated().routes(&tables(guard, route));
    Weir::start(&test_store.configure(config))
}

pub(crate) fn user(client: &mut Client, name: &str) -> Response {
    client.ask(get_with("/a/b", &format!("X-User: {name}\r\n")))
}

/// A guard whose penalties outlast the test, by another key.
pub(crate) fn lasting(key: &str) -> String {
    FLOOD.replace("\"header:x-user\"", key).replace("\"3s\"", "\"1h\"")
}

/// Sends until an answer is like that; at most for some windows.
#[track_caller]
pub(crate) fn flood_until(
    client: &mut Client,
    name: &str,
    what: &str,
    like: impl Fn(&Response) -> bool,
) -> Response {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        let response = user(client, name);
        if like(&response) {
            return response;
        }
    }
    panic!("{name} was never {what}");
}

pub(crate) fn is_warned(response: &Response) -> bool {
    response.has(MARK)
}

pub(crate) fn is_blocked(response: &Response) -> bool {
    response.status == 429 && response.json()["error"] == "burst_blocked"
}

pub(crate) fn detections(weir: &Weir, action: &str) -> f64 {
    let labels = [("guard", "flood"), ("action", action)];
    weir.metrics().value("weir_guard_detections_total", &labels).unwrap_or(-1.0)
}

pub(crate) fn audited(weir: &Weir, event: &str) -> Vec<Value> {
    let output = weir.output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == event).collect()
}

fn flood_is_warned_then_blocked_then_clean_again(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let weir = guarded(test_store, &upstream, FLOOD, "");
    assert_eq!(detections(&weir, "warned"), 0.0, "series begin with the configuration");
    let mut client = weir.connect();
    assert_eq!(user(&mut client, "ann").status, 200);
    let warned = flood_until(&mut client, "eve", "warned", is_warned);
    assert_eq!((warned.status, warned.one(MARK)), (200, "flood"));
    let blocked = flood_until(&mut client, "eve", "blocked", is_blocked);
    let problem = blocked.json();
    let kind = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
    assert_eq!((&problem["type"], &problem["guard"]), (&kind.into(), &"flood".into()));
    let told: u64 = blocked.one("retry-after").parse().expect("whole seconds");
    assert!((5..=6).contains(&told), "twice the penalty: {told}");
    assert_eq!(problem["retry_after"], told);
    let ends = Instant::now() + Duration::from_secs(told);
    let forwarded = upstream.requests().len();
    for _ in 0..20 {
        assert!(is_blocked(&user(&mut client, "eve")));
    }
    assert_eq!(upstream.requests().len(), forwarded, "a blocked request goes nowhere");
    assert_eq!(user(&mut client, "ann").status, 200, "others do not notice");
    wait_until("detections are counted", || {
        (detections(&weir, "warned"), detections(&weir, "blocked")) == (1.0, 1.0)
    });
    wait_until("refusals are counted", || detections(&weir, "refused") >= 20.0);
    wait_until("it is recorded", || !audited(&weir, "burst_detected_blocked").is_empty());
    let (warnings, blocks) =
        (audited(&weir, "burst_detected_warning"), audited(&weir, "burst_detected_blocked"));
    assert_eq!((warnings.len(), blocks.len()), (1, 1), "{}", weir.output());
    assert_eq!(
        (&warnings[0]["severity"], &blocks[0]["severity"]),
        (&"warning".into(), &"error".into())
    );
    assert_eq!((&blocks[0]["identifier"], &blocks[0]["endpoint"]), (&"eve".into(), &"/a/*".into()));
    assert_eq!(blocks[0]["request_count"], 4);
    wait_at_most(Duration::from_secs(9), "the block ends", || {
        let response = user(&mut client, "eve");
        assert!(response.status == 200 || Instant::now() < ends + Duration::from_secs(1));
        response.status == 200 && !is_warned(&response)
    });
}

fn warned_request_is_marked_to_the_upstream_and_in_the_answer(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let limit = "[limits.few]\nkey = \"header:x-user\"\nrate = \"4/day\"\n";
    let guard = format!("{FLOOD}{limit}");
    let weir = guarded(test_store, &upstream, &guard, "limits = [\"few\"]");
    let mut client = weir.connect();
    flood_until(&mut client, "eve", "warned", is_warned);
    if let Some(marked) = upstream.requests().iter().find(|it| it.has(MARK)) {
        assert_eq!(marked.one(MARK), "flood");
    }
    let refused = flood_until(&mut client, "eve", "refused", |it| it.status == 429);
    assert_eq!(refused.json()["error"], "rate_limit_exceeded");
    assert_eq!(refused.one(MARK), "flood", "a refusal tells of the warning, too");
    let free = client.ask(get_with("/free", "X-User: eve\r\n"));
    assert!(!free.has(MARK), "only on routes of the guard");
}

fn clients_cannot_set_or_strip_the_warning(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let weir = guarded(test_store, &upstream, FLOOD, "");
    let mut client = weir.connect();
    for lines in ["X-Weir-Warning: flood\r\n", "X_Weir_Warning: flood\r\n"] {
        for target in ["/a/b", "/free"] {
            client.ask(get_with(target, &format!("X-User: ann\r\n{lines}")));
            let raw = upstream.last().raw.to_ascii_lowercase().replace('_', "-");
            assert!(!raw.contains(MARK), "{raw}");
        }
    }
    flood_until(&mut client, "eve", "warned", is_warned);
    let lines = "X-User: eve\r\nConnection: keep-alive, X-Weir-Warning\r\n";
    let response = client.ask(get_with("/a/b", lines));
    assert_eq!((response.status, upstream.last().one(MARK)), (200, "flood"));
}

fn flood_that_a_limit_refuses_is_still_a_flood(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let limit = "[limits.one]\nkey = \"header:x-user\"\nrate = \"1/day\"\n";
    let guard = format!("{FLOOD}{limit}");
    let weir = guarded(test_store, &upstream, &guard, "limits = [\"one\"]");
    let mut client = weir.connect();
    let blocked = flood_until(&mut client, "eve", "blocked", is_blocked);
    assert!(!blocked.has("ratelimit"), "no limit was asked");
    assert_eq!(upstream.requests().len(), 1);
}

fn blocked_request_charges_no_limit(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let limit =
        "[limits.all]\nkey = \"global\"\nalgorithm = \"fixed_window\"\nrate = \"100000/day\"\n";
    let guard = format!("{FLOOD}{limit}");
    let weir = guarded(test_store, &upstream, &guard, "limits = [\"all\"]");
    let mut client = weir.connect();
    let left = |response: &Response| -> u64 {
        response.one("x-ratelimit-remaining").parse().expect("a number")
    };
    flood_until(&mut client, "eve", "blocked", is_blocked);
    let before = left(&user(&mut client, "ann"));
    for _ in 0..50 {
        assert!(is_blocked(&user(&mut client, "eve")));
    }
    let after = left(&user(&mut client, "ann"));
    assert!(after == before - 1 || after > before, "{before} {after}");
}

fn guard_in_shadow_mode_counts_and_stops_nobody(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let weir = guarded(test_store, &upstream, &format!("{FLOOD}mode = \"shadow\"\n"), "");
    let mut client = weir.connect();
    let began = Instant::now();
    while detections(&weir, "shadow_blocked") < 1.0 {
        for _ in 0..5 {
            let response = user(&mut client, "eve");
            assert!(response.status == 200 && !is_warned(&response), "{response:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "never noticed");
    }
    assert!(upstream.requests().iter().all(|it| !it.has(MARK)));
    for action in ["warned", "blocked", "refused"] {
        assert!(detections(&weir, action) <= 0.0, "{action}: nobody was");
    }
    assert_eq!(weir.penalties()[0]["shadow"], true);
    wait_until("it is recorded", || !audited(&weir, "burst_detected_blocked").is_empty());
    assert_eq!(audited(&weir, "burst_detected_blocked")[0]["shadow"], true);
}

fn what_was_noticed_in_shadow_mode_stops_nobody_later(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let config = |mode: &str| {
        let guard = format!("{}mode = \"{mode}\"\n", FLOOD.replace("\"3s\"", "\"1h\""));
        test_store.configure(Config::to(&upstream).open().operated().routes(&tables(&guard, "")))
    };
    let weir = Weir::start(&config("shadow"));
    let mut client = weir.connect();
    wait_at_most(Duration::from_secs(10), "it is noticed", || {
        (0..5).for_each(|_| drop(user(&mut client, "eve")));
        detections(&weir, "shadow_blocked") >= 1.0
    });
    weir.reload(&config("enforce"));
    let first = user(&mut weir.connect(), "eve");
    assert_eq!((first.status, is_warned(&first)), (200, false));
    let listed = weir.penalties();
    assert_eq!((&listed[0]["stage"], &listed[0]["shadow"]), (&"blocked".into(), &true.into()));
    let mut client = weir.connect();
    flood_until(&mut client, "eve", "warned", is_warned);
    flood_until(&mut client, "eve", "blocked", is_blocked);
    assert_eq!(weir.operate("DELETE", "/v1/penalties/flood/eve", "").status, 200);
    assert_eq!(weir.penalties(), serde_json::json!([]), "both are lifted");
    assert_eq!(user(&mut client, "eve").status, 200);
}

fn allowed_callers_are_not_counted(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let guard = format!("[access]\nallow = {{ ip = [\"127.0.0.0/8\"] }}\n{FLOOD}");
    let weir = guarded(test_store, &upstream, &guard, "");
    let mut client = weir.connect();
    for _ in 0..50 {
        let response = user(&mut client, "eve");
        assert!(response.status == 200 && !is_warned(&response));
    }
    assert_eq!(detections(&weir, "warned"), 0.0);
}

fn guard_counts_only_where_its_conditions_hold(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let guard = format!("{FLOOD}when = {{ \"query:sort\" = \"all\" }}\n");
    let weir = guarded(test_store, &upstream, &guard, "");
    let mut client = weir.connect();
    for _ in 0..20 {
        assert!(!is_warned(&user(&mut client, "eve")));
    }
    wait_until("it is warned", || {
        let sorted = "/a/b?sort=all";
        is_warned(&client.ask(get_with(sorted, "X-User: eve\r\n")))
    });
    assert!(!is_warned(&client.ask(get("/a/b"))));
}

/// More than ten requests in two seconds, and a warning that outlasts the test.
const PATIENT: &str = "[guards.flood]\nkey = \"header:x-user\"\nwindow = \"2s\"\n\
                       threshold = 10\npenalty = \"60s\"\n";

/// Waits until so long after a window of two seconds has begun.
fn await_window(after: Duration) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let into = since_epoch.as_micros() as u64 % 2_000_000;
    std::thread::sleep(Duration::from_micros(2_000_000 - into) + after);
}

/// Has somebody warned for one offence, shortly before its window ends.
fn offend_once(weir: &Weir) -> String {
    let mut client = weir.connect();
    // A window that ends before the offence proves nothing.
    let names = (0..5).map(|attempt| format!("eve-{attempt}"));
    let mut offenders = names.filter(|name| {
        await_window(Duration::from_millis(1_850));
        (0..12).filter(|_| is_warned(&user(&mut client, name))).count() == 2
    });
    offenders.next().expect("twelve at once are too many")
}

/// A single request in a later window is no offence.
#[track_caller]
fn one_request_is_only_warned(weir: &Weir, name: &str) {
    let answer = user(&mut weir.connect(), name);
    assert_eq!((answer.status, is_warned(&answer)), (200, true));
}

fn one_offence_never_blocks_whatever_windows_follow(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().operated().routes(&tables(PATIENT, ""));
    let config = test_store.configure(config);
    let weir = Weir::start(&config);
    let second = matches!(test_store, TestStore::Redis(_)).then(|| Weir::start(&config));
    let name = offend_once(&weir);
    for _ in 0..2 {
        // By then the others have heard of it.
        await_window(Duration::from_millis(1_200));
        let third = second.as_ref().map(|_| Weir::start(&config));
        for weir in [Some(&weir), second.as_ref(), third.as_ref()].into_iter().flatten() {
            one_request_is_only_warned(weir, &name);
        }
    }
}

#[test]
fn one_offence_does_not_block_after_a_restart() {
    let (upstream, folder) = (Upstream::ok(), Scratch::new());
    let store = format!("snapshot = {:?}", folder.path().join("weir.snapshot"));
    let tables = tables(PATIENT, "");
    let config = Config::to(&upstream).open().operated().routes(&tables).store(&store);
    let mut weir = Weir::start(&config);
    let name = offend_once(&weir);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    await_window(Duration::ZERO);
    let weir = Weir::start(&config);
    for _ in 0..2 {
        one_request_is_only_warned(&weir, &name);
        await_window(Duration::ZERO);
    }
}

#[test]
fn block_survives_a_restart_in_the_snapshot() {
    let (upstream, folder) = (Upstream::ok(), Scratch::new());
    let long = FLOOD.replace("\"3s\"", "\"1h\"");
    let store = format!("snapshot = {:?}", folder.path().join("weir.snapshot"));
    let config = Config::to(&upstream).open().operated().routes(&tables(&long, "")).store(&store);
    let mut weir = Weir::start(&config);
    flood_until(&mut weir.connect(), "eve", "blocked", is_blocked);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    let weir = Weir::start(&config);
    assert!(is_blocked(&user(&mut weir.connect(), "eve")));
    assert_eq!(weir.penalties()[0]["key"], "eve");
    assert_eq!(user(&mut weir.connect(), "ann").status, 200);
}

fn changed_window_counts_from_then_on(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let configured = |window: &str| {
        let guard = lasting("\"header:x-user\"").replace("\"1s\"", window);
        let config = Config::to(&upstream).open().operated().routes(&tables(&guard, ""));
        test_store.configure(config)
    };
    let weir = Weir::start(&configured("\"24h\""));
    let mut client = weir.connect();
    flood_until(&mut client, "eve", "warned", is_warned);
    weir.reload(&configured("\"1s\""));
    flood_until(&mut client, "eve", "blocked", is_blocked);
}
