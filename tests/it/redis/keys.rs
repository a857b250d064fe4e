//! What Weir writes into Redis: key names that no caller can choose, each with an expiry.

use std::collections::HashSet;

use crate::support::{Client, Config, Redis, Weir, get_with, wait_until};

/// Redis is waited for, and a failure shows as a 503.
const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

fn once(redis: &Redis, key: &str) -> Config {
    let limit = format!("key = {key}\nrate = \"1/hour\"\nburst = 1");
    Config::echo().store(&redis.store()).store(PATIENT).limit(&limit)
}

fn ask(client: &mut Client, lines: &[u8]) -> u16 {
    let mut request = b"GET / HTTP/1.1\r\nHost: weir.test\r\n".to_vec();
    request.extend_from_slice(lines);
    request.extend_from_slice(b"\r\n");
    client.ask(request).status
}

/// Identities as a caller might choose them to be taken for another.
fn identities() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "a",
        "b",
        "a:b",
        "a:b:c",
        "b:a",
        ":",
        "::",
        "a:",
        ":a",
        "{x}",
        "{x}a",
        "a{x}",
        "{}",
        "{",
        "}",
        "%",
        "%25",
        "a%3Ab",
        "%00",
        "a b",
        "a  b",
        "a\tb",
        "\"",
        "\\",
        "\\x41",
        "A",
        "*",
        "?",
        "[a]",
        "weir",
        "weir:a",
        "0",
        "00",
        "-1",
        "nil",
        "a,b",
        "a;b",
        "a|b",
        "a/b",
        "../a",
        "\u{e9}",
        "e\u{301}",
        "\u{1f600}",
    ]
    .map(|it| it.as_bytes().to_vec())
    .to_vec();
    all.extend([vec![0xff], vec![0xfe], vec![0xff, 0xfe], b"a\xc3".to_vec()]);
    for last in [b'x', b'y'] {
        let mut long = vec![b'x'; 10_000];
        long.push(last);
        all.push(long);
    }
    all
}

#[test]
fn odd_identities_never_share_a_bucket() {
    let redis = Redis::start();
    let weir = Weir::start(&once(&redis, "\"header:x-user\""));
    let mut client = weir.connect();
    let lines: Vec<Vec<u8>> =
        identities().into_iter().map(|it| [b"X-User: ", &it[..], b"\r\n"].concat()).collect();
    for expected in [200, 429] {
        for line in &lines {
            let status = ask(&mut client, line);
            let shown = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
            assert_eq!(status, expected, "{shown:?}");
        }
    }
    let names = redis.buckets();
    assert_eq!(names.len(), lines.len());
    for name in names {
        assert!(name.len() <= 256, "{} bytes: {name}", name.len());
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        assert!(!name.contains(['{', '}']), "a caller chooses the slot: {name}");
    }
}

#[test]
fn parts_of_a_composite_key_never_collide() {
    let redis = Redis::start();
    let weir = Weir::start(&once(&redis, "[\"header:x-a\", \"header:x-b\"]"));
    let mut client = weir.connect();
    let pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("ab", "c"),
        ("a", "bc"),
        ("a:", "c"),
        ("a", ":c"),
        ("a%3A", "c"),
        ("c", "a"),
        ("a", "c"),
    ];
    let status = |client: &mut Client, (a, b): (&str, &str)| {
        ask(client, format!("X-A: {a}\r\nX-B: {b}\r\n").as_bytes())
    };
    for expected in [200, 429] {
        for pair in pairs {
            assert_eq!(status(&mut client, pair), expected, "{pair:?}");
        }
    }
}

#[test]
fn limits_and_prefixes_never_share_a_bucket() {
    let redis = Redis::start();
    let config = || {
        Config::echo()
            .open()
            .bucket("a", "header:x-user", 1)
            .bucket("b", "header:x-user", 1)
            .route("a", "/a", &["a"])
            .route("b", "/b", &["b"])
            .store(&redis.store())
    };
    let user = |target: &str| get_with(target, "X-User: a\r\n");
    for prefix in ["weir", "team-1", "team-2", "{team}", "team:1"] {
        let weir = Weir::start(&config().store(&format!("prefix = \"{prefix}\"\n{PATIENT}")));
        for expected in [200, 429] {
            assert_eq!(weir.ask(user("/a")).status, expected, "{prefix}");
            assert_eq!(weir.ask(user("/b")).status, expected, "{prefix}");
        }
        let start = format!("{prefix}:");
        let count = redis.buckets().iter().filter(|it| it.starts_with(&start)).count();
        assert!(count >= 2, "{prefix}: {:?}", redis.buckets());
    }
    assert_eq!(redis.buckets().len(), 10);
}

#[test]
fn every_key_has_the_prefix_and_expires_when_its_bucket_is_full() {
    let redis = Redis::start();
    let window =
        |algorithm: &str| format!("key = \"ip\"\nalgorithm = \"{algorithm}\"\nrate = \"5/hour\"");
    let config = Config::echo()
        .open()
        .add_limit("bucket", "key = \"ip\"\nrate = \"1/hour\"\nburst = 5")
        .add_limit("sliding", &window("sliding_window"))
        .add_limit("fixed", &window("fixed_window"))
        .route("all", "/*", &["bucket", "sliding", "fixed"]);
    let store = format!("{PATIENT}\nprefix = \"edge\"");
    let config = config.store(&redis.store()).store(&store);
    let weirs = Weir::start_two(&config);
    crate::support::wait_until("they know each other", || weirs.iter().all(|it| it.nodes() == 2.0));
    for n in 0..4 {
        assert_eq!(weirs[n % 2].get("/").status, 200);
    }
    let keys = redis.keys();
    assert!(keys.len() >= 4, "three buckets and the nodes: {keys:?}");
    for key in &keys {
        assert!(key.name.starts_with("edge:"), "{key:?}");
        assert!(key.expires(), "it never goes: {key:?}");
        assert!(key.ttl <= 4 * 3_600_000 + 60_000, "long after it is full: {key:?}");
    }
    // Four tokens are four hours away: only the token bucket can take that long, and it must.
    let longest = keys.iter().map(|key| key.ttl).max().unwrap();
    assert!(longest >= 4 * 3_600_000 - 60_000, "gone before it is full: {keys:?}");
}

#[test]
fn no_key_name_shows_a_credential() {
    let redis = Redis::start();
    let weir = Weir::start(&once(&redis, "\"header:x-api-key\""));
    let secret = "sk-live-0123456789abcdef";
    assert_eq!(weir.ask(get_with("/", &format!("X-Api-Key: {secret}\r\n"))).status, 200);
    let keys = redis.keys();
    assert!(!keys.is_empty());
    for key in keys {
        assert!(!key.name.contains("0123456789abcdef"), "{key:?}");
    }
    assert!(!weir.output().contains(secret));
}

#[test]
fn garbage_under_a_key_is_replaced() {
    let redis = Redis::start();
    let harms: [&[&str]; 12] = [
        &["LPUSH", "KEY", "1"],
        &["SADD", "KEY", "1"],
        &["HSET", "KEY", "a", "1"],
        &["ZADD", "KEY", "1", "a"],
        &["XADD", "KEY", "*", "a", "1"],
        &["SET", "KEY", ""],
        &["SET", "KEY", "garbage"],
        &["SET", "KEY", "-1 -1"],
        &["SET", "KEY", "nan inf"],
        &["SET", "KEY", "1e300 0"],
        &["SET", "KEY", "99999999999999999999999999 99999999999999999999999999"],
        &["SET", "KEY", "0x7fffffff 0x7fffffff trailing words"],
    ];
    let rows = [
        ("token_bucket", "rate = \"1/hour\"\nburst = 3"),
        ("sliding_window", "rate = \"3/day\""),
        ("fixed_window", "rate = \"3/day\""),
    ];
    for (algorithm, rate) in rows {
        let limit = format!("key = \"header:x-user\"\nalgorithm = \"{algorithm}\"\n{rate}");
        let store = format!("{PATIENT}\nprefix = \"{algorithm}\"");
        let config = Config::echo().store(&redis.store()).store(&store).limit(&limit);
        let weir = Weir::start(&config);
        let mut client = weir.connect();
        let mut known: HashSet<String> = redis.buckets().into_iter().collect();
        for (n, harm) in harms.iter().enumerate() {
            let line = format!("X-User: {algorithm}-{n}\r\n");
            assert_eq!(ask(&mut client, line.as_bytes()), 200);
            let fresh: Vec<String> =
                redis.buckets().into_iter().filter(|it| !known.contains(it)).collect();
            let [key] = &fresh[..] else { panic!("one new key: {fresh:?}") };
            redis.command(&["DEL", key]);
            let words: Vec<&str> =
                harm.iter().map(|it| if *it == "KEY" { key } else { *it }).collect();
            redis.command(&words);
            let statuses = [0; 4].map(|_| ask(&mut client, line.as_bytes()));
            assert_eq!(statuses, [200, 200, 200, 429], "{algorithm}: {harm:?}");
            let key = redis.keys().into_iter().find(|it| it.name == *key).expect("it is there");
            assert!(key.kind == "string" && key.expires(), "{key:?}");
            known.insert(key.name);
        }
        assert!(!weir.degraded(), "{algorithm}");
    }
}

#[test]
fn garbage_in_place_of_the_node_list_is_replaced() {
    let redis = Redis::start();
    redis.command(&["SET", "weir:@nodes", "garbage"]);
    let weir = Weir::start(&Config::echo().store(&redis.store()));
    assert!(!weir.degraded());
    wait_until("the gateway counts itself", || weir.nodes() == 1.0);
    assert_eq!(redis.command(&["TYPE", "weir:@nodes"]).text(), "zset");
}
