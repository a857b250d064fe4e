//! A new configuration takes the place of the old one between two requests, or not at all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{
    Config, Scratch, SetOnDrop, Upstream, Weir, check_for, get, get_with, post, wait_until,
};

fn with_burst(upstream: &Upstream, burst: u32) -> Config {
    Config::to(upstream).limit(&format!("key = \"ip\"\nrate = \"1/hour\"\nburst = {burst}"))
}

fn limit_in_force(weir: &Weir) -> String {
    weir.get("/").one("x-ratelimit-limit").to_owned()
}

#[test]
fn a_file_replaced_by_rename_is_read() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&with_burst(&upstream, 100));
    assert_eq!(limit_in_force(&weir), "100");
    for burst in [101, 102, 103] {
        weir.replace_file(&with_burst(&upstream, burst).text());
        wait_until("it is in force", || limit_in_force(&weir) == burst.to_string());
    }
}

#[test]
fn a_file_written_in_place_is_read() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&with_burst(&upstream, 100));
    for burst in [101, 102, 103] {
        std::fs::write(weir.file(), with_burst(&upstream, burst).text()).unwrap();
        wait_until("it is in force", || limit_in_force(&weir) == burst.to_string());
    }
}

#[test]
fn a_file_behind_a_swapped_link_is_read() {
    // As an orchestrator mounts it: weir.toml -> ..data/weir.toml, ..data -> a directory, and an
    // update renames a new link over ..data.
    let upstream = Upstream::ok();
    let scratch = Scratch::new();
    let at = scratch.path().to_owned();
    let write_folder = |name: &str, burst| {
        std::fs::create_dir(at.join(name)).unwrap();
        std::fs::write(at.join(name).join("weir.toml"), with_burst(&upstream, burst).text())
            .unwrap();
        std::os::unix::fs::symlink(name, at.join("..fresh")).unwrap();
        std::fs::rename(at.join("..fresh"), at.join("..data")).unwrap();
    };
    write_folder("..one", 100);
    std::os::unix::fs::symlink("..data/weir.toml", at.join("weir.toml")).unwrap();
    let weir = Weir::start_from(scratch, at.join("weir.toml"));
    assert_eq!(limit_in_force(&weir), "100");
    write_folder("..two", 101);
    wait_until("it is in force", || limit_in_force(&weir) == "101");
    write_folder("..three", 102);
    wait_until("it is in force", || limit_in_force(&weir) == "102");
}

#[test]
fn sighup_reads_the_file() {
    let upstream = Upstream::ok();
    let mut weir = Weir::start(&with_burst(&upstream, 100));
    let before = weir.reloads("ok");
    weir.signal(Signal::HUP);
    wait_until("a reload is counted", || weir.reloads("ok") > before);
    std::fs::write(weir.file(), with_burst(&upstream, 101).text()).unwrap();
    weir.signal(Signal::HUP);
    wait_until("it is in force", || limit_in_force(&weir) == "101");
    assert!(weir.runs());
}

#[test]
fn invalid_file_changes_nothing_and_is_reported() {
    let upstream = Upstream::ok();
    let good = with_burst(&upstream, 100);
    let weir = Weir::start(&good);
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    let text = good.text();
    let rows = [
        text.replace("burst", "brust"),
        text.replace("1/hour", "1/fortnight"),
        text.replace("limits = [\"per-ip\"]", "limits = [\"nobody\"]"),
        "not toml at all [".to_owned(),
    ];
    for row in rows {
        let failed = weir.reloads("failed");
        let ok = weir.reloads("ok");
        weir.replace_file(&row);
        wait_until("the failure is counted", || weir.reloads("failed") > failed);
        assert!(weir.reloads("ok") <= ok);
        assert_eq!(client.ask(get("/")).one("x-ratelimit-limit"), "100");
    }
    wait_until("it says why", || weir.output().contains("brust"));
    let said = weir.output();
    assert!(said.contains("weir.toml:"), "with the location: {said}");
    weir.reload(&with_burst(&upstream, 101));
    assert_eq!(client.ask(get("/")).one("x-ratelimit-limit"), "101");
}

#[test]
fn a_vanished_file_changes_nothing() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&with_burst(&upstream, 100));
    std::fs::remove_file(weir.file()).unwrap();
    let failed = weir.reloads("failed");
    weir.signal(Signal::HUP);
    wait_until("the failure is counted", || weir.reloads("failed") > failed);
    assert_eq!(limit_in_force(&weir), "100");
}

#[test]
fn reload_keeps_what_was_spent() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&with_burst(&upstream, 5));
    let mut client = weir.connect();
    for _ in 0..5 {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    assert_eq!(client.ask(get("/")).status, 429);
    // The same file again: nothing is given back.
    weir.reload(&with_burst(&upstream, 5).also("# touched"));
    assert_eq!(client.ask(get("/")).status, 429);
    // A larger burst adds what it is larger by, at once, on the same connection.
    weir.reload(&with_burst(&upstream, 8));
    let statuses: Vec<u16> = (0..4).map(|_| client.ask(get("/")).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // A smaller one is not emptier than empty.
    weir.reload(&with_burst(&upstream, 2));
    let refusal = client.ask(get("/"));
    assert_eq!(refusal.status, 429);
    let wait: u64 = refusal.one("retry-after").parse().unwrap();
    assert!(wait <= 3600, "one token is an hour away, not {wait} s");
    assert_eq!(refusal.one("x-ratelimit-limit"), "2");
}

#[test]
fn routes_and_upstreams_change_at_once() {
    let (one, two) = (Upstream::replying(|_| body("one")), Upstream::replying(|_| body("two")));
    let weir = Weir::start(&Config::to(&one).open());
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).text(), "one");
    weir.reload(&Config::to(&two).open());
    assert_eq!(client.ask(get("/")).text(), "two");
    let routes = "[[routes]]\nname = \"a\"\npath = \"/a\"\nupstream = \"api\"";
    weir.reload(&Config::to(&two).open().routes(routes));
    assert_eq!(client.ask(get("/")).status, 404);
    assert_eq!(client.ask(get("/a")).text(), "two");
}

fn body(text: &str) -> Vec<u8> {
    crate::support::upstream::ok(text)
}

#[test]
fn request_in_flight_keeps_its_configuration() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let slow = Upstream::scripted(move |exchange| {
        let _ = wait.lock().unwrap().recv_timeout(crate::support::PATIENCE);
        exchange.reply(body("slow"));
        crate::support::After::Keep
    });
    let fast = Upstream::replying(|_| body("fast"));
    let weir = Weir::start(&Config::to(&slow).open());
    let mut client = weir.connect();
    client.send(get("/"));
    wait_until("it is in flight", || slow.heads() == 1);
    weir.reload(&Config::to(&fast).open());
    assert_eq!(weir.get("/").text(), "fast");
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "slow");
    assert_eq!(client.ask(get("/")).text(), "fast");
}

#[test]
fn no_request_fails_while_reloading_under_load() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let end = SetOnDrop(&over);
        for n in 0..6 {
            let (weir, over, asked) = (&weir, &over, &asked);
            scope.spawn(move || {
                let mut client = weir.connect();
                while !over.load(Ordering::Relaxed) {
                    // Half keep their connection, half take a new one each time.
                    if n % 2 == 0 {
                        client = weir.connect();
                    }
                    assert_eq!(client.ask(get("/")).status, 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..6 {
            weir.reload(
                &Config::to(&upstream).open().server(&format!("drain = \"{}s\"", 10 + round)),
            );
            let seen = asked.load(Ordering::Relaxed);
            wait_until("more was asked", || asked.load(Ordering::Relaxed) > seen + 20);
        }
        drop(end);
    });
}

#[test]
fn a_file_in_a_swapped_directory_is_read() {
    let upstream = Upstream::ok();
    let scratch = Scratch::new();
    let at = scratch.path().to_owned();
    let write = |version: &str, burst| {
        let text = with_burst(&upstream, burst).text();
        std::fs::create_dir_all(at.join(version)).unwrap();
        std::fs::write(at.join(version).join("c.toml"), text).unwrap();
    };
    let swap = |version: &str| {
        std::os::unix::fs::symlink(version, at.join("fresh")).unwrap();
        std::fs::rename(at.join("fresh"), at.join("current")).unwrap();
    };
    write("v1", 100);
    swap("v1");
    let weir = Weir::start_from(scratch, at.join("current/c.toml"));
    assert_eq!(limit_in_force(&weir), "100");
    for (version, burst) in [("v2", 101), ("v3", 103)] {
        write(version, burst);
        swap(version);
        wait_until("the swap is in force", || limit_in_force(&weir) == burst.to_string());
        write(version, burst + 1);
        wait_until("the edit is in force", || limit_in_force(&weir) == (burst + 1).to_string());
    }
}

#[test]
fn new_bounds_apply_to_the_next_request_of_an_open_connection() {
    let upstream = Upstream::ok();
    let config = |server: &str| Config::to(&upstream).open().server(server);
    let large = post("/", &"x".repeat(100));
    let stuck = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhel";
    // Each bound, what goes beyond it, and what that comes to.
    let rows =
        [("max_body = \"10B\"", large.as_str(), 413), ("request_timeout = \"300ms\"", stuck, 408)];
    for (bound, request, status) in rows {
        let weir = Weir::start(&config(""));
        let mut client = weir.connect();
        assert_eq!(client.ask(&large).status, 200);
        weir.reload(&config(bound));
        assert_eq!(client.ask(request).status, status, "{bound}");
    }
    let weir = Weir::start(&config("max_body = \"10B\""));
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/")).status, 200);
    weir.reload(&config(""));
    assert_eq!(client.ask(&large).status, 200, "a wider bound holds as well");
}

#[test]
fn new_head_bounds_apply_to_the_next_request_of_an_open_connection() {
    let upstream = Upstream::ok();
    let config = |server: &str| Config::to(&upstream).open().server(server);
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let rows = [
        ("max_header_bytes = \"8KiB\"", large.as_str(), 431),
        ("header_timeout = \"300ms\"", "GET / HT", 408),
    ];
    for (bound, request, status) in rows {
        let weir = Weir::start(&config("header_timeout = \"60s\""));
        let mut client = weir.connect();
        assert_eq!(client.ask(&large).status, 200);
        weir.reload(&config(&format!("idle_timeout = \"60s\"\n{bound}")));
        assert_eq!(client.ask(request).status, status, "{bound}");
    }
}

#[test]
fn files_that_the_configuration_names_are_watched() {
    let upstream = Upstream::ok();
    let scratch = Scratch::new();
    // SHA-256 of `0123456789abcdef`.
    let hash = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
    let client = format!("[[clients]]\nid = \"a\"\nkey_hash = \"{hash}\"\n");
    let clients = scratch.file("clients.toml", "");
    let denied = scratch.file("deny.txt", "");
    let limit = "key = \"client\"\nrate = \"1000/second\"\nmissing = \"deny\"";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(&format!(
        "[identity]\nclient = \"header:x-api-key\"\nclients_file = {clients:?}\n\
         [access]\ndeny = {{ files = [{denied:?}] }}\n"
    )));
    let status = || weir.ask(get_with("/", "X-Api-Key: 0123456789abcdef\r\n")).status;
    assert_eq!(status(), 401);
    std::fs::write(&clients, &client).unwrap();
    wait_until("the client is known", || status() == 200);
    // A file with faults changes nothing, and does not stand in the way of a good one.
    std::fs::write(&clients, "[[clients]]\nid = 5\n").unwrap();
    wait_until("it is complained about", || {
        weir.output().contains("clients.toml:2:6: `id` must be")
    });
    assert_eq!(status(), 200);
    std::fs::write(&clients, client.replace("\"a\"", "\"b\"")).unwrap();
    std::fs::write(&denied, "client:b\n").unwrap();
    wait_until("the client is denied", || status() == 403);
}

/// The value of `weir_config_last_reload_successful`.
fn last_reload(weir: &Weir) -> f64 {
    weir.metrics().value("weir_config_last_reload_successful", &[]).expect("the gauge")
}

#[test]
fn gauge_shows_whether_the_file_is_the_one_served() {
    let upstream = Upstream::ok();
    let good = with_burst(&upstream, 100).text();
    let weir = Weir::start(&with_burst(&upstream, 100));
    assert_eq!(last_reload(&weir), 1.0);
    let (bad, worse) = (good.replace("burst", "brust"), good.replace("1/hour", "1/eon"));
    let fails = |text: &str| {
        let failed = weir.reloads("failed");
        weir.replace_file(text);
        wait_until("the failure is counted", || weir.reloads("failed") > failed);
        assert_eq!(last_reload(&weir), 0.0);
    };
    fails(&bad);
    fails(&worse);
    // Put back as it was: nothing is reloaded, and all is well.
    let ok = weir.reloads("ok");
    weir.replace_file(&good);
    wait_until("all is well", || last_reload(&weir) == 1.0);
    wait_until("the log says so", || {
        weir.output().contains("the configuration is again the one that is served")
    });
    assert_eq!(weir.reloads("ok"), ok);
    // The same fault again is another failure.
    fails(&worse);
    weir.reload(&with_burst(&upstream, 101));
    assert_eq!(last_reload(&weir), 1.0);
    // So is a file that is not there, or a log that cannot be opened.
    std::fs::remove_file(weir.file()).unwrap();
    wait_until("it is missed", || last_reload(&weir) == 0.0);
    weir.reload(&with_burst(&upstream, 102));
    assert_eq!(last_reload(&weir), 1.0);
    fails(&with_burst(&upstream, 103).also("[telemetry]\naccess_log = \"/dev/full/a.log\"").text());
    weir.signal(Signal::HUP);
    weir.replace_file(&with_burst(&upstream, 102).text());
    wait_until("all is well", || last_reload(&weir) == 1.0);
}

#[test]
fn invalid_included_file_is_a_failed_reload() {
    let scratch = Scratch::new();
    let clients = scratch.file("clients.toml", "");
    let keyed = format!("[identity]\nclient = \"header:x-api-key\"\nclients_file = {clients:?}\n");
    let config = Config::echo().open().also(&keyed);
    let weir = Weir::start(&config);
    std::fs::write(&clients, "[[clients]]\nid = 5\n").unwrap();
    wait_until("it is refused", || last_reload(&weir) == 0.0);
    // The file that names it has no fault, and is as it was; that alone is not enough.
    weir.replace_file(&config.text());
    let failed = weir.reloads("failed");
    weir.replace_file(&config.text().replace("echo", "ecko"));
    wait_until("this one is refused as well", || weir.reloads("failed") > failed);
    weir.replace_file(&config.text());
    // Long enough for the change to be noticed: there is no condition to wait for.
    check_for(Duration::from_millis(300), || assert_eq!(last_reload(&weir), 0.0));
    std::fs::write(&clients, "").unwrap();
    wait_until("all is well", || last_reload(&weir) == 1.0);
}

#[test]
fn what_takes_a_restart_is_named_for_as_long_as_file_and_process_differ() {
    let upstream = Upstream::ok();
    let config = |keys: &str| Config::to(&upstream).server(keys);
    let weir = Weir::start(&config("workers = 1"));
    let warnings = || weir.output().matches("server.workers has changed; that takes").count();
    weir.reload(&config("workers = 2"));
    assert_eq!(warnings(), 1);
    weir.reload(&config("workers = 2\ndrain = \"7s\""));
    assert_eq!(warnings(), 2, "another key has changed, and one worker still runs");
    weir.reload(&config("workers = 1\ndrain = \"7s\""));
    assert_eq!(warnings(), 2, "the file says again what runs");
}
