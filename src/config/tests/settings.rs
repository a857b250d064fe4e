//! What a good file means.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::{good, limit, redis, refused, route, with_route};
use crate::config::settings::{
    Balance, HostPattern, ListenAddress, LogTarget, Origin, Rotation, Segment, Snapshot, Target,
};
use crate::limit::{Cost, Key, Missing, Policy, Source};
use crate::test_folder::TestFolder;

#[test]
fn listeners_are_one_address_or_several() {
    let listen = |text: &str| {
        let listen = good(&with_route(text)).settings.server.listen;
        listen.into_iter().map(|it| it.address).collect::<Vec<_>>()
    };
    let address = |text: &str| ListenAddress::Tcp(text.parse::<SocketAddr>().expect("an address"));
    assert_eq!(listen("[server]\nlisten = \"[::1]:80\""), [address("[::1]:80")]);
    assert_eq!(
        listen("[server]\nlisten = [\"0.0.0.0:80\", \"[::]:80\"]"),
        [address("0.0.0.0:80"), address("[::]:80")]
    );
    assert_eq!(listen("[server]\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]").len(), 2);
}

#[test]
fn server_keys_have_units() {
    let text = "[server]\ndrain = \"0s\"\nidle_timeout = \"1m30s\"\nmax_header_bytes = \"64KiB\"\n\
                max_body = 1024\nworkers = 4\nmax_connections = 10_000";
    let server = good(&with_route(text)).settings.server;
    assert_eq!(server.drain, Duration::ZERO);
    assert_eq!(server.idle_timeout, Duration::from_secs(90));
    assert_eq!(server.max_header_bytes, 65_536);
    assert_eq!(server.max_body, Some(1024));
    assert_eq!((server.workers, server.max_connections), (4, 10_000));
    let text = with_route("[server]\nmax_body = \"10MiB\"");
    assert_eq!(good(&text).settings.server.max_body, Some(10 << 20));
}

#[test]
fn logs_are_a_stream_or_a_file() {
    let log = |to: &str| {
        let text = with_route(&format!("[telemetry]\naccess_log = \"{to}\""));
        good(&text).settings.telemetry.access_log
    };
    assert_eq!(log("off"), LogTarget::Off);
    assert_eq!(log("stdout"), LogTarget::Stdout);
    assert_eq!(log("stderr"), LogTarget::Stderr);
    assert_eq!(log("access.log"), LogTarget::File(PathBuf::from("access.log")));
    assert_eq!(log("./stdout"), LogTarget::File(PathBuf::from("./stdout")));
}

#[test]
fn audit_events_go_to_one_target_or_to_several() {
    let audit = |keys: &str| {
        good(&with_route(&format!("[telemetry]\n{keys}"))).settings.telemetry.audit_log
    };
    let file = || LogTarget::File(PathBuf::from("audit.log"));
    assert_eq!(audit("").lines, [LogTarget::Stderr]);
    assert!(!audit("").redis, "the store is in memory");
    assert_eq!(audit("").rotation, Rotation { max_size: 100 << 20, keep: 5 });
    assert!(audit("audit_log = \"off\"").lines.is_empty());
    assert_eq!(audit("audit_log = \"audit.log\"").lines, [file()]);
    let both = audit("audit_log = [\"stdout\", \"audit.log\"]");
    assert_eq!(both.lines, [LogTarget::Stdout, file()]);
    let rotation = audit("audit_max_size = \"1MiB\"\naudit_keep = 0").rotation;
    assert_eq!(rotation, Rotation { max_size: 1 << 20, keep: 0 });
    assert_eq!(audit("audit_max_size = 0").rotation.max_size, 0);
    let shared = |keys: &str| {
        let text = format!("url = \"redis://127.0.0.1\"\n[telemetry]\n{keys}");
        good(&redis(&text)).settings.telemetry.audit_log
    };
    let usual = shared("");
    assert!(usual.redis && usual.lines == [LogTarget::Stderr], "gateways share what can be asked");
    assert!(!shared("audit_log = \"stderr\"").redis);
    let only = shared("audit_log = [\"redis\"]");
    assert!(only.redis && only.lines.is_empty());
}

#[test]
fn audit_targets_that_cannot_be_meant_are_refused() {
    for (keys, why) in [
        ("audit_log = []", "is empty"),
        ("audit_log = \"redis\"", "cannot be `redis`: the store is in memory"),
        ("audit_log = [\"off\", \"stdout\"]", "cannot be `off` beside others"),
        ("audit_log = [\"stdout\", \"stdout\"]", "repeats an earlier one"),
        ("audit_log = \"reddis\"", "cannot be `reddis`"),
        ("audit_max_size = \"1KiB\"", "is too small for a log"),
        ("audit_keep = -1", "audit_keep"),
    ] {
        let lines = refused(&with_route(&format!("[telemetry]\n{keys}")));
        assert!(lines.iter().any(|line| line.contains(why)), "{keys}: {lines:?}");
    }
}

#[test]
fn one_file_is_the_target_of_one_log() {
    let folder = TestFolder::new();
    let file = folder.file("s.log", "");
    std::os::unix::fs::symlink(&file, folder.join("link.log")).unwrap();
    let at = |path: &str| format!("{}/{path}", folder.path().display());
    let telemetry = |access: &str, audit: &[&str]| {
        let audit: Vec<String> = audit.iter().map(|it| at(it)).collect();
        let keys = format!("access_log = {:?}\naudit_log = {audit:?}", at(access));
        with_route(&format!("[telemetry]\n{keys}"))
    };
    for (access, audit) in [
        ("s.log", &["s.log"][..]),
        ("./s.log", &["a.log", "s.log"]),
        ("link.log", &["s.log"]),
        ("new.log", &["./new.log"]),
        ("a.log", &["s.log", "./s.log"]),
        ("a.log", &["link.log", "s.log"]),
        ("a.log", &["./new.log", "new.log"]),
    ] {
        let lines = refused(&telemetry(access, audit));
        let why = if audit.len() > 1 && access == "a.log" {
            "repeats an earlier one"
        } else {
            "is the file of `access_log`"
        };
        assert!(lines.len() == 1 && lines[0].contains(why), "{access} {audit:?}: {lines:?}");
    }
    good(&telemetry("s.log", &["a.log", "b.log"]));
    for device in ["/dev/null", "/dev/stdout"] {
        let keys = format!("[telemetry]\naccess_log = {device:?}\naudit_log = {device:?}");
        assert!(good(&with_route(&keys)).warnings.is_empty(), "{device}");
    }
}

#[test]
fn audit_settings_that_lose_events_or_do_nothing_are_warned_of() {
    let warnings = |keys: &str| {
        let text = format!("url = \"redis://127.0.0.1\"\n[telemetry]\n{keys}");
        good(&redis(&text)).warnings.lines()
    };
    let only = warnings("audit_log = \"redis\"");
    assert!(only.len() == 1 && only[0].contains("add a file or `stderr`"), "{only:?}");
    for keys in ["audit_log = [\"redis\", \"stderr\"]", "audit_log = \"off\"", ""] {
        assert_eq!(warnings(keys), [""; 0], "{keys}");
    }
    for key in ["audit_max_size = \"1MiB\"", "audit_keep = 3"] {
        let without = warnings(&format!("audit_log = \"stderr\"\n{key}"));
        let why = "has no effect: `audit_log` names no file";
        assert!(without.len() == 1 && without[0].contains(why), "{key}: {without:?}");
        assert_eq!(warnings(&format!("audit_log = [\"stderr\", \"a.log\"]\n{key}")), [""; 0]);
    }
}

#[test]
fn trusted_proxies_are_networks_or_addresses() {
    let text = with_route(
        "[identity]\ntrusted_proxies = [\"10.0.0.0/8\", \"192.168.1.1\", \"::ffff:172.16.0.0/108\"]",
    );
    let shown: Vec<String> =
        good(&text).settings.identity.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "192.168.1.1/32", "172.16.0.0/12"]);
}

#[test]
fn rate_headers_are_chosen_by_form() {
    let respond = |list: &str| {
        let respond = good(&with_route(&format!("[respond]\nheaders = {list}"))).settings.respond;
        [respond.draft, respond.x, respond.legacy]
    };
    assert_eq!(respond("[]"), [false, false, false]);
    assert_eq!(respond("[\"legacy\", \"draft\"]"), [true, false, true]);
}

#[test]
fn a_jitter_is_kept_in_thousandths() {
    let jitter = |written: &str| {
        let text = with_route(&format!("[respond]\nretry_jitter = {written}"));
        let respond = good(&text).settings.respond;
        assert!(respond.draft && respond.x && !respond.legacy);
        respond.retry_jitter
    };
    let got = ["0", "0.0", "0.1", "0.125", "0.5", "5e-1"].map(jitter);
    assert_eq!(got, [0, 0, 100, 125, 500, 500]);
}

#[test]
fn a_snapshot_is_a_file_that_is_written_every_so_often() {
    let snapshot = |keys: &str| {
        let loaded = good(&with_route(&format!("[store]\n{keys}")));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        loaded.settings.store.snapshot
    };
    let every = |seconds| {
        let (path, interval) = (PathBuf::from("weir.snapshot"), Duration::from_secs(seconds));
        Some(Snapshot { path, interval })
    };
    assert_eq!(snapshot(""), None);
    assert_eq!(snapshot("snapshot = \"weir.snapshot\""), every(60));
    assert_eq!(snapshot("snapshot = \"weir.snapshot\"\nsnapshot_interval = \"5s\""), every(5));
}

#[test]
fn upstreams_keep_their_order_and_routes_point_at_them() {
    let text = r#"
        [upstreams.z]
        servers = ["http://z"]
        [upstreams.a]
        servers = ["http://A.internal:81", "http://[::1]:82"]
        balance = "random"
        retries = 0
        [[routes]]
        name = "to-a"
        path = "/a"
        upstream = "a"
        [[routes]]
        name = "to-z"
        path = "/z"
        upstream = "z"
    "#;
    let settings = good(text).settings;
    let names: Vec<&str> = settings.upstreams.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    assert_eq!(settings.routes[0].target, Target::Upstream(1));
    assert_eq!(settings.routes[1].target, Target::Upstream(0));
    let a = &settings.upstreams[1];
    assert_eq!((&a.balance, a.retries), (&Balance::Random, 0));
    assert_eq!((a.http2, &a.tls), (false, &None));
    let origins: Vec<_> = a.servers.iter().map(|it| it.origin.clone()).collect();
    let origin = |host: &str, port| Origin { host: host.to_owned(), port };
    assert_eq!(origins, [origin("a.internal", 81), origin("::1", 82)]);
}

#[test]
fn keys_are_sources_or_several() {
    let key = |written: &str| {
        let text = limit(&format!("key = {written}\nrate = \"1/second\""));
        good(&text).settings.limits[0].key.clone()
    };
    assert_eq!(key("\"global\""), Key(vec![Source::Global]));
    assert_eq!(key("\"header:Host\""), Key(vec![Source::Header(HeaderName::from_static("host"))]));
    assert_eq!(
        key("[\"ip\", \"route\", \"header:X-Api-Key\", \"query:api key\", \"cookie:Sid\"]"),
        Key(vec![
            Source::Ip,
            Source::Route,
            Source::Header(HeaderName::from_static("x-api-key")),
            Source::Query("api key".to_owned()),
            Source::Cookie("Sid".to_owned()),
        ])
    );
}

#[test]
fn burst_is_the_count_unless_written_and_the_allowance_multiplies_it() {
    let quota = |keys: &str| {
        let text = limit(&format!("key = \"ip\"\nrate = \"100/minute\"\n{keys}"));
        good(&text).settings.limits[0].policy.quota()
    };
    assert_eq!(quota(""), 100);
    assert_eq!(quota("burst = 7"), 7);
    assert_eq!(quota("burst_allowance = 1.15"), 115);
    assert_eq!(quota("burst = 3\nburst_allowance = 1.5"), 4);
    assert_eq!(quota("burst = 3\nburst_allowance = 2"), 6);
    assert_eq!(quota("burst = 3\nburst_allowance = 0.1"), 1);
}

#[test]
fn limits_carry_algorithm_cost_and_missing() {
    let text = limit(
        "key = \"ip\"\nrate = \"1_000/10s\"\nalgorithm = \"sliding_window\"\ncost = 5\n\
         missing = \"deny\"\nresponse_headers = false",
    );
    let limit = good(&text).settings.limits.remove(0);
    assert!(matches!(limit.policy, Policy::SlidingWindow(_)));
    assert_eq!((&limit.cost, limit.missing), (&Cost::Fixed(5), Missing::Deny));
    assert_eq!((limit.policy.quota(), limit.policy.window_seconds()), (1000, Some(10)));
    assert!(!limit.response_headers);
}

#[test]
fn routes_carry_all_that_is_written() {
    let text = route(
        "host = \"*.Example.com\"\npath = \"/API/{id}\"\nmethods = [\"GET\", \"PURGE\"]\n\
         strip_prefix = \"/Api/\"\ntimeout = \"5s\"\n\
         request_headers = { set = { \"X-A\" = \"b\" }, remove = [\"X-C\"] }\n\
         response_headers.remove = [\"server\"]",
    );
    let route = good(&text).settings.routes.remove(0);
    assert_eq!(route.host, HostPattern::Below("example.com".to_owned()));
    let segments = [Segment::Literal("api".to_owned()), Segment::Parameter("id".to_owned())];
    assert_eq!((route.path.segments.as_slice(), route.path.prefix), (&segments[..], false));
    let purge = Method::from_bytes(b"PURGE").expect("a token");
    assert_eq!(route.methods, [Method::GET, purge]);
    assert_eq!(route.strip_prefix.as_deref(), Some("/api"));
    assert_eq!(route.timeout, Some(Duration::from_secs(5)));
    let a = (HeaderName::from_static("x-a"), HeaderValue::from_static("b"));
    assert_eq!(route.request_headers.set, [a]);
    assert_eq!(route.request_headers.remove, [HeaderName::from_static("x-c")]);
    assert_eq!(route.response_headers.remove, [HeaderName::from_static("server")]);
}

#[test]
fn routes_that_differ_in_host_path_or_method_live_together() {
    let routes = [
        "path = \"/a\"\nmethods = [\"GET\"]",
        "path = \"/a\"\nmethods = [\"POST\"]",
        "path = \"/a\"\nhost = \"h\"",
        "path = \"/a\"\nhost = \"*.h\"",
        "path = \"/a/*\"",
        "path = \"/{a}\"",
    ];
    let text: String = routes
        .iter()
        .enumerate()
        .map(|(at, keys)| format!("[[routes]]\nname = \"r{at}\"\nupstream = \"echo\"\n{keys}\n"))
        .collect();
    assert_eq!(good(&text).settings.routes.len(), routes.len());
}
