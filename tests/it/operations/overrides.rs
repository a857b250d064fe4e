//! Overrides: other numbers or other access for single callers, set while the gateway runs.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Config, Response, Scratch, TestStore, Weir, check_for, get_with, on_each_store, wait_until,
};

on_each_store!(
    an_override_changes_the_numbers_of_one_key_and_of_no_other,
    override_expires_and_can_be_removed,
    impossible_override_is_refused_with_a_reason,
    an_override_of_a_combined_key_names_all_its_parts,
    override_key_is_normalised,
    overrides_allow_and_deny_callers,
    later_of_two_overrides_for_a_caller_applies,
    overrides_are_audited,
    a_reload_keeps_overrides,
);

pub(crate) const ANN: &str = "/v1/overrides/per-ip/ann";
pub(crate) const EVE: &str = "/v1/access/deny/user/eve";

/// Two requests an hour for each user.
pub(crate) fn limited() -> Config {
    let limit = "key = \"user\"\nrate = \"1/hour\"\nburst = 2";
    let identity = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]\n\
        user = \"header:x-user\"\nclient = \"header:x-client\"";
    Config::echo().operated().limit(limit).also(identity)
}

fn ask(weir: &Weir, lines: &str) -> Response {
    weir.ask(get_with("/", &format!("{lines}\r\n")))
}

pub(crate) fn user(weir: &Weir, name: &str) -> Response {
    ask(weir, &format!("X-User: {name}"))
}

/// The numbers in a user's response.
pub(crate) fn numbers(weir: &Weir, name: &str) -> String {
    user(weir, name).one("ratelimit-policy").trim_start_matches("\"per-ip\";").to_owned()
}

pub(crate) fn passed(weir: &Weir, name: &str, asked: usize) -> usize {
    (0..asked).filter(|_| user(weir, name).status == 200).count()
}

/// Makes an override, and returns the response.
#[track_caller]
pub(crate) fn put(weir: &Weir, target: &str, body: &Value) -> Value {
    let response = weir.operate("PUT", target, &body.to_string());
    assert_eq!(response.status, 200, "{target} {body}: {}", response.text());
    assert_eq!(response.one("content-type"), "application/json");
    response.json()
}

#[track_caller]
pub(crate) fn refused(response: &Response, status: u16, error: &str, why: &str) {
    let said = response.json();
    assert_eq!((response.status, &said["error"]), (status, &Value::from(error)), "{said}");
    assert!(said["error_description"].as_str().unwrap().contains(why), "{said} without {why:?}");
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn an_override_changes_the_numbers_of_one_key_and_of_no_other(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(limited()));
    assert_eq!(numbers(&weir, "ann"), "q=2;w=7200");
    assert_eq!(passed(&weir, "ann", 3), 1);
    let rows = [
        (json!({"burst": 10}), "q=10;w=36000"),
        (json!({"rate": "60/minute"}), "q=2;w=2"),
        (json!({"rate": "60/minute", "burst": 10, "reason": "a launch"}), "q=10;w=10"),
        (json!({"boost": 3}), "q=6;w=7200"),
        (json!({"boost": 2.5, "burst": 100}), "q=250;w=450000"),
    ];
    for (body, shown) in rows {
        let before = now();
        let made = put(&weir, ANN, &body);
        assert_eq!((&made["limit"], &made["key"]), (&json!("per-ip"), &json!("ann")));
        for name in ["rate", "burst", "boost", "reason"] {
            assert_eq!(made[name].as_f64(), body[name].as_f64(), "{name} of {made}");
            assert_eq!(made[name].as_str(), body[name].as_str(), "{name} of {made}");
        }
        let hour = before + 3600..=now() + 3600;
        assert!(hour.contains(&made["until"].as_u64().unwrap()), "{made}");
        assert_eq!(weir.admin(ANN).json(), made);
        assert_eq!(weir.admin("/v1/overrides").json(), json!([made]));
        wait_until("it holds", || numbers(&weir, "ann").starts_with(shown));
        assert_eq!(numbers(&weir, "ben"), "q=2;w=7200");
    }
    assert!(passed(&weir, "ann", 10) > 2, "there is more to spend");
    assert_eq!(passed(&weir, "cid", 3), 2);
    assert_eq!(weir.admin("/v1/access").json(), json!([]));
}

fn override_expires_and_can_be_removed(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(limited()));
    let begun = now();
    put(&weir, ANN, &json!({"burst": 50, "ttl": "3s"}));
    wait_until("it holds", || numbers(&weir, "ann").starts_with("q=50;"));
    wait_until("it has ended", || numbers(&weir, "ann") == "q=2;w=7200");
    assert!((2..=8).contains(&(now() - begun)), "after {} s", now() - begun);
    refused(&weir.admin(ANN), 404, "no_route", "nothing here");
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));

    let made = put(&weir, ANN, &json!({"burst": 40, "ttl": "1h30m"}));
    wait_until("it holds", || numbers(&weir, "ann").starts_with("q=40;"));
    let taken = weir.operate("DELETE", ANN, "");
    assert_eq!((taken.status, taken.json()), (200, made));
    wait_until("it does not hold", || numbers(&weir, "ann") == "q=2;w=7200");
    refused(&weir.operate("DELETE", ANN, ""), 404, "no_route", "nothing here");
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
}

fn impossible_override_is_refused_with_a_reason(test_store: &TestStore) {
    let other = "[limits.windows]\nkey = \"ip\"\nalgorithm = \"fixed_window\"\nrate = \"5/day\"";
    let weir = Weir::start(&test_store.configure(limited().also(other)));
    let long = format!("{{\"burst\": 3, \"reason\": \"{}\"}}", "x".repeat(501));
    let rows = [
        ("per-ip/ann", "", "rate"),
        ("per-ip/ann", "{}", "rate"),
        ("per-ip/ann", "{\"reason\": \"none\"}", "rate"),
        ("per-ip/ann", "{\"rate\": \"many\"}", "600/minute"),
        ("per-ip/ann", "{\"rate\": \"0/minute\"}", "600/minute"),
        ("per-ip/ann", "{\"rate\": 5}", "string"),
        ("per-ip/ann", "{\"burst\": -1}", "-1"),
        ("per-ip/ann", "{\"burst\": 0}", "out of range"),
        ("per-ip/ann", "{\"burst\": 1.5}", "1.5"),
        ("per-ip/ann", "{\"boost\": 0}", "boost"),
        ("per-ip/ann", "{\"boost\": -2}", "boost"),
        ("per-ip/ann", "{\"boost\": 1001}", "boost"),
        ("per-ip/ann", "{\"burst\": 3, \"ttl\": \"0s\"}", "1s to 366d"),
        ("per-ip/ann", "{\"burst\": 3, \"ttl\": \"367d\"}", "1s to 366d"),
        ("per-ip/ann", "{\"burst\": 3, \"ttl\": \"soon\"}", "1s to 366d"),
        ("per-ip/ann", "{\"burst\": 3, \"until\": 5}", "until"),
        ("per-ip/ann", "{\"burst\": 3", "not JSON: line 1, column 11"),
        ("per-ip/ann", "burst=3", "not JSON: line 1, column 1"),
        ("per-ip/ann", &long, "500"),
        ("per-ip/ann,ben", "{\"burst\": 3}", "counts by user"),
        ("windows/ann", "{\"boost\": 3}", "counts by ip"),
        ("windows/192.0.2.1,192.0.2.2", "{\"boost\": 3}", "counts by ip"),
        ("windows/192.0.2.1", "{\"burst\": 3}", "burst"),
    ];
    for (target, body, why) in rows {
        let response = weir.operate("PUT", &format!("/v1/overrides/{target}"), body);
        assert_eq!(response.status, 400, "{target} {body}: {}", response.text());
        refused(&response, 400, "bad_request", why);
    }
    let response = weir.operate("PUT", "/v1/overrides/none/ann", "{\"burst\": 3}");
    refused(&response, 404, "no_route", "no limit \"none\"");
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
    assert_eq!(numbers(&weir, "ann"), "q=2;w=7200");
}

fn an_override_of_a_combined_key_names_all_its_parts(test_store: &TestStore) {
    let limit = "key = [\"user\", \"ip\"]\nrate = \"1/hour\"\nburst = 2";
    let weir = Weir::start(&test_store.configure(limited().limit(limit)));
    put(&weir, "/v1/overrides/per-ip/a%2cb,2001:db8::1", &json!({"burst": 9}));
    let shown = |name: &str, ip: &str| {
        let response = ask(&weir, &format!("X-User: {name}\r\nX-Forwarded-For: {ip}"));
        response.one("ratelimit-policy").to_owned()
    };
    wait_until("it holds", || shown("a,b", "2001:db8::1").contains("q=9;"));
    assert!(shown("a,b", "2001:db8::2").contains("q=9;"), "one /64 is one caller");
    assert!(shown("a,b", "192.0.2.1").contains("q=2;"));
    assert!(shown("a", "2001:db8::1").contains("q=2;"));
    let response = weir.operate("PUT", "/v1/overrides/per-ip/ann", "{\"burst\": 3}");
    refused(&response, 400, "bad_request", "user + ip");
}

fn override_key_is_normalised(test_store: &TestStore) {
    let by_ip = "[limits.by-ip]\nkey = \"ip\"\nrate = \"1/hour\"\nburst = 2";
    let by_host = "[limits.by-host]\nkey = \"header:host\"\nrate = \"1/hour\"";
    let weir = Weir::start(&test_store.configure(limited().also(by_ip).also(by_host)));
    let rows: [(&str, &str, &[&str]); 5] = [
        ("per-ip", "a@b", &["a%40b", "%61@b", "a@b"]),
        ("per-ip", "a%2Cb", &["a%2cb", "%61%2C%62"]),
        ("by-ip", "2001:db8::", &["2001:db8::1", "2001:DB8:0::1", "2001:db8::ffff:0:1"]),
        ("by-ip", "1.2.3.4", &["1.2.3.4", "::ffff:1.2.3.4", "::FFFF:102:304"]),
        ("by-host", "a.example", &["A.Example:8080", "a.example."]),
    ];
    for (limit, name, spellings) in rows {
        for (number, spelling) in spellings.iter().enumerate() {
            let target = format!("/v1/overrides/{limit}/{spelling}");
            let made = put(&weir, &target, &json!({"boost": number + 2}));
            assert_eq!(made["key"], name, "as its bucket is named");
            assert_eq!(weir.admin("/v1/overrides").json(), json!([made]), "{spelling} is the same");
            for other in spellings {
                let shown = weir.admin(&format!("/v1/overrides/{limit}/{other}"));
                assert_eq!(shown.json(), made, "{other}");
            }
        }
        if name == "a@b" {
            wait_until("the last one holds", || numbers(&weir, name).starts_with("q=8;"));
        }
        let target = format!("/v1/overrides/{limit}/{}", spellings[0]);
        assert_eq!(weir.operate("DELETE", &target, "").status, 200, "{target}");
        assert_eq!(weir.admin("/v1/overrides").json(), json!([]), "and none comes back");
    }
    wait_until("it does not hold", || numbers(&weir, "a@b") == "q=2;w=7200");
    // No request has an empty key: it is as good as absent.
    for target in ["per-ip/", "by-ip/", "by-host/", "by-ip/%20"] {
        let response = weir.operate("PUT", &format!("/v1/overrides/{target}"), "{\"boost\": 2}");
        refused(&response, 400, "bad_request", "no key of this limit");
    }
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
}

#[test]
fn what_was_spent_under_an_override_is_remembered_however_long_others_change() {
    let weir = Weir::start(&limited());
    let more = json!({"burst": 50});
    put(&weir, ANN, &more);
    assert_eq!(passed(&weir, "ann", 60), 50);
    // Longer than whatever bounds what is remembered.
    let (begin, mut round) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(33) {
        round += 1;
        put(&weir, &format!("/v1/overrides/per-ip/other-{}", round % 3), &more);
        assert_eq!(weir.operate("DELETE", ANN, "").status, 200);
        check_for(Duration::from_millis(300), || assert_eq!(user(&weir, "ann").status, 429));
        put(&weir, ANN, &more);
        assert_eq!(passed(&weir, "ann", 3), 0, "after {:?}", begin.elapsed());
    }
}

#[test]
fn an_override_follows_a_reload_that_counts_by_another_prefix() {
    let config = |prefix: &str| {
        let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 2";
        let identity = format!("[identity]\nipv6_prefix = {prefix}");
        Config::echo().operated().limit(limit).also(&identity)
    };
    let weir = Weir::start(&config("64"));
    let at = |ip: &str| format!("/v1/overrides/per-ip/{ip}");
    let made = put(&weir, &at("2001:db8:0:1::7"), &json!({"boost": 2}));
    assert_eq!(made["key"], "2001:db8:0:1::");
    weir.reload(&config("48"));
    assert_eq!(
        weir.admin("/v1/overrides").json()[0]["key"],
        "2001:db8::",
        "the bucket it is in now"
    );
    let later = put(&weir, &at("2001:db8:0:2::"), &json!({"boost": 3}));
    assert_eq!(weir.admin("/v1/overrides").json(), json!([later]), "which has one");
    assert_eq!(weir.operate("DELETE", &at("2001:db8:0:3::1"), "").status, 200);
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
}

fn overrides_allow_and_deny_callers(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(limited()));
    // Everybody spends what there is.
    let rows = [
        ("ip/192.0.2.7", "X-Forwarded-For: 192.0.2.7"),
        ("ip/198.51.100.0/24", "X-Forwarded-For: 198.51.100.9"),
        ("ip/::ffff:203.0.113.5", "X-Forwarded-For: 203.0.113.5"),
        ("ip/2001:db8::%2f32", "X-Forwarded-For: 2001:db8:1::1"),
        ("user/ann", "X-User: ann"),
        ("user/b%20b%2fb", "X-User: b b/b"),
        ("user/ann+x@example.com", "X-User: ann+x@example.com"),
        ("client/batch", "X-Client: batch\r\nX-Forwarded-For: 192.0.2.8"),
    ];
    for (who, lines) in rows {
        while ask(&weir, lines).status != 429 {}
        let target = format!("/v1/access/allow/{who}");
        let made = put(&weir, &target, &json!({"ttl": "10m"}));
        assert_eq!((&made["kind"], &made["action"]), (&json!("access"), &json!("allow")));
        wait_until("it is let through", || ask(&weir, lines).status == 200);
        assert!(!ask(&weir, lines).has("ratelimit"), "{who}");
        assert_eq!(weir.admin(&target).json(), made);
        assert_eq!(weir.operate("DELETE", &target, "").status, 200);
        wait_until("it is limited again", || ask(&weir, lines).status == 429);

        let target = format!("/v1/access/deny/{who}");
        put(&weir, &target, &json!({"ttl": "2s"}));
        wait_until("it is kept out", || ask(&weir, lines).status == 403);
        assert_eq!(ask(&weir, lines).error(), "denied");
        wait_until("the ban has ended", || ask(&weir, lines).status == 429);
    }
    for (target, body, why) in [
        ("deny/ip/nowhere", "{}", "neither an address nor a network"),
        ("deny/ip/192.0.2.0/33", "{}", "neither an address nor a network"),
        ("deny/user/eve", "{\"burst\": 5}", "/v1/overrides"),
        ("deny/user/eve", "{\"ttl\": \"never\"}", "1s to 366d"),
        ("deny/user/e%0ave", "{}", "no name"),
        ("deny/user/%ff", "{}", "no name"),
    ] {
        let response = weir.operate("PUT", &format!("/v1/access/{target}"), body);
        refused(&response, 400, "bad_request", why);
    }
    for target in ["maybe/user/eve", "deny/tenant/eve", "deny/user", "deny"] {
        let response = weir.operate("PUT", &format!("/v1/access/{target}"), "{}");
        refused(&response, 404, "no_route", "nothing here");
    }
    assert_eq!(weir.admin("/v1/access").json(), json!([]));
}

fn later_of_two_overrides_for_a_caller_applies(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(limited()));
    let (allow, deny) = ("/v1/access/allow/user/eve", EVE);
    put(&weir, deny, &json!({}));
    wait_until("she is kept out", || user(&weir, "eve").status == 403);
    put(&weir, allow, &json!({}));
    wait_until("she is let through", || user(&weir, "eve").status == 200);
    refused(&weir.admin(deny), 404, "no_route", "nothing here");
    // Removing an override that is not there changes nothing.
    refused(&weir.operate("DELETE", deny, ""), 404, "no_route", "nothing here");
    assert_eq!(weir.admin(allow).status, 200);
    // One address has many spellings.
    put(&weir, "/v1/access/deny/ip/::ffff:192.0.2.7", &json!({}));
    put(&weir, "/v1/access/allow/ip/192.0.2.7", &json!({}));
    assert_eq!(weir.admin("/v1/access").json().as_array().unwrap().len(), 2);
    assert_eq!(weir.operate("DELETE", "/v1/access/allow/ip/192.0.2.7/32", "").status, 200);
    assert_eq!(weir.admin("/v1/access").json().as_array().unwrap().len(), 1);
}

fn a_reload_keeps_overrides(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(limited()));
    let made = put(&weir, ANN, &json!({"boost": 3}));
    put(&weir, EVE, &json!({}));
    let double = "key = \"user\"\nrate = \"2/hour\"\nburst = 4";
    weir.reload(&test_store.configure(limited().limit(double)));
    wait_until("it is of the new numbers", || numbers(&weir, "ann").starts_with("q=12;"));
    assert_eq!(user(&weir, "eve").status, 403);
    // While there is no such limit there is nothing to override.
    weir.reload(&test_store.configure(limited().open()));
    assert!(!user(&weir, "ann").has("ratelimit"));
    weir.reload(&test_store.configure(limited()));
    wait_until("it holds again", || numbers(&weir, "ann").starts_with("q=6;"));
    assert_eq!(weir.admin("/v1/overrides").json(), json!([made]));
}

fn events(weir: &Weir) -> Vec<Value> {
    let text = std::fs::read_to_string(weir.directory().join("audit.log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn overrides_are_audited(test_store: &TestStore) {
    let weir = Weir::start(
        &test_store.configure(limited().also("[telemetry]\naudit_log = \"audit.log\"")),
    );
    put(&weir, ANN, &json!({"burst": 50, "ttl": "60s", "reason": "a \"launch\""}));
    put(&weir, "/v1/access/allow/ip/192.0.2.0/24", &json!({"ttl": "10m"}));
    put(&weir, EVE, &json!({"ttl": "1d", "reason": "abuse"}));
    weir.operate("DELETE", EVE, "");
    // What did not happen is not audited.
    weir.operate("DELETE", EVE, "");
    weir.operate("PUT", ANN, "{\"burst\": -1}");
    weir.operate("DELETE", ANN, "");
    wait_until("all is told", || events(&weir).len() == 5);
    let events = events(&weir);
    let named = |n: usize, name: &str| {
        let event = &events[n];
        assert_eq!(event["event"], name, "{event}");
        assert!(event["time"].as_f64().is_some(), "{event}");
        event.clone()
    };
    let set = named(0, "override_set");
    assert_eq!((&set["limit"], &set["key"]), (&json!("per-ip"), &json!("ann")));
    assert_eq!(set["reason"], "a \"launch\"");
    assert!((58..=60).contains(&set["seconds"].as_u64().unwrap()), "{set}");
    assert!(named(1, "rate_limit_whitelist_added")["who"].as_str().unwrap().contains("192.0.2.0"));
    let denied = named(2, "rate_limit_denylist_added");
    assert!(denied["who"].as_str().unwrap().contains("eve"), "{denied}");
    assert_eq!(denied["reason"], "abuse");
    assert!(named(3, "override_removed")["what"].as_str().unwrap().contains("eve"));
    assert!(named(4, "override_removed")["what"].as_str().unwrap().contains("ann"));
}

/// A gateway with its snapshot in a folder that outlives it.
fn start_with_snapshot(scratch: &Scratch) -> (Weir, PathBuf) {
    let path = scratch.path().join("weir.snapshot");
    let lines = format!("snapshot = {path:?}\nsnapshot_interval = \"1s\"");
    (Weir::start(&limited().store(&lines)), path)
}

#[test]
fn overrides_on_the_embedded_store_outlive_a_restart_and_a_crash() {
    let scratch = Scratch::new();
    let (mut weir, path) = start_with_snapshot(&scratch);
    let made = put(&weir, ANN, &json!({"burst": 50, "reason": "a launch"}));
    let denied = put(&weir, EVE, &json!({}));
    put(&weir, "/v1/access/deny/user/short", &json!({"ttl": "1s"}));
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    let (mut weir, _) = start_with_snapshot(&scratch);
    assert_eq!(weir.admin("/v1/overrides").json(), json!([made]));
    assert!(numbers(&weir, "ann").starts_with("q=50;"), "from the first request on");
    assert_eq!(user(&weir, "eve").status, 403);
    wait_until("what was short has ended", || {
        weir.admin("/v1/access").json() == json!([denied.clone()])
    });
    weir.operate("DELETE", ANN, "");
    let written = || std::fs::metadata(&path).and_then(|it| it.modified()).ok();
    for _ in 0..2 {
        let before = written();
        wait_until("a snapshot is written", || written() > before);
    }
    weir.signal(Signal::KILL);
    weir.exit();
    let (weir, _) = start_with_snapshot(&scratch);
    assert_eq!(weir.admin("/v1/overrides").json(), json!([]));
    assert_eq!(numbers(&weir, "ann"), "q=2;w=7200");
    assert_eq!(user(&weir, "eve").status, 403);
}
