//! How logs name callers: in plain text, or hashed.

use serde_json::Value;

use crate::support::{Config, Weir, get_with, wait_until};

fn logging(hash_keys: bool) -> Config {
    let routes =
        "[[routes]]\nname = \"a\"\npath = \"/a\"\nupstream = \"echo\"\nlimits = [\"per-ip\"]";
    Config::echo()
        .operated()
        .limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1")
        .routes(routes)
        .also(
            "[identity]\ntrusted_proxies = [\"127.0.0.1\"]\nuser = \"header:x-user\"\n\
             [access]\ndeny = { user = [\"mallory\"] }",
        )
        .also(&format!(
            "[telemetry]\naccess_log = \"access.log\"\naudit_log = \"audit.log\"\nhash_keys = {hash_keys}"
        ))
}

fn log(weir: &Weir, name: &str) -> String {
    std::fs::read_to_string(weir.directory().join(name)).unwrap_or_default()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Passes, is refused, is denied, has no route, cannot be read; and is decided about.
fn come_and_go(weir: &Weir) {
    let from = |target: &str, ip: &str, lines: &str| {
        weir.ask(get_with(target, &format!("X-Forwarded-For: {ip}\r\n{lines}"))).status
    };
    assert_eq!(from("/a", "203.0.113.77", ""), 200);
    assert_eq!(from("/a", "203.0.113.77", ""), 429);
    assert_eq!(from("/a", "203.0.113.88", "X-User: mallory\r\n"), 403);
    assert_eq!(from("/none", "203.0.113.77", ""), 404);
    assert_eq!(weir.ask("nonsense\r\n\r\n").status, 400);
    wait_until("all are logged", || log(weir, "access.log").matches('\n').count() == 5);
    for (target, body) in [
        ("/v1/overrides/per-ip/203.0.113.77", "{\"burst\": 5}"),
        ("/v1/access/allow/ip/203.0.113.0/24", "{}"),
        ("/v1/access/deny/user/mallory", "{}"),
    ] {
        for method in ["PUT", "DELETE"] {
            assert_eq!(weir.operate(method, target, body).status, 200, "{method} {target}");
        }
    }
    wait_until("all is audited", || log(weir, "audit.log").matches('\n').count() == 7);
}

#[test]
fn callers_are_logged_by_name_by_default() {
    let weir = Weir::start(&logging(false));
    come_and_go(&weir);
    assert_eq!(lines(&log(&weir, "access.log"))[0]["client"], "203.0.113.77");
    let audit = log(&weir, "audit.log");
    // The refusal names the key and the address.
    for (name, count) in [("203.0.113.77", 4), ("203.0.113.0/24", 2), ("mallory", 2)] {
        assert_eq!(audit.matches(name).count(), count, "{name} in {audit}");
    }
}

#[test]
fn hashed_names_distinguish_callers_and_reveal_none() {
    let weir = Weir::start(&logging(true));
    come_and_go(&weir);
    for name in ["access.log", "audit.log"] {
        let text = log(&weir, name);
        for told in ["203.0.113", "mallory", "127.0.0.1"] {
            assert!(!text.contains(told), "{told} in {name}: {text}");
        }
    }
    let access = lines(&log(&weir, "access.log"));
    let client = |n: usize| access[n]["client"].as_str().unwrap();
    assert!((0..5).all(|n| client(n).starts_with("sha256:")), "{access:#?}");
    assert_eq!(client(0), client(1));
    assert_ne!(client(0), client(2));
    let mut audit = lines(&log(&weir, "audit.log"));
    let refused = audit.remove(0);
    assert_eq!(refused["event"], "rate_limit_exceeded");
    assert_eq!((&refused["ip"], &refused["identifier"]), (&client(0).into(), &client(0).into()));
    assert_eq!(audit[0]["key"], client(0), "one caller is called the same in both");
    assert!(!weir.output().contains("203.0.113"), "{}", weir.output());
    // What was taken back is called as what was decided before.
    for (set, removed) in [(0, 1), (2, 3), (4, 5)] {
        let named = audit[set].get("key").or(audit[set].get("who")).unwrap().as_str().unwrap();
        let what = audit[removed]["what"].as_str().unwrap();
        assert!(named.starts_with("sha256:") && what.ends_with(named), "{audit:#?}");
    }
    assert!(
        audit[1]["what"].as_str().unwrap().starts_with("override/per-ip/sha256:"),
        "{audit:#?}"
    );
}
