//! Access lists: callers that are never limited, and callers that are always refused.

use std::path::Path;
use std::time::Duration;

use crate::support::{Config, Response, Scratch, Weir, get_with, wait_at_most, wait_until};

/// In which a list that has changed is in force.
const SOON: Duration = Duration::from_secs(8);

/// One request a caller, from whatever address a header names.
fn limited(access: &str) -> Config {
    let identity = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]\n\
        user = \"header:x-user\"\nclient = \"header:x-client\"";
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1";
    Config::echo().limit(limit).also(identity).also(&format!("[access]\n{access}"))
}

fn from(weir: &Weir, ip: &str, lines: &str) -> Response {
    weir.ask(get_with("/", &format!("X-Forwarded-For: {ip}\r\n{lines}")))
}

/// Is let through as often as it asks, and no limit has anything to say of it.
#[track_caller]
fn is_allowed(weir: &Weir, ip: &str, lines: &str) {
    for _ in 0..3 {
        let response = from(weir, ip, lines);
        assert_eq!(response.status, 200, "{ip} {lines}");
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "retry-after"] {
            assert!(!response.has(name), "{ip} {lines}: {response:#?}");
        }
    }
}

#[track_caller]
fn is_denied(weir: &Weir, ip: &str, lines: &str) {
    let response = from(weir, ip, lines);
    assert_eq!((response.status, response.error()), (403, "denied".into()), "{ip} {lines}");
    assert!(!response.has("ratelimit"), "{response:#?}");
}

/// Has one request, and not two.
#[track_caller]
fn is_limited(weir: &Weir, ip: &str, lines: &str) {
    let response = from(weir, ip, lines);
    assert_eq!(response.status, 200, "{ip} {lines}");
    assert!(response.has("ratelimit"), "{response:#?}");
    assert_eq!(from(weir, ip, lines).status, 429, "{ip} {lines}");
}

fn counted(weir: &Weir, action: &str) -> f64 {
    weir.metrics().value("weir_access_total", &[("action", action)]).expect("weir_access_total")
}

fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(&fresh, path).unwrap();
}

#[test]
fn networks_users_and_clients_can_be_allowed_and_denied() {
    let weir = Weir::start(&limited(
        r#"
            allow = { ip = ["10.1.0.0/16", "2001:db8:1::/48"], user = ["ann"], client = ["batch"] }
            deny = { ip = ["192.0.2.0/24", "198.51.100.7"], user = ["eve"], client = ["old"] }
        "#,
    ));
    assert_eq!((counted(&weir, "allowed"), counted(&weir, "denied")), (0.0, 0.0));
    is_allowed(&weir, "10.1.2.3", "");
    is_allowed(&weir, "2001:db8:1:2::3", "");
    is_allowed(&weir, "203.0.113.1", "X-User: ann\r\n");
    is_allowed(&weir, "203.0.113.1", "X-Client: batch\r\n");
    wait_until("they are counted", || counted(&weir, "allowed") == 12.0);
    is_denied(&weir, "192.0.2.200", "");
    is_denied(&weir, "198.51.100.7", "");
    is_denied(&weir, "203.0.113.1", "X-User: eve\r\n");
    is_denied(&weir, "203.0.113.1", "X-Client: old\r\n");
    wait_until("they are counted", || counted(&weir, "denied") == 4.0);
    is_limited(&weir, "203.0.113.1", "");
    is_limited(&weir, "10.2.0.1", "X-User: annabel\r\n");
    is_limited(&weir, "198.51.100.8", "X-User: batch\r\nX-Client: ann\r\n");
    is_limited(&weir, "2001:db8:2::1", "X-User: Ann\r\n");
    assert_eq!((counted(&weir, "allowed"), counted(&weir, "denied")), (12.0, 4.0));
    let decided = weir.metrics().value("weir_decisions_total", &[("limit", "per-ip")]);
    assert_eq!(decided, Some(8.0), "nothing was decided about the others");
}

#[test]
fn caller_on_both_lists_is_denied() {
    let weir = Weir::start(&limited(
        r#"
            allow = { ip = ["192.0.2.1", "10.0.0.0/8"], user = ["ann"] }
            deny = { ip = ["192.0.2.0/24"], user = ["eve"] }
        "#,
    ));
    is_denied(&weir, "192.0.2.1", "");
    is_denied(&weir, "192.0.2.2", "X-User: ann\r\n");
    is_denied(&weir, "10.0.0.1", "X-User: eve\r\n");
    is_allowed(&weir, "10.0.0.1", "");
}

#[test]
fn a_mapped_address_is_the_address_it_maps() {
    let weir = Weir::start(&limited(
        r#"
            allow = { ip = ["::ffff:10.1.0.0/112", "10.9.0.0/16"] }
            deny = { ip = ["192.0.2.0/24", "::ffff:198.51.100.7"] }
        "#,
    ));
    for ip in ["10.1.2.3", "::ffff:10.1.2.3", "::ffff:10.9.2.3", "::FFFF:0A09:0203"] {
        is_allowed(&weir, ip, "");
    }
    for ip in ["::ffff:192.0.2.9", "192.0.2.9", "198.51.100.7", "::ffff:c633:6407"] {
        is_denied(&weir, ip, "");
    }
    is_limited(&weir, "::ffff:10.2.0.1", "");
}

#[test]
fn ambiguous_identity_header_is_not_allowed_through() {
    let weir = Weir::start(&limited("allow = { client = [\"batch\"] }"));
    let response = from(&weir, "203.0.113.1", "X-Client: batch\r\nX-Client: other\r\n");
    assert_eq!((response.status, response.error()), (400, "bad_request".into()));
}

#[test]
fn denied_caller_is_denied_on_routes_without_limits() {
    let weir = Weir::start(&limited("deny = { user = [\"eve\"], ip = [\"192.0.2.1\"] }").open());
    is_denied(&weir, "203.0.113.1", "X-User: eve\r\n");
    is_denied(&weir, "192.0.2.1", "");
    assert_eq!(from(&weir, "203.0.113.1", "X-User: ann\r\n").status, 200);
}

#[test]
fn denied_request_does_not_reach_upstream_and_keeps_the_connection() {
    let upstream = crate::support::Upstream::ok();
    let config = Config::to(&upstream)
        .also("[identity]\nuser = \"header:x-user\"")
        .also("[access]\ndeny = { user = [\"eve\"] }");
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    assert_eq!(client.ask(get_with("/", "X-User: eve\r\n")).status, 403);
    assert_eq!(client.ask(get_with("/", "X-User: ann\r\n")).status, 200);
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn files_name_callers_as_the_configuration_does() {
    let scratch = Scratch::new();
    let allow = scratch.file(
        "allow.txt",
        "# partners\n10.1.0.0/16\n\n  2001:db8:1::/48  # the second\r\nuser:ann\nclient:batch\n",
    );
    let deny = scratch.file("deny.txt", "192.0.2.0/24\n::ffff:198.51.100.7\nuser:eve\nclient:old");
    let weir = Weir::start(&limited(&format!(
        "allow = {{ ip = [\"10.9.0.0/16\"], files = [{allow:?}] }}\ndeny = {{ files = [{deny:?}] }}"
    )));
    for ip in ["10.1.2.3", "10.9.0.1", "2001:db8:1:2::3"] {
        is_allowed(&weir, ip, "");
    }
    is_allowed(&weir, "203.0.113.1", "X-User: ann\r\n");
    is_allowed(&weir, "203.0.113.1", "X-Client: batch\r\n");
    is_denied(&weir, "192.0.2.1", "");
    is_denied(&weir, "198.51.100.7", "");
    is_denied(&weir, "203.0.113.1", "X-User: eve\r\n");
    is_denied(&weir, "203.0.113.1", "X-Client: old\r\n");
    is_limited(&weir, "203.0.113.1", "");
}

#[test]
fn changed_list_is_in_force_within_seconds_and_a_broken_one_is_rejected() {
    let scratch = Scratch::new();
    let deny = scratch.file("deny.txt", "192.0.2.1\n");
    let weir = Weir::start(&limited(&format!("deny = {{ files = [{deny:?}] }}")));
    let status = |ip| from(&weir, ip, "").status;
    is_denied(&weir, "192.0.2.1", "");
    is_limited(&weir, "192.0.2.2", "");

    replace(&deny, "192.0.2.2\n");
    wait_at_most(SOON, "the new list is in force", || status("192.0.2.2") == 403);
    // Workers take it up one after another.
    wait_at_most(SOON, "it is in force everywhere", || status("192.0.2.1") == 200);

    let failed = weir.reloads("failed");
    replace(&deny, "192.0.2.1\nnonsense\n192.0.2.3\n");
    wait_at_most(SOON, "the broken list is refused", || weir.reloads("failed") > failed);
    wait_until("it says why", || {
        let said = weir.output();
        said.contains("deny.txt:2: `nonsense` is no entry") && said.contains("serves on")
    });
    assert_eq!([status("192.0.2.2"), status("192.0.2.1")], [403, 429]);

    std::fs::remove_file(&deny).unwrap();
    wait_at_most(SOON, "a list that is gone is refused", || {
        weir.output().contains("cannot be read")
    });
    assert_eq!([status("192.0.2.2"), status("192.0.2.1")], [403, 429]);

    replace(&deny, "192.0.2.1\n");
    wait_at_most(SOON, "the mended list is in force", || status("192.0.2.1") == 403);
    assert_eq!(status("192.0.2.2"), 429, "it has spent what it had before it was denied");
    let refused = weir.output().matches("configuration not reloaded").count();
    assert_eq!(refused, 2, "each fault is told once: {}", weir.output());
}

#[test]
fn changed_list_is_in_force_although_the_configuration_file_has_a_fault() {
    let scratch = Scratch::new();
    let deny = scratch.file("deny.txt", "192.0.2.1\n");
    let weir = Weir::start(&limited(&format!("deny = {{ files = [{deny:?}] }}")));
    let status = |ip| from(&weir, ip, "").status;
    let text = std::fs::read_to_string(weir.file()).unwrap();
    weir.replace_file(&format!("{text}\nkye = 1\n"));
    wait_until("the fault is reported", || weir.output().contains("`kye`"));
    replace(&deny, "192.0.2.2\n");
    wait_at_most(SOON, "the new list is in force", || status("192.0.2.2") == 403);
    let last_reload = || weir.metrics().value("weir_config_last_reload_successful", &[]);
    assert_eq!(last_reload(), Some(0.0));
    replace(&deny, "nonsense\n");
    wait_at_most(SOON, "it says what is wrong with the list", || {
        weir.output().contains("deny.txt:1: `nonsense` is no entry")
    });
    assert_eq!(status("192.0.2.2"), 403);
    assert!(!weir.output().contains("configuration reloaded"), "{}", weir.output());
    replace(&deny, "192.0.2.3\n");
    wait_at_most(SOON, "the mended list is in force", || status("192.0.2.3") == 403);
    weir.replace_file(&text);
    wait_until("all files are those that are served", || last_reload() == Some(1.0));
    assert_eq!(weir.output().matches("`kye`").count(), 1, "{}", weir.output());
}

#[test]
fn a_gateway_does_not_start_with_a_broken_list() {
    let scratch = Scratch::new();
    let deny = scratch.file("deny.txt", "192.0.2.1\nuser:\n");
    let file = scratch.file("weir.toml", &limited(&format!("deny.files = [{deny:?}]")).text());
    let ended =
        crate::support::gateway::program().arg("run").arg("--config").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(matches!(ended.status.code(), Some(1 | 2)), "{:?}: {said}", ended.status);
    assert!(said.contains("deny.txt:2: `user:` has no name behind it"), "{said}");
}

/// The gateway answers these itself, and asks no route.
#[test]
fn denied_address_gets_no_answer_to_options() {
    let weir = Weir::start(&limited("deny = { ip = [\"192.0.2.0/24\"] }"));
    let ask = |target: &str, ip: &str| {
        let lines = format!("Max-Forwards: 0\r\nX-Forwarded-For: {ip}\r\n");
        weir.ask(get_with(target, &lines).replace("GET", "OPTIONS"))
    };
    for target in ["*", "/"] {
        let response = ask(target, "192.0.2.7");
        assert_eq!((response.status, response.error()), (403, "denied".into()), "{target}");
        assert_eq!(ask(target, "203.0.113.1").status, 200, "{target}");
    }
    wait_until("they are counted", || counted(&weir, "denied") == 2.0);
}

#[test]
fn list_of_two_hundred_thousand_entries_works() {
    use std::fmt::Write as _;
    let scratch = Scratch::new();
    let mut text = String::new();
    for n in 0..100_000_u32 {
        // Every other address, so that no two are one network.
        let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 + 2 * n);
        writeln!(text, "{ip}\nuser:user-{n}").unwrap();
    }
    let deny = scratch.file("deny.txt", &text);
    let weir = Weir::start(&limited(&format!("deny = {{ files = [{deny:?}] }}")));
    for ip in ["10.0.0.0", "10.1.134.160", "10.3.13.62"] {
        is_denied(&weir, ip, "");
    }
    for name in ["user-0", "user-50000", "user-99999"] {
        is_denied(&weir, "203.0.113.1", &format!("X-User: {name}\r\n"));
    }
    is_limited(&weir, "10.0.0.1", "");
    is_limited(&weir, "10.1.134.161", "X-User: user-100000\r\n");
    is_limited(&weir, "10.3.13.64", "");
    text.push_str("203.0.113.9\n");
    replace(&deny, &text);
    wait_at_most(SOON, "the longer list is in force", || {
        from(&weir, "203.0.113.9", "").status == 403
    });
    is_denied(&weir, "10.0.0.0", "");
}
