//! The admin listener, its metrics, and the access log.

use std::collections::BTreeSet;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::client::Client;
use crate::support::gateway::TOKEN;
use crate::support::upstream::ok;
use crate::support::{
    After, Config, PATIENCE, Upstream, Weir, get, get_with, post, wait_at_most, wait_until,
    wait_until_steady,
};

#[test]
fn health_and_metrics_are_on_the_admin_port() {
    let weir = Weir::start(&Config::echo());
    for target in ["/healthz", "/readyz"] {
        assert_eq!(weir.admin(target).status, 200, "{target}");
    }
    let metrics = weir.admin("/metrics");
    assert!(metrics.one("content-type").starts_with("text/plain"), "{metrics:?}");
    assert_eq!(weir.admin("/nothing").status, 404);
}

#[test]
fn data_port_serves_no_admin_endpoint() {
    let upstream = Upstream::ok();
    let routes = "[[routes]]\nname = \"a\"\npath = \"/a\"\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).open().routes(routes));
    for target in
        ["/metrics", "/healthz", "/readyz", "/v1/limits", "/v1/reload", "/v1/explain", "/"]
    {
        for method in ["GET", "POST", "DELETE"] {
            let response = weir.ask(get(target).replace("GET", method));
            assert_eq!(
                (response.status, response.error()),
                (404, "no_route".into()),
                "{method} {target}"
            );
        }
    }
    let open = Weir::start(&Config::to(&upstream).open());
    for target in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(open.get(target).text(), "ok", "{target} is upstream's");
    }
}

#[test]
fn silent_admin_connection_is_closed() {
    let weir = Weir::start(&Config::echo());
    for beginning in ["", "G", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut silent = Client::connect(weir.admin_address());
        silent.send(beginning);
        // A response, such as 400, may come first; the connection still has to end.
        let mut rest = Vec::new();
        silent.wire.stream().set_read_timeout(Some(PATIENCE)).unwrap();
        let ended = std::io::Read::read_to_end(&mut silent.wire.stream(), &mut rest);
        assert!(ended.is_ok(), "{beginning:?}: {ended:?}");
    }
}

#[test]
fn requests_and_decisions_are_counted() {
    let upstream = Upstream::replying(|request| match request.target.as_str() {
        "/missing" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("ok"),
    });
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 3";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    for target in ["/", "/missing", "/", "/", "/"] {
        weir.get(target);
    }
    let counted = |status: &str| {
        let labels = [("route", "all"), ("status", status)];
        weir.metrics().value("weir_requests_total", &labels).unwrap_or(0.0)
    };
    // The last answer may be read before it is counted.
    wait_until("all five are counted", || counted("200") + counted("404") + counted("429") == 5.0);
    assert_eq!([counted("200"), counted("404"), counted("429")], [2.0, 1.0, 2.0]);
    let metrics = weir.metrics();
    let decided: Vec<_> =
        metrics.series().into_iter().filter(|it| it.starts_with("weir_decisions_total")).collect();
    assert!(decided.iter().any(|it| it.contains("limit=\"per-ip\"")), "{decided:?}");
    assert_eq!(metrics.value("weir_decisions_total", &[("limit", "per-ip")]), Some(5.0));
    for name in
        ["weir_decision_seconds_count", "weir_request_seconds_count", "weir_upstream_seconds_count"]
    {
        assert!(metrics.value(name, &[]).is_some_and(|it| it > 0.0), "{name}");
    }
    assert_eq!(metrics.value("weir_upstream_seconds_count", &[("upstream", "api")]), Some(3.0));
    assert_eq!(metrics.value("weir_buckets", &[]), Some(1.0));
}

#[test]
fn no_caller_can_create_a_metric_series() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-user\"\nrate = \"1/hour\"\nburst = 1";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = weir.connect();
    let mut round = |n: usize| {
        let lines =
            format!("X-User: user-{n}\r\nX-Forwarded-For: 1.1.{}.{}\r\n", n / 256 % 256, n % 256);
        let method = format!("M{n}");
        client.ask(get_with(&format!("/path-{n}?q={n}"), &lines).replace("GET", &method));
        client.ask(get_with(&format!("/path-{n}"), &lines));
    };
    round(0);
    let names = |weir: &Weir| -> BTreeSet<String> {
        weir.metrics().series().into_iter().map(str::to_owned).collect()
    };
    wait_until("both are counted", || names(&weir).iter().any(|it| it.contains("status=\"429\"")));
    let before = names(&weir);
    (1..1500).for_each(&mut round);
    let after = names(&weir);
    assert_eq!(before, after);
    assert!(!after.iter().any(|it| it.contains("user-") || it.contains("path-")));
}

#[test]
fn metrics_show_build_and_gateway_name() {
    let weir = Weir::start(&Config::echo().open());
    let echoed = weir.get("/").json();
    let via = echoed["headers"]["via"].as_str().unwrap().to_owned();
    let node = via.strip_prefix("1.1 ").unwrap();
    assert!(node.starts_with("weir-") && node.len() == 13, "{node}");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("node", node)];
    let metrics = weir.metrics();
    assert_eq!(metrics.value("weir_build_info", &labels), Some(1.0));
    assert_eq!(metrics.value("weir_build_info", &[]), Some(1.0), "once");
}

fn log_lines(weir: &Weir) -> Vec<Value> {
    let text = std::fs::read_to_string(weir.directory().join("access.log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse =
        |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
    whole.lines().map(parse).collect()
}

#[test]
fn every_store_error_reason_is_exported_from_the_start() {
    let weir = Weir::start(&Config::echo());
    let metrics = weir.metrics();
    let reasons = "timeout connection loading readonly busy oom cluster script reply denied other";
    for reason in reasons.split(' ') {
        let labels = [("reason", reason)];
        assert_eq!(metrics.value("weir_store_errors_total", &labels), Some(0.0), "{reason}");
    }
    for name in ["weir_store_calls_total", "weir_store_nodes", "weir_store_degraded"] {
        assert_eq!(metrics.value(name, &[]), Some(0.0), "{name}");
    }
}

#[test]
fn the_access_log_has_one_json_line_a_request() {
    let upstream = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 2";
    let log = "[telemetry]\naccess_log = \"access.log\"";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(log));
    weir.get("/a?b=c");
    weir.ask(post("/p", "hello"));
    weir.get("/refused");
    weir.ask(get_with("/x\"y\\z%0a%0d", "User-Agent: \"quoted\" \\ \u{e9}\r\n"));
    wait_until("all are written", || log_lines(&weir).len() == 4);
    let lines = log_lines(&weir);
    let ids: BTreeSet<_> =
        lines.iter().map(|it| it["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 4, "each has its own id");
    let row = |n: usize| {
        let line = &lines[n];
        (
            line["method"].as_str().unwrap(),
            line["path"].as_str().unwrap().to_owned(),
            line["status"].as_u64().unwrap(),
        )
    };
    let (method, path, status) = row(0);
    assert_eq!((method, status), ("GET", 200));
    assert!(path.starts_with("/a"), "{path}");
    assert_eq!(row(1), ("POST", "/p".to_owned(), 200));
    assert_eq!(row(2), ("GET", "/refused".to_owned(), 429));
    for line in &lines[..3] {
        assert_eq!(line["route"], "all");
        let time = line["time"].as_f64().expect("seconds since 1970");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 60.0..=now).contains(&time), "{time} at {now}");
    }
}

#[test]
fn access_log_is_off_by_default() {
    let weir = Weir::start(&Config::echo());
    weir.get("/not-to-be-logged");
    weir.metrics();
    assert!(!weir.output().contains("not-to-be-logged"), "{}", weir.output());
}

#[test]
fn a_request_that_cannot_be_read_is_counted_and_logged() {
    let log = "[telemetry]\naccess_log = \"access.log\"";
    let weir = Weir::start(&Config::echo().open().also(log));
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(40_000));
    let rows = [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (&endless, 431),
    ];
    for (n, (request, status)) in rows.into_iter().enumerate() {
        let labels = [("route", "(none)"), ("status", &*status.to_string())];
        let counted = || weir.metrics().value("weir_requests_total", &labels).unwrap_or(0.0);
        let before = counted();
        let response = weir.ask(request);
        assert_eq!(response.status, status, "{}", &request[..20.min(request.len())]);
        wait_until("it is counted", || counted() == before + 1.0);
        wait_until("it is logged", || log_lines(&weir).len() == n + 1);
        assert_eq!(log_lines(&weir)[n]["status"], status);
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_is_counted_and_logged() {
    let upstream = Upstream::scripted(|exchange| {
        // Nothing is answered; the read ends when the gateway lets go.
        while exchange.wire.fill().is_ok() {}
        After::Close
    });
    let log = "[telemetry]\naccess_log = \"access.log\"";
    let weir = Weir::start(&Config::to(&upstream).open().also(log));
    let labels = [("route", "all"), ("status", "499")];
    for round in 1..=3 {
        let mut client = weir.connect();
        client.send(get("/left"));
        wait_until("it is in flight", || upstream.heads() == round);
        client.wire.reset();
        let counted = || weir.metrics().value("weir_requests_total", &labels);
        wait_until("it is counted", || counted() == Some(round as f64));
        wait_until("it is logged", || log_lines(&weir).len() == round);
        let line = &log_lines(&weir)[round - 1];
        assert_eq!((&line["path"], &line["status"]), (&Value::from("/left"), &Value::from(499)));
    }
}

#[test]
fn access_log_is_reopened_after_rename_and_signal() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.request.target == "/held" {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
        exchange.reply(ok("ok"));
        After::Keep
    });
    let log = "[telemetry]\naccess_log = \"access.log\"";
    let weir = Weir::start(&Config::to(&upstream).open().also(log));
    let hang_up = || {
        let before = weir.reloads("ok");
        weir.signal(Signal::HUP);
        wait_until("it has reloaded", || weir.reloads("ok") > before);
    };
    let last = || log_lines(&weir).pop().map(|line| line["path"].as_str().unwrap().to_owned());
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it is in flight", || upstream.heads() == 1);
    hang_up();
    go.send(()).unwrap();
    assert_eq!(client.response().status, 200);
    wait_until("it is logged", || last().as_deref() == Some("/held"));
    let file = weir.directory().join("access.log");
    for n in 0..2 {
        let heads = upstream.heads();
        client.send(get("/held"));
        wait_until("it is in flight", || upstream.heads() > heads);
        let away = file.with_extension(n.to_string());
        std::fs::rename(&file, &away).unwrap();
        hang_up();
        let new = format!("/new-{n}");
        assert_eq!(weir.get(&new).status, 200);
        wait_until("there is a new file", || last().as_ref() == Some(&new));
        go.send(()).unwrap();
        assert_eq!(client.response().status, 200);
        wait_until("what was in flight is in it", || last().as_deref() == Some("/held"));
        assert!(!std::fs::read_to_string(away).unwrap().contains(&new));
    }
}

#[test]
fn questions_with_a_missing_body_are_answered_and_hold_up_no_health_check() {
    const REMOVAL: &str = "DELETE /v1/access/deny/ip/192.0.2.1";
    let weir = Weir::start(&Config::echo().operated());
    let ask = |line: &str, token: &str| {
        let mut client = Client::connect(weir.admin_address());
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n");
        client.send(format!("{head}{token}\r\n"));
        client
    };
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let mut open = Vec::new();
    for _ in 0..40 {
        for (line, status) in [("GET /v1/overrides", 200), (REMOVAL, 404)] {
            let mut client = ask(line, &token);
            assert_eq!(client.response().status, status, "{line}");
            open.push(client);
        }
    }
    // A change cannot be made before it is known.
    open.extend((0..40).map(|_| ask("PUT /v1/access/deny/ip/192.0.2.1", &token)));
    for target in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(weir.admin(target).status, 200, "{target}");
    }
}

#[test]
fn scrapers_that_do_not_read_are_let_go() {
    // What a scraper that does not read is allowed, and time to notice that it is over.
    const ALLOWED: Duration = Duration::from_secs(45);
    let weir = Weir::start(&Config::echo());
    let before = weir.open_files();
    let pipelined = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    let scrapers: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Client::connect(weir.admin_address());
            socket2::SockRef::from(client.wire.stream()).set_recv_buffer_size(4096).unwrap();
            client.send(&pipelined);
            client
        })
        .collect();
    wait_until("they are connected", || weir.open_files() >= before + scrapers.len());
    wait_at_most(ALLOWED, "they are let go", || weir.open_files() < before + 5);
    drop(scrapers);
    assert_eq!(weir.admin("/healthz").status, 200);
}

#[test]
fn admin_connections_are_bounded() {
    let weir = Weir::start(&Config::echo());
    let before = weir.open_files();
    let held: Vec<_> = (0..600).map(|_| Client::connect(weir.admin_address())).collect();
    let most = wait_until_steady("it takes no more", || weir.open_files());
    assert!(most - before <= 300, "{most} open files for {} connections", held.len());
    drop(held);
    wait_until("it serves again", || weir.admin("/healthz").status == 200);
}
