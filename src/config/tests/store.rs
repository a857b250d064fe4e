//! `[store]`: what it means, and what it is refused for.

use std::path::PathBuf;
use std::time::Duration;

use super::secrets::Files;
use super::{good, limit, redis, refused, with_route};
use crate::config::settings::{
    Origin, Redis, RedisAddress, RedisServers, RedisTls, Secret, StoreKind,
};
use crate::config::{ConfigError, parse, summary};
use crate::limit::OnError;

/// What the keys of a Redis store mean, without a warning.
fn means(keys: &str) -> Redis {
    let loaded = good(&redis(keys));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    kind_of(loaded.settings.store.kind)
}

fn kind_of(kind: StoreKind) -> Redis {
    match kind {
        StoreKind::Redis(redis) => *redis,
        other => panic!("{other:?}"),
    }
}

fn origin(host: &str, port: u16) -> Origin {
    Origin { host: host.to_owned(), port }
}

fn secret(text: &str) -> Option<Secret> {
    Some(Secret(text.to_owned()))
}

#[test]
fn a_redis_store_has_defaults_for_everything() {
    let expected = Redis {
        servers: RedisServers::Single(RedisAddress::Tcp(origin("127.0.0.1", 6379))),
        tls: None,
        username: None,
        password: None,
        database: 0,
        prefix: "weir".to_owned(),
        timeout: Duration::from_millis(20),
    };
    assert_eq!(means(""), expected);
    assert_eq!(means("url = \"redis://127.0.0.1:6379/0\"\ncluster = false"), expected);
    let store = good(&redis("max_keys = 7\non_error = \"deny\"")).settings.store;
    assert_eq!((store.max_keys, store.on_error), (7, OnError::Deny));
}

#[test]
fn a_hybrid_store_is_a_redis_store_with_an_interval() {
    let store = |keys: &str| {
        let loaded = good(&redis(keys).replace("kind = \"redis\"", "kind = \"hybrid\""));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        loaded.settings.store
    };
    let kind = |keys: &str| match store(keys).kind {
        StoreKind::Hybrid(hybrid) => *hybrid,
        other => panic!("{other:?}"),
    };
    let hybrid = kind("");
    assert_eq!((hybrid.redis, hybrid.sync_interval), (means(""), Duration::from_millis(100)));
    assert_eq!(kind("sync_interval = \"1s\"").sync_interval, Duration::from_secs(1));
    let line = summary::store(&store("sync_interval = \"50ms\""));
    assert!(line.starts_with("hybrid at 127.0.0.1:6379, database 0"), "{line}");
    assert!(line.contains("leases every 50ms, on error local"), "{line}");
}

#[test]
fn an_interval_of_leases_goes_with_the_hybrid_store() {
    let loaded = good(&redis("sync_interval = \"1s\""));
    assert!(loaded.warnings.to_string().contains("only the store `hybrid` takes leases"));
    for odd in ["9ms", "6s", "1"] {
        let text = redis(&format!("sync_interval = \"{odd}\""));
        assert!(parse("x", &text.replace("\"redis\"", "\"hybrid\"")).is_err(), "{odd}");
    }
}

#[test]
fn urls_name_a_server_a_login_and_a_database() {
    let it =
        means("url = \"rediss://me:p%40ss@[::1]:7000/15\"\nprefix = \"{a}:b\"\ntimeout = \"1s\"");
    assert_eq!(it.servers, RedisServers::Single(RedisAddress::Tcp(origin("::1", 7000))));
    assert_eq!((it.username.as_deref(), it.password), (Some("me"), secret("p@ss")));
    assert_eq!((it.tls, it.database), (Some(RedisTls::default()), 15));
    assert_eq!((it.prefix.as_str(), it.timeout), ("{a}:b", Duration::from_secs(1)));
    let it = means("url = \"unix:///run/redis.sock?db=2\"");
    let path = PathBuf::from("/run/redis.sock");
    assert_eq!(it.servers, RedisServers::Single(RedisAddress::Unix(path)));
    assert_eq!(it.database, 2);
}

#[test]
fn clusters_have_one_node_or_several() {
    let nodes = |keys: &str| match means(&format!("cluster = true\n{keys}")).servers {
        RedisServers::Cluster(nodes) => nodes,
        other => panic!("{other:?}"),
    };
    assert_eq!(nodes(""), [origin("127.0.0.1", 6379)]);
    assert_eq!(nodes("url = \"redis://a\""), [origin("a", 6379)]);
    assert_eq!(
        nodes("url = [\"redis://u:p@a:1\", \"redis://u:p@b:2/0\"]"),
        [origin("a", 1), origin("b", 2)]
    );
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let it = means(
        "url = \"rediss://:p@/3\"\n[store.sentinel]\nmaster = \"m\"\nnodes = [\"A\", \"[::1]:2\"]\n\
         username = \"s\"\npassword_env = \"CARGO_PKG_NAME\"",
    );
    let expected = RedisServers::Sentinel {
        master: "m".to_owned(),
        nodes: vec![origin("a", 26379), origin("::1", 2)],
        username: Some("s".to_owned()),
        password: secret("weir"),
    };
    assert_eq!(it.servers, expected);
    assert_eq!((it.password, it.database, it.tls), (secret("p"), 3, Some(RedisTls::default())));
}

#[test]
fn secrets_come_from_the_environment_or_a_file() {
    let files = Files::new();
    let folder = files.folder();
    assert_eq!(means("password_env = \"CARGO_PKG_NAME\"").password, secret("weir"));
    let from_file = || means(&format!("password_file = \"{folder}/redis-password\"")).password;
    assert_eq!(from_file(), secret("from a file"));
    files.write("redis-password", b" kept \n\r\n");
    assert_eq!(from_file(), secret(" kept \n"), "one line break is left out");
    let it = means(&format!(
        "url = \"rediss://a\"\nusername = \"me\"\npassword_env = \"CARGO_PKG_NAME\"\n\
         tls = {{ ca = \"{folder}/redis-ca.pem\", cert = \"{folder}/redis.pem\", \
         key = \"{folder}/redis.key\" }}"
    ));
    assert_eq!(it.username.as_deref(), Some("me"));
    let tls = it.tls.expect("TLS");
    assert_eq!(tls.ca, Some(files.text("redis-ca.pem").into_bytes()));
    let client = (files.text("redis.pem").into_bytes(), Secret(files.text("redis.key")));
    assert_eq!(tls.client, Some(client));
}

#[test]
fn it_is_known_whether_any_limit_is_enforced_without_the_store() {
    let has_local = |store: &str, own: &str| {
        let text = limit(&format!("key = \"ip\"\nrate = \"1/second\"\n{own}\n[store]\n{store}"));
        good(&text).settings.store.has_local_limits
    };
    let redis = "kind = \"redis\"\n";
    let denying = format!("{redis}on_error = \"deny\"");
    assert!(has_local(redis, "") && has_local(&denying, "on_error = \"local\""));
    assert!(!has_local(&denying, "") && !has_local(redis, "on_error = \"allow\""));
}

#[test]
fn a_limit_fails_as_its_store_does_unless_it_says_otherwise() {
    let on_error = |store: &str, own: &str| {
        let text = limit(&format!("key = \"ip\"\nrate = \"1/second\"\n{own}\n[store]\n{store}"));
        let loaded = good(&text);
        (loaded.settings.limits[0].on_error, loaded.warnings.lines())
    };
    let redis = "kind = \"redis\"\n";
    let no_warning = Vec::new;
    assert_eq!(on_error(redis, ""), (OnError::Local, no_warning()));
    assert_eq!(
        on_error(&format!("{redis}on_error = \"allow\""), ""),
        (OnError::Allow, no_warning())
    );
    assert_eq!(
        on_error(&format!("{redis}on_error = \"allow\""), "on_error = \"deny\""),
        (OnError::Deny, no_warning())
    );
    assert_eq!(on_error("on_error = \"deny\"", ""), (OnError::Deny, no_warning()));
    let (_, warnings) = on_error("", "on_error = \"deny\"");
    assert!(
        warnings.len() == 1 && warnings[0].contains("`on_error` has no effect: the store is in"),
        "{warnings:#?}"
    );
}

#[test]
fn store_faults_say_what_to_write() {
    let files = Files::new();
    files.write("empty", b"\n");
    files.write("binary", b"\xff\xfe");
    let folder = files.folder();
    let at = |keys: &str| keys.replace("FOLDER", folder);
    let sentinel = |keys: &str| format!("[store.sentinel]\n{keys}");
    for (keys, expected) in [
        ("url = 5", "7:7: `url` must be a string, not an integer"),
        ("url = \"http://a\"", "`url` has an unknown scheme: `http`; write a URL such as"),
        ("url = \"a:6379\"", "`url` has no scheme"),
        ("url = \"redis://\"", "`url` has no host; write one such as"),
        ("url = \"redis://a:x\"", "a host and a port from 1 to 65535"),
        ("url = \"redis://a/x\"", "`url` has a path that is no database; write the number"),
        ("url = \"redis://a/0?b=1\"", "`url` has a query or a fragment; end it with the number"),
        ("url = \"unix:///a?b=1\"", "has a query other than `?db=N`"),
        ("url = []", "`url` is empty"),
        ("url = [\"redis://a\", \"redis://b\"]", "has several URLs; write one URL, or add"),
        ("url = \"redis://me@a\"", "names a user without a password; add `password_env`"),
        ("username = \"me\"", "`username` names a user without a password"),
        ("username = \"\"\npassword_env = \"CARGO_PKG_NAME\"", "is not the name of a user"),
        (
            "url = \"redis://me:p@a\"\nusername = \"you\"",
            "`username` stands beside a user in `url`: which of the two holds is unclear",
        ),
        (
            "url = \"redis://:p@a\"\npassword_env = \"CARGO_PKG_NAME\"",
            "8:16: `password_env` stands beside a password in `url`: which of the two holds",
        ),
        (
            "url = \"redis://:p@a\"\npassword_file = \"x\"",
            "`password_file` stands beside a password in `url`",
        ),
        (
            "password_env = \"CARGO_PKG_NAME\"\npassword_file = \"x\"",
            "`password_file` stands beside `password_env`",
        ),
        (
            "password_env = \"WEIR_NO_SUCH\"",
            "names the environment variable `WEIR_NO_SUCH`, which is not set; set it before",
        ),
        ("password_env = \"\"", "names the environment variable ``, which is not set"),
        ("password_env = \"a=b\\u0000\"", "names an environment variable that is not set"),
        ("password_env = \"hunter2\"", "write the name of the variable, such as `WEIR_SECRET`"),
        ("password_file = \"FOLDER/none\"", "cannot be read: `/"),
        ("password_file = \"FOLDER\"", "names a file that cannot be read"),
        ("password_file = \"FOLDER/empty\"", "names a file without a password"),
        ("password_file = \"FOLDER/binary\"", "names a file without a password"),
        ("password = \"x\"", "unknown key `password`; did you mean `password_env`?"),
        ("tls = {}", "`tls` of `[store]` goes with a `rediss://` URL only"),
        ("url = \"rediss://a\"\ntls = { ca = \"FOLDER/none\" }", "`ca` names a file that cannot"),
        (
            "url = \"rediss://a\"\ntls = { ca = \"FOLDER/redis.key\" }",
            "`ca` names a file that is no PEM certificate",
        ),
        (
            "url = \"rediss://a\"\ntls = { cert = \"FOLDER/redis.pem\" }",
            "`cert` stands without its key",
        ),
        (
            "url = \"rediss://a\"\ntls = { key = \"FOLDER/redis.key\" }",
            "`key` stands without its certificate",
        ),
        (
            "url = \"rediss://a\"\ntls = { cert = \"FOLDER/redis.pem\", key = \"FOLDER/redis.pem\" }",
            "`key` names a file that is no PEM private key",
        ),
        ("prefix = \"\"", "`prefix` cannot be ``; use 1 to 64 letters"),
        ("prefix = \"a b\"", "`prefix` cannot be `a b`"),
        ("prefix = \"a{}\"", "has braces that are no pair around something: `a{}`"),
        ("prefix = \"}a{\"", "has braces that are no pair"),
        ("prefix = \"{a\"", "has braces that are no pair"),
        ("timeout = \"0s\"", "write a duration from `\"1ms\"` to `\"10s\"`"),
        ("timeout = \"11s\"", "is out of range: `11s`"),
        ("timeout = 20", "not a plain number"),
        ("on_error = \"lcoal\"", "did you mean `local`?"),
        ("cluster = 1", "must be a boolean"),
        ("cluster = true\nurl = \"redis://a/1\"", "names a database; a cluster has database 0"),
        ("cluster = true\nurl = \"unix:///a\"", "is a socket; write the address of one"),
        ("cluster = true\nurl = [\"redis://a\", \"rediss://b\"]", "differs from the first one"),
        ("cluster = true\nurl = [\"redis://:p@a\", \"redis://:q@b\"]", "differs from the first"),
        ("cluster = true\nurl = [\"redis://a\", \"redis://A:6379\"]", "repeats an earlier one"),
        (
            "cluster = true\nsentinel = { master = \"m\", nodes = [\"a\"] }",
            "`cluster` stands beside `sentinel`: a cluster has no sentinels",
        ),
        (
            "url = \"unix:///a\"\nsentinel = { master = \"m\", nodes = [\"a\"] }",
            "is a socket, and sentinels name hosts",
        ),
        (&sentinel("nodes = [\"a\"]"), "`sentinel` of `[store]` has no `master`; add a line"),
        (&sentinel("master = \"m\""), "has no `nodes`; add a line such as"),
        (&sentinel("master = \"\"\nnodes = [\"a\"]"), "is not the name of a master"),
        (&sentinel("master = \"m\"\nnodes = []"), "is empty: there is nobody to ask"),
        (
            &sentinel("master = \"m\"\nnodes = [\"redis://a\"]"),
            "is not the address of a sentinel: `redis://a`; write a host and a port without",
        ),
        (&sentinel("master = \"m\"\nnodes = [\"a\", \"a:26379\"]"), "repeats an earlier one"),
        (
            &sentinel("master = \"m\"\nnodes = [\"a\"]\nusername = \"s\""),
            "names a user without a password; add `password_env` beside it",
        ),
        (
            &sentinel("master = \"m\"\nnodes = [\"a\"]\npassword_env = \"WEIR_NO_SUCH\""),
            "`WEIR_NO_SUCH`, which is not set",
        ),
        (&sentinel("master = \"m\"\nnodes = [\"a\"]\nport = 1"), "unknown key `port`"),
    ] {
        let lines = refused(&redis(&at(keys)));
        assert!(
            lines.len() == 1 && lines[0].contains(expected),
            "expected {expected:?}, got {lines:#?} for:\n{keys}"
        );
    }
}

#[test]
fn keys_for_redis_beside_memory_are_warned_of() {
    for keys in [
        "url = \"redis://a\"",
        "cluster = true",
        "sentinel = { master = \"m\", nodes = [\"a\"] }",
        "username = \"a\"",
        "password_env = \"WEIR_NO_SUCH\"",
        "password_file = \"/no/such/file\"",
        "tls = { ca = \"/no/such/file\" }",
        "prefix = \"a\"",
        "timeout = \"1s\"",
    ] {
        let lines = good(&with_route(&format!("[store]\n{keys}"))).warnings.lines();
        assert!(
            lines.len() == 1 && lines[0].contains("has no effect: the store is in memory; remove"),
            "{keys}: {lines:#?}"
        );
    }
    let quiet = good(&with_route("[store]\nkind = \"memory\"\non_error = \"deny\"\nmax_keys = 5"));
    assert!(quiet.warnings.is_empty(), "{}", quiet.warnings);
}

#[test]
fn a_host_beside_sentinels_is_warned_of() {
    let text = redis("url = \"rediss://:p@a/1\"\nsentinel = { master = \"m\", nodes = [\"b\"] }");
    let loaded = good(&text);
    let lines = loaded.warnings.lines();
    assert!(
        lines.len() == 1 && lines[0].contains("names a host, which is not asked"),
        "{lines:#?}"
    );
    assert_eq!(kind_of(loaded.settings.store.kind).database, 1);
}

#[test]
fn the_summary_says_where_buckets_live_and_no_password() {
    let files = Files::new();
    let folder = files.folder();
    let tls = format!(
        "url = \"rediss://me:s3cret@a/1\"\ntls = {{ cert = \"{folder}/redis.pem\", \
         key = \"{folder}/redis.key\" }}"
    );
    for (keys, expected) in [
        (
            "",
            "store redis at 127.0.0.1:6379, database 0, keys weir:…, within 20ms, on error local, \
             at most 1000000 keys here",
        ),
        (
            &tls,
            "store redis at a:6379, database 1, user me, keys weir:…, TLS with a certificate, \
             within 20ms, on error local, at most 1000000 keys here",
        ),
        (
            "url = [\"redis://:s3cret@a\", \"redis://:s3cret@[::1]:1\"]\ncluster = true\n\
             prefix = \"{w}\"\ntimeout = \"1s\"\non_error = \"deny\"\nmax_keys = 5",
            "store redis cluster at a:6379 [::1]:1, with a password, keys {w}:…, within 1s, \
             on error deny, at most 5 keys here",
        ),
        (
            "sentinel = { master = \"m\", nodes = [\"a\", \"b:1\"] }",
            "store redis master m of sentinels a:26379 b:1, database 0, keys weir:…, within 20ms, \
             on error local, at most 1000000 keys here",
        ),
        (
            "url = \"unix:///run/redis.sock\"",
            "store redis at /run/redis.sock, database 0, keys weir:…, within 20ms, on error \
             local, at most 1000000 keys here",
        ),
    ] {
        let loaded = good(&redis(keys));
        let said = summary(&loaded);
        assert_eq!(said.lines().nth(2), Some(expected), "{said}");
        let debugged = format!("{loaded:?}");
        assert!(!said.contains("s3cret") && !debugged.contains("s3cret"), "{said}\n{debugged}");
        assert!(!debugged.contains("PRIVATE KEY"), "{debugged}");
    }
}

#[test]
fn the_summary_tells_how_a_limit_fails_only_where_it_differs() {
    let text = limit(
        "key = \"ip\"\nrate = \"1/second\"\non_error = \"deny\"\n[limits.m]\nkey = \"ip\"\n\
                      rate = \"1/second\"\non_error = \"allow\"\n[store]\nkind = \"redis\"\non_error = \"allow\"",
    );
    let text = text.replace("[\"l\"]", "[\"l\", \"m\"]");
    let said = summary(&good(&text));
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).expect(name);
    assert!(row("  l ").ends_with("on error deny"), "{said}");
    assert!(row("  m ").ends_with("cost 1"), "{said}");
}

#[test]
fn a_fault_in_a_url_does_not_show_its_password() {
    for url in [
        "redis://me:s3cret@host/x",
        "redis://me:s3cret@:6379",
        "redis://me:s3cret/s3cret@host",
        "redis://me:s3cret#s3cret@host",
        "redis://me:s3cret%@host",
        "redis://me:s3cret@host/0?s=1",
        "rdis://me:s3cret@host",
        "me:s3cret@host",
        "redis:me:s3cret@host",
        "unix://me:s3cret@/run/redis.sock",
        "redis://me:s3cret-that-is-far-too-long-to-be-shown-in-a-message-as-a-whole@a b",
    ] {
        let text = redis(&format!("url = \"{url}\""));
        let error: ConfigError = parse("config.toml", &text).expect_err(url);
        for shown in [error.to_string(), error.lines().join("\n"), format!("{error:?}")] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert!(error.to_string().contains("***"), "{error}");
    }
}
