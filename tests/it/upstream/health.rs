//! Servers are probed, and those that are not well get no requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Config, Upstream, Weir, get, wait_until};

/// A server that answers probes as it is told, and everything else with its number.
fn server(number: usize) -> (Upstream, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let told = status.clone();
    let upstream = Upstream::replying(move |request| {
        let (status, text) = match request.target.as_str() {
            "/healthz?deep=1" => (told.load(Ordering::SeqCst), String::new()),
            _ => (200, number.to_string()),
        };
        let length = text.len();
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{text}").into_bytes()
    });
    (upstream, status)
}

const HEALTH: &str = "path = \"/healthz?deep=1\", interval = \"300ms\", timeout = \"300ms\"";

fn config(servers: &[&Upstream], health: &str) -> Config {
    let addresses: Vec<_> = servers.iter().map(|it| it.address()).collect();
    let lines = format!("balance = \"round_robin\"\nhealth = {{ {HEALTH}, {health} }}");
    Config::to_servers(&addresses).open().upstream(&lines)
}

fn healthy(weir: &Weir, server: &Upstream) -> f64 {
    let server = server.address().to_string();
    let labels = [("upstream", "api"), ("server", server.as_str())];
    // The probes begin a moment after the gateway answers.
    let mut shown = None;
    wait_until("a probed server is shown", || {
        shown = weir.metrics().value("weir_upstream_healthy", &labels);
        shown.is_some()
    });
    shown.unwrap_or_default()
}

/// Requests that were no probes.
fn served(server: &Upstream) -> usize {
    server.requests().iter().filter(|it| it.target == "/").count()
}

fn said(weir: &Weir, text: &str) -> usize {
    weir.output().matches(text).count()
}

#[test]
fn an_unhealthy_server_gets_no_requests_until_it_is_healthy_again() {
    let ((bad, status), (good, _)) = (server(0), server(1));
    let weir = Weir::start(&config(&[&bad, &good], "healthy = 3, unhealthy = 2"));
    let mut client = weir.connect();
    wait_until("both are used", || {
        client.ask(get("/"));
        served(&bad) > 0 && served(&good) > 0
    });
    wait_until("it is probed", || bad.heads() > served(&bad));
    let probe = bad.requests().into_iter().find(|it| it.target != "/").unwrap();
    assert_eq!((probe.method.as_str(), probe.one("host")), ("GET", &*bad.address().to_string()));

    status.store(503, Ordering::SeqCst);
    wait_until("it is unhealthy", || healthy(&weir, &bad) == 0.0);
    assert_eq!(healthy(&weir, &good), 1.0);
    let before = served(&bad);
    (0..20).for_each(|_| assert_eq!(client.ask(get("/")).text(), "1"));
    assert_eq!(served(&bad), before);

    // What is known of it outlives a reload.
    weir.reload(&config(&[&bad, &good], "healthy = 3, unhealthy = 2").server("drain = \"2s\""));
    (0..20).for_each(|_| assert_eq!(client.ask(get("/")).text(), "1"));

    status.store(204, Ordering::SeqCst);
    wait_until("it is healthy", || healthy(&weir, &bad) == 1.0);
    wait_until("it is used", || client.ask(get("/")).text() == "0");
    assert_eq!(
        (said(&weir, "is unhealthy: answered with 503"), said(&weir, "is healthy again")),
        (1, 1)
    );
}

#[test]
fn a_server_that_is_taken_out_and_put_back_is_probed_as_before() {
    let ((bad, status), (good, _)) = (server(0), server(1));
    let both = config(&[&bad, &good], "unhealthy = 1");
    let weir = Weir::start(&both);
    let mut client = weir.connect();
    wait_until("both are used", || {
        client.ask(get("/"));
        served(&bad) > 0 && served(&good) > 0
    });
    weir.reload(&config(&[&good], "unhealthy = 1"));
    weir.reload(&both);
    status.store(503, Ordering::SeqCst);
    wait_until("it is unhealthy", || healthy(&weir, &bad) == 0.0);
    (0..20).for_each(|_| assert_eq!(client.ask(get("/")).text(), "1"));
    assert_eq!(
        weir.metrics().value("weir_upstream_ejections_total", &[("upstream", "api")]),
        Some(0.0),
        "its series are back"
    );
}

#[test]
fn all_servers_are_used_while_none_is_healthy() {
    let ((one, status), (other, second)) = (server(0), server(1));
    let weir = Weir::start(&config(&[&one, &other], "status = [200, \"300-399\"], unhealthy = 1"));
    status.store(204, Ordering::SeqCst);
    second.store(204, Ordering::SeqCst);
    wait_until("both are unhealthy", || healthy(&weir, &one) + healthy(&weir, &other) == 0.0);
    let mut client = weir.connect();
    let texts: Vec<_> = (0..10).map(|_| client.ask(get("/")).text()).collect();
    assert!(texts.iter().any(|it| it == "0") && texts.iter().any(|it| it == "1"), "{texts:?}");
    assert_eq!(said(&weir, "no server of upstream `api` is healthy"), 1);
    second.store(302, Ordering::SeqCst);
    wait_until("one is healthy", || healthy(&weir, &other) == 1.0);
    (0..10).for_each(|_| assert_eq!(client.ask(get("/")).text(), "1"));
}

#[test]
fn probes_are_sent_once_a_process_and_not_once_a_worker() {
    let (one, _) = server(0);
    let lines =
        "health = { path = \"/healthz?deep=1\", interval = \"200ms\", timeout = \"200ms\" }";
    let config = Config::to(&one).open().server("workers = 4").upstream(lines);
    let weir = Weir::start(&config);
    wait_until("it was probed", || one.heads() >= 1);
    let (start, before) = (Instant::now(), one.heads());
    wait_until("it was probed four times more", || one.heads() >= before + 4);
    // The first of these may come at once; then there are three intervals, each at least nine tenths
    // as long as configured.
    assert!(start.elapsed() >= Duration::from_millis(3 * 180), "{:?}", start.elapsed());

    // Without health there is nothing to tell, and nobody asks.
    weir.reload(&Config::to(&one).open());
    assert_eq!(weir.metrics().value("weir_upstream_healthy", &[]), None);
}

#[test]
fn a_server_that_does_not_answer_probes_is_unhealthy() {
    let (hangs, (good, _)) = (Upstream::silent(), server(1));
    let weir = Weir::start(&config(&[&hangs, &good], "unhealthy = 2"));
    wait_until("it is unhealthy", || healthy(&weir, &hangs) == 0.0);
    let mut client = weir.connect();
    (0..10).for_each(|_| assert_eq!(client.ask(get("/")).text(), "1"));
    assert_eq!(said(&weir, "is unhealthy: no answer in time"), 1);
}

#[test]
fn operators_are_told_what_is_known_of_servers() {
    let ((bad, status), (good, _)) = (server(0), server(1));
    let config = config(&[&bad, &good], "unhealthy = 1").upstream("breaker = {}");
    let weir = Weir::start(&config);
    status.store(500, Ordering::SeqCst);
    wait_until("it is unhealthy", || healthy(&weir, &bad) == 0.0);
    let told = weir.admin("/v1/upstreams").json();
    let upstream = &told["upstreams"][0];
    assert_eq!((&upstream["name"], &upstream["breaker"]), (&"api".into(), &"closed".into()));
    let expected = |server: &Upstream, healthy: bool| {
        let server = server.address().to_string();
        serde_json::json!({"server": server, "weight": 1, "healthy": healthy, "ejected": false, "pending": 0})
    };
    assert_eq!(upstream["servers"][0], expected(&bad, false));
    assert_eq!(upstream["servers"][1], expected(&good, true));
    assert_eq!(
        weir.ask_admin("DELETE /v1/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
        401
    );
}
