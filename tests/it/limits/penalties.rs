//! Penalties as operators list and lift them: in pages, by any spelling of a key, and by their ids.

use super::guards::{FLOOD, audited, flood_until, guarded, is_blocked, is_warned, lasting, user};
use crate::support::{Client, TestStore, Upstream, get, get_with, on_each_store, wait_until};

on_each_store!(
    operator_lifts_a_penalty,
    penalty_is_found_by_any_address_and_spelling_of_its_key,
    every_penalty_can_be_lifted,
    penalties_are_listed_in_pages,
    long_key_is_kept_and_listed_in_part,
    hashed_keys_are_listed_and_lifted_by_hash_and_by_name,
);

fn operator_lifts_a_penalty(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let long = FLOOD.replace("\"3s\"", "\"1h\"");
    let weir = guarded(test_store, &upstream, &long, "");
    let mut client = weir.connect();
    assert_eq!(weir.penalties(), serde_json::json!([]));
    flood_until(&mut client, "eve/1", "blocked", is_blocked);
    let listed = weir.penalties();
    let entry = &listed[0];
    assert_eq!(
        (&entry["guard"], &entry["key"], &entry["stage"]),
        (&"flood".into(), &"eve/1".into(), &"blocked".into())
    );
    let left = entry["seconds_left"].as_u64().expect("a number");
    assert!((7_000..=7_200).contains(&left), "{left}");
    let path = "/v1/penalties/flood/eve%2F1";
    assert_eq!(
        weir.ask_admin(format!("DELETE {path} HTTP/1.1\r\nHost: weir.test\r\n\r\n")).status,
        401
    );
    assert!(is_blocked(&user(&mut client, "eve/1")), "nothing changes without the token");
    assert_eq!(weir.operate("DELETE", "/v1/penalties/flood/ann", "").status, 404);
    assert_eq!(weir.operate("DELETE", path, "").status, 200);
    assert_eq!(user(&mut client, "eve/1").status, 200);
    assert_eq!(weir.penalties(), serde_json::json!([]));
    wait_until("it is recorded", || !audited(&weir, "penalty_lifted").is_empty());
    assert_eq!(audited(&weir, "penalty_lifted")[0]["identifier"], "eve/1");
    assert_eq!(weir.operate("PUT", path, "{}").status, 405);
}

fn penalty_is_found_by_any_address_and_spelling_of_its_key(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let guard = FLOOD.replace("\"header:x-user\"", "[\"ip\", \"header:x-user\"]");
    let guard = guard.replace("\"3s\"", "\"1h\"");
    let guard = format!("{guard}[identity]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    let weir = guarded(test_store, &upstream, &guard, "");
    let mut client = weir.connect();
    let lines = "X-Forwarded-For: 2001:db8::1:5\r\nX-User: eve/1\r\n";
    let mut penalise = || {
        wait_until("it is warned", || is_warned(&client.ask(get_with("/a/b", lines))));
        wait_until("it is listed", || weir.penalties()[0]["key"] == "2001:db8::, eve/1");
    };
    // As it is listed, by the caller's address, and otherwise spelled.
    for key in ["2001:db8::,%20eve%2F1", "2001:db8::1:5,eve%2F1", "2001:DB8:0::9,%20eve%2f1"] {
        penalise();
        assert_eq!(weir.operate("DELETE", &format!("/v1/penalties/flood/{key}"), "").status, 200);
        assert_eq!(weir.penalties(), serde_json::json!([]), "{key}");
    }
    penalise();
    for key in ["2001:db8:1::,eve%2F1", "2001:db8::,ann", "2001:db8::"] {
        assert_eq!(weir.operate("DELETE", &format!("/v1/penalties/flood/{key}"), "").status, 404);
    }
}

/// Asks with such a header until that is warned of.
#[track_caller]
fn warn(client: &mut Client, lines: &str) {
    wait_until("it is warned", || is_warned(&client.ask(get_with("/a/b", lines))));
}

fn every_penalty_can_be_lifted(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let query = lasting("\"query:u\"");
    let everybody = lasting("\"global\"").replace("guards.flood", "guards.all");
    let route = "[[routes]]\nname = \"global\"\npath = \"/global\"\nupstream = \"api\"\n\
                 guards = [\"all\"]";
    let weir = guarded(test_store, &upstream, &format!("{query}{everybody}"), route);
    let mut client = weir.connect();
    let mut warned = |target: &str| {
        wait_until("it is warned", || is_warned(&client.ask(get(target))));
        wait_until("it is listed", || weir.penalties() != serde_json::json!([]));
    };
    let lift = |path: &str| weir.operate("DELETE", &format!("/v1/penalties{path}"), "").status;
    warned("/global");
    assert_eq!(weir.penalties()[0]["key"], "global");
    assert_eq!(lift("/all/global"), 200);
    warned("/a/b?u=a%01b");
    assert_eq!((lift("/flood/a%01b"), weir.penalties()), (200, serde_json::json!([])));
    // Somebody who is called as the address of another, who lacks the key.
    warned("/a/b?u=127.0.0.1");
    warned("/a/b");
    wait_until("both are listed", || weir.penalties()[1]["key"] == "127.0.0.1");
    assert_eq!((lift("/flood/127.0.0.1"), weir.penalties()), (200, serde_json::json!([])));
    // One that is named by its id alone.
    warned("/a/b?u=a");
    let id = weir.penalties()[0]["id"].as_str().expect("an id").to_owned();
    warned("/a/b?u=%20a");
    wait_until("both are listed", || weir.penalties()[1]["key"].is_string());
    assert_eq!(lift("/flood/%20a"), 200);
    assert_eq!(
        (&weir.penalties()[0]["key"], weir.penalties().as_array().map(Vec::len)),
        (&"a".into(), Some(1))
    );
    assert_eq!(
        (lift("?id=7"), lift(""), lift(&format!("?id={}", "0".repeat(32)))),
        (400, 400, 404)
    );
    assert_eq!((lift(&format!("?id={id}")), weir.penalties()), (200, serde_json::json!([])));
}

fn penalties_are_listed_in_pages(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let weir = guarded(test_store, &upstream, &lasting("\"header:x-user\""), "");
    let mut client = weir.connect();
    for number in 0..7 {
        warn(&mut client, &format!("X-User: u{number}\r\n"));
    }
    wait_until("all are listed", || weir.penalties().as_array().map(Vec::len) == Some(7));
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = weir.admin(&format!("/v1/penalties?max=3&after={after}")).json();
        let listed = page["penalties"].as_array().expect("a list").clone();
        assert!(listed.len() <= 3, "{page}");
        seen.extend(listed.iter().map(|it| it["key"].as_str().expect("a key").to_owned()));
        let Some(next) = page["after"].as_str() else { break };
        after = next.to_owned();
    }
    // The longest first: those that were noticed last.
    assert_eq!(seen, ["u6", "u5", "u4", "u3", "u2", "u1", "u0"]);
    assert_eq!(weir.admin("/v1/penalties?max=1001").status, 400);
}

fn long_key_is_kept_and_listed_in_part(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let weir = guarded(test_store, &upstream, &lasting("\"header:x-user\""), "");
    let mut client = weir.connect();
    let [one, other] = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(4_000)));
    for key in [&one, &other] {
        warn(&mut client, &format!("X-User: {key}\r\n"));
    }
    wait_until("both are listed", || weir.penalties()[1]["key"].is_string());
    let listed = weir.penalties();
    assert!(listed.to_string().len() < 800, "{listed}");
    assert_ne!(listed[0]["key"], listed[1]["key"]);
    if let TestStore::Redis(redis) = test_store {
        let told = || redis.command(&["XRANGE", "weir:@penalties", "-", "+"]).text();
        wait_until("both are announced", || told().matches("flood").count() >= 2);
        assert!(told().len() < 1_500, "{}", told());
    }
    let lift = |key: &str| weir.operate("DELETE", &format!("/v1/penalties/flood/{key}"), "").status;
    assert_eq!(lift(&one), 200);
    let left = weir.penalties();
    assert_eq!(left.as_array().map(Vec::len), Some(1));
    let as_listed = left[0]["key"].as_str().expect("a key").replace('…', "%E2%80%A6");
    assert_eq!((lift(&as_listed), weir.penalties()), (200, serde_json::json!([])));
}

fn hashed_keys_are_listed_and_lifted_by_hash_and_by_name(test_store: &TestStore) {
    let upstream = Upstream::ok();
    let guard = format!("{}[telemetry]\nhash_keys = true\n", lasting("\"header:x-user\""));
    let weir = guarded(test_store, &upstream, &guard, "");
    let mut client = weir.connect();
    let lift = |key: &str| weir.operate("DELETE", &format!("/v1/penalties/flood/{key}"), "").status;
    for by_name in [true, false] {
        warn(&mut client, "X-User: evelyn\r\n");
        wait_until("it is listed", || weir.penalties()[0]["key"].is_string());
        let key = weir.penalties()[0]["key"].as_str().expect("a key").to_owned();
        assert!(key.starts_with("sha256:") && key.len() == 23, "{key}");
        if let TestStore::Redis(redis) = test_store {
            let told = redis.command(&["XRANGE", "weir:@penalties", "-", "+"]);
            assert!(!format!("{told:?}").contains("evelyn"), "{told:?}");
        }
        assert_eq!(lift(if by_name { "evelyn" } else { &key }), 200);
    }
}
