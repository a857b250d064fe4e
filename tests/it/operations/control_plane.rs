//! Reloads, file changes and overrides beside requests: neither requests nor health checks wait.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::support::gateway::{TOKEN, program};
use crate::support::{Client, Config, Scratch, Upstream, Weir, get, wait_until};

/// So many API keys that reading them takes a second and more.
fn clients(mark: u32) -> String {
    let client = |number: u32| {
        let hash = format!("{mark:032x}{number:032x}");
        format!("[[clients]]\nid = \"c{number}\"\nkey_hash = \"sha256:{hash}\"\n")
    };
    (0..20_000).map(client).collect()
}

/// The longest that one of these took until `stop` is set.
fn longest(
    stop: &Arc<AtomicBool>,
    ask: impl Fn() + Send + 'static,
) -> std::thread::JoinHandle<Duration> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            ask();
            longest = longest.max(started.elapsed());
            // Leaves the machine to the gateway between two requests.
            std::thread::sleep(Duration::from_millis(2));
        }
        longest
    })
}

/// Measured against the reload itself: what shares a thread with it waits for all of it, every time.
/// A busy machine may hold up a single one.
#[test]
fn connections_are_accepted_and_health_is_answered_while_a_configuration_is_compiled() {
    let seen: Vec<_> = (0..3).map(|_| waits_of_a_reload()).collect();
    let prompt = seen.iter().any(|it| it.health < it.reload / 2 && it.fresh < it.reload / 2);
    assert!(prompt, "{seen:?}");
}

/// How long a reload took, and the longest wait for an answer meanwhile.
#[derive(Debug)]
struct ReloadWaits {
    reload: Duration,
    /// For `/healthz` on the admin listener.
    health: Duration,
    /// For a request on a new connection.
    fresh: Duration,
}

fn waits_of_a_reload() -> ReloadWaits {
    let config = Config::echo().open().also("[identity]\nclient = \"header:x-api-key\"");
    let weir = Weir::start(&config);
    let (data, admin) = (weir.address(), weir.admin_address());
    let stop = Arc::new(AtomicBool::new(false));
    let health = longest(&stop, move || {
        let answer = Client::connect(admin).ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(answer.status, 200);
    });
    let fresh = longest(&stop, move || {
        assert_eq!(Client::connect(data).ask(get("/")).status, 200);
    });
    let started = Instant::now();
    weir.reload(&config.also(&clients(1)));
    let reload = started.elapsed();
    stop.store(true, Ordering::Relaxed);
    let (health, fresh) = (health.join().unwrap(), fresh.join().unwrap());
    ReloadWaits { reload, health, fresh }
}

#[test]
fn metric_series_of_removed_limits_and_routes_disappear() {
    let route = |name: &str, path: &str, limit: &str| {
        format!(
            "[limits.{limit}]\nkey = \"ip\"\nrate = \"100/second\"\n[[routes]]\nname = \"{name}\"\n\
             path = \"{path}\"\nupstream = \"echo\"\nlimits = [\"{limit}\"]\n"
        )
    };
    let (gone, stays) = (route("gone", "/gone", "old"), route("stays", "/*", "kept"));
    let weir = Weir::start(&Config::echo().open().routes(&(gone + &stays)));
    assert_eq!(weir.ask(get("/gone")).status, 200);
    assert_eq!(weir.ask(get("/")).status, 200);
    let page = || weir.admin("/metrics").text();
    let named = |name: &str| page().contains(name);
    assert!(named("limit=\"old\"") && named("route=\"gone\""));
    weir.reload(&Config::echo().open().routes(&stays));
    wait_until("the series are gone", || !named("limit=\"old\"") && !named("route=\"gone\""));
    let page = page();
    let kept = "weir_requests_total{route=\"stays\",status=\"200\"} 1\n";
    assert!(page.contains(kept), "others are kept: {page}");
    let kept = "weir_decisions_total{limit=\"kept\",outcome=\"allowed\"} 1\n";
    assert!(page.contains(kept), "others are kept: {page}");
}

#[test]
fn series_of_what_a_reload_has_removed_go_though_an_override_follows() {
    let limit = |name: &str| format!("[limits.{name}]\nkey = \"ip\"\nrate = \"100/second\"\n");
    let route = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n";
    let with = |limits: &str| Config::echo().open().operated().routes(&(limits.to_owned() + route));
    let weir = Weir::start(&with(&(limit("old") + &limit("kept"))));
    let named = |name: &str| weir.admin("/metrics").text().contains(name);
    assert!(named("limit=\"old\""));
    weir.reload(&with(&limit("kept")));
    let set = weir.operate("PUT", "/v1/overrides/kept/192.0.2.1", "{\"burst\": 5}");
    assert_eq!(set.status, 200);
    wait_until("the series are gone", || !named("limit=\"old\""));
    assert!(named("limit=\"kept\""));
}

#[test]
fn requests_are_counted_once_though_overrides_come_and_go() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"900/second\"").operated());
    let mut client = weir.connect();
    for round in 0..10 {
        assert_eq!(client.ask(get("/")).status, 200);
        let (target, body) = ("/v1/overrides/per-ip/192.0.2.1", "{\"burst\": 50}");
        let method = if round % 2 == 0 { "PUT" } else { "DELETE" };
        assert_eq!(weir.operate(method, target, body).status, 200);
        assert_eq!(client.ask(get("/")).status, 200);
    }
    let metrics = weir.metrics();
    assert_eq!(metrics.decisions("per-ip", "allowed"), Some(20.0));
    assert_eq!(metrics.value("weir_requests_total", &[("status", "200")]), Some(20.0));
}

fn pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn pipe_in_place_of_a_file_is_an_error_and_blocks_nothing() {
    let scratch = Scratch::new();
    let list = scratch.file("deny.txt", "192.0.2.1\n");
    let config = Config::echo().open();
    let config = config.also(&format!("[access]\ndeny = {{ files = [{list:?}] }}"));
    let weir = Weir::start(&config);
    std::fs::remove_file(&list).unwrap();
    pipe(&list);
    wait_until("the list is complained about", || {
        weir.output().contains("it is not a regular file")
    });
    assert_eq!(weir.ask(get("/")).status, 200);
    let again = weir.output().matches("it is not a regular file").count();
    std::fs::remove_file(weir.file()).unwrap();
    pipe(weir.file());
    wait_until("the file is complained about", || {
        weir.output().matches("it is not a regular file").count() > again
    });
    assert_eq!(weir.ask(get("/")).status, 200);
    assert_eq!(weir.ask_admin(get("/healthz")).status, 200);
    // A regular file again is reloaded as usual.
    std::fs::remove_file(weir.file()).unwrap();
    std::fs::remove_file(&list).unwrap();
    weir.reload(&Config::echo().limit("key = \"ip\"\nrate = \"7/hour\""));
    assert!(weir.ask(get("/")).one("ratelimit-policy").contains("q=7;"));
}

#[test]
fn check_rejects_a_pipe() {
    let scratch = Scratch::new();
    let path = scratch.path().join("pipe.toml");
    pipe(&path);
    let out = program().arg("check").arg(&path).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(err.contains("it is not a regular file"), "{err}");
}

#[test]
fn changed_drain_applies_without_a_restart() {
    let upstream = Upstream::scripted(|_| {
        loop {
            std::thread::park();
        }
    });
    let config = |drain: &str| Config::to(&upstream).server(&format!("drain = \"{drain}\""));
    let mut weir = Weir::start(&config("60s"));
    weir.reload(&config("100ms"));
    assert!(!weir.output().contains("takes a restart"), "{}", weir.output());
    let mut waiting = Client::connect(weir.address());
    waiting.send(get("/"));
    wait_until("the request is under way", || upstream.heads() == 1);
    weir.signal(Signal::TERM);
    assert!(weir.exit().success());
    assert!(weir.output().contains("draining for at most 100ms"), "{}", weir.output());
}

#[test]
fn the_admin_listener_answers_to_its_own_names_only() {
    let config = Config::echo().admin("hosts = [\"weir.internal\"]").operated();
    let weir = Weir::start(&config);
    let ask = |host: &str, more: &str, method: &str, target: &str| {
        let body = if method == "PUT" { "{\"burst\": 9}" } else { "" };
        weir.ask_admin(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let own = weir.admin_address().to_string();
    for host in ["localhost", "127.0.0.1:1", "[::1]", "Weir.Internal:9090", own.as_str()] {
        assert_eq!(ask(host, "", "GET", "/v1/overrides").status, 200, "{host}");
        assert_eq!(ask(host, "", "GET", "/healthz").status, 200, "{host}");
    }
    for target in ["/v1/overrides", "/metrics", "/healthz", "/readyz", "/nowhere"] {
        let refused = ask("rebound.example", "", "GET", target);
        assert_eq!(refused.status, 421, "{target}");
        let told = refused.json();
        assert!(told["error_description"].as_str().unwrap().contains("admin.hosts"), "{told}");
    }
    let token = format!("Authorization: Bearer {}\r\n", TOKEN);
    let target = "/v1/access/deny/ip/192.0.2.1";
    let foreign = format!("{token}Origin: http://rebound.example\r\n");
    assert_eq!(ask("localhost", &foreign, "PUT", target).status, 403);
    assert_eq!(weir.operate("GET", "/v1/access", "").text(), "[]");
    let body = format!("{token}Origin: http://localhost\r\n");
    assert_eq!(ask("localhost", &body, "DELETE", target).status, 404, "its own page may ask");
}

#[test]
fn invalid_v1_body_is_refused_with_a_reason() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"5/second\"").operated());
    let say = |body: &str| {
        let told = weir.operate("PUT", "/v1/overrides/per-ip/192.0.2.1", body).json();
        told["error_description"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(say("{"), "The body is not JSON: line 1, column 1.");
    assert!(say("[]").starts_with("The body must be a JSON object"));
    assert!(say("{\"brust\": 1}").starts_with("There is no field \"brust\""));
    assert_eq!(say("{\"burst\": -1}"), "The field burst must be a whole number, not -1.");
    assert_eq!(say("{\"ttl\": 5}"), "The field ttl must be a string such as \"1h30m\", not 5.");
    let large = format!("{{\"reason\": \"{}\"}}", "x".repeat(70_000));
    assert_eq!(say(&large), "The body has more than 64 KiB.");
}

#[test]
fn unknown_log_level_or_format_is_an_error() {
    for (name, value) in [
        ("WEIR_LOG", "warning"),
        ("WEIR_LOG", "verbose"),
        ("WEIR_LOG", ""),
        ("WEIR_LOG_FORMAT", "josn"),
    ] {
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", &Config::echo().text());
        let mut command = program();
        command.arg("run").arg("--config").arg(file).env(name, value);
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{name}={value}");
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(err.contains(&format!("{name} cannot be {value:?}")), "{err}");
    }
}

#[test]
fn what_is_said_before_the_start_is_json_as_well_where_the_log_is() {
    let run = |text: &str| {
        let scratch = Scratch::new();
        let file = scratch.file("weir.toml", text);
        let mut command = program();
        command.arg("run").arg("--config").arg(file).env("WEIR_LOG_FORMAT", "json");
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        serde_json::from_str::<serde_json::Value>(&first).expect(&first)
    };
    let unused = Config::echo().add_limit("unused", "key = \"ip\"\nrate = \"1/second\"").text();
    let told = run(&unused);
    assert_eq!(told["level"], "WARN");
    assert!(told["message"].as_str().unwrap().contains("limit `unused` is used by no route"));
    let told = run(&unused.replace("rate", "rat"));
    assert_eq!(told["level"], "ERROR");
    assert!(told["message"].as_str().unwrap().contains("unknown key `rat`"));
}

#[test]
fn check_finds_the_file_as_run_does() {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &Config::echo().text());
    for flag in ["-c", "--config"] {
        assert!(program().arg("check").arg(flag).arg(&file).output().unwrap().status.success());
    }
}

#[test]
fn requests_after_an_acknowledged_change_obey_it() {
    let limit = "key = \"ip\"\nrate = \"20/second\"\nburst = 20";
    let weir = Weir::start(&Config::echo().limit(limit).operated());
    let told = || weir.ask(get("/")).one("ratelimit-policy").to_owned();
    for _ in 0..20 {
        let set = weir.operate("PUT", "/v1/overrides/per-ip/127.0.0.1", "{\"burst\": 50}");
        assert_eq!(set.status, 200);
        assert!(told().contains("q=50;"), "{}", told());
        assert_eq!(weir.operate("DELETE", "/v1/overrides/per-ip/127.0.0.1", "").status, 200);
        assert!(told().contains("q=20;"), "{}", told());
    }
}

#[test]
fn list_that_is_far_too_large_is_refused_unread() {
    let scratch = Scratch::new();
    let list = scratch.file("deny.txt", "192.0.2.1\n");
    let config = Config::echo().open();
    let weir = Weir::start(&config.also(&format!("[access]\ndeny = {{ files = [{list:?}] }}")));
    let before = weir.peak_memory();
    let sparse = std::fs::OpenOptions::new().write(true).open(&list).unwrap();
    sparse.set_len(300 << 20).unwrap();
    wait_until("the list is complained about", || weir.output().contains("larger than"));
    let grown = weir.peak_memory() - before;
    assert!(grown < 32 * 1024, "{grown} KiB");
}

#[test]
fn list_rewritten_in_place_is_in_force_only_when_it_is_whole() {
    let scratch = Scratch::new();
    let list = scratch.file("deny.txt", "127.0.0.1\n192.0.2.1\n");
    let config = Config::echo().open();
    let weir = Weir::start(&config.also(&format!("[access]\ndeny = {{ files = [{list:?}] }}")));
    let reloads = weir.reloads("ok");
    let mut file = std::fs::File::create(&list).unwrap();
    for number in 0..20_u8 {
        // As slow as over a network.
        std::thread::sleep(Duration::from_millis(100));
        writeln!(file, "192.0.2.{number}").unwrap();
        assert_eq!(weir.get("/").status, 403, "after {number} lines");
    }
    writeln!(file, "127.0.0.1").unwrap();
    drop(file);
    wait_until("it is read", || weir.reloads("ok") > reloads);
    assert_eq!(weir.get("/").status, 403);
    // One that is empty for good is what somebody wants.
    std::fs::write(&list, "").unwrap();
    wait_until("the empty list is in force", || weir.get("/").status == 200);
}
