//! Servers that come and go with reloads, and when their failures are logged.

use std::time::Duration;

use super::*;
use crate::config::parse;

fn upstream(keys: &str) -> settings::Upstream {
    let text = format!(
        "[upstreams.api]\nservers = [\"http://127.0.0.1:9\"]\n{keys}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\""
    );
    parse("test", &text).unwrap().settings.upstreams.remove(0)
}

#[test]
fn a_probe_that_ends_after_it_was_called_off_changes_nothing() {
    let (probed, unprobed) = (upstream("health = { path = \"/\" }"), upstream(""));
    let metrics = Metrics::new();
    let shared = SharedUpstreams::new(&metrics);
    let server = shared.server(&probed, &probed.servers[0].origin);
    let first = server.begin_probing(&metrics);
    assert!(server.set_healthy(first, false) && !server.is_healthy());
    shared.configure(&[unprobed]);
    assert!(server.is_healthy(), "nobody probes it");
    assert!(!server.set_healthy(first, false) && server.is_healthy());
    let second = server.begin_probing(&metrics);
    assert!(!server.set_healthy(first, false) && server.is_healthy());
    assert!(server.set_healthy(second, false) && !server.is_healthy());
}

#[test]
fn a_server_that_comes_back_is_the_same_while_it_is_in_use() {
    let upstream = upstream("max_connections = 1");
    let origin = &upstream.servers[0].origin;
    let shared = SharedUpstreams::default();
    let used = shared.server(&upstream, origin);
    shared.configure(&[]);
    shared.configure(std::slice::from_ref(&upstream));
    assert!(Arc::ptr_eq(&used, &shared.server(&upstream, origin)));
    drop(used);
    shared.configure(&[]);
    assert!(shared.servers.lock().is_empty());
}

#[test]
fn a_server_that_is_left_out_again_soon_is_logged_when_its_trial_has_failed() {
    let upstream = upstream("ejection = { failures = 1, time = \"2s\", max_time = \"2s\" }");
    let server = SharedServer::alone(&upstream, &upstream.servers[0].origin);
    let (start, settings) = (Instant::now(), &upstream.ejection);
    let client = IpAddr::from([192, 0, 2, 1]);
    let fail = |millis| {
        let at = start + Duration::from_millis(millis);
        server.ejection.note_attempt(at, client, settings);
        server.note_failed(at, client, settings, || true);
        server.ejection.is_logged()
    };
    assert!(fail(0));
    server.ejection.note_answered(IpAddr::from([192, 0, 2, 1]));
    assert!(!fail(100), "too soon");
    assert!(server.ejection.is_out());
    assert!(!fail(1500), "it was no trial");
    assert!(!fail(2100), "for one client once a minute");
    assert!(fail(60_001));
    server.ejection.note_answered(IpAddr::from([192, 0, 2, 1]));
    assert!(!server.ejection.is_logged(), "and it is logged that it is back");
}

#[test]
fn the_log_says_when_a_server_is_no_longer_left_out_for_a_few_only() {
    let upstream = upstream("ejection = { failures = 1, time = \"2s\", max_time = \"2s\" }");
    let server = SharedServer::alone(&upstream, &upstream.servers[0].origin);
    let (start, settings) = (Instant::now(), &upstream.ejection);
    let fails = |last| {
        server.note_failed(start, IpAddr::from([192, 0, 2, last]), settings, || true);
        server.ejection.is_logged_for_few()
    };
    assert_eq!([1, 1, 2, 3, 4].map(fails), [true, true, true, true, false]);
    server.ejection.note_answered(IpAddr::from([192, 0, 2, 1]));
    assert!(!fails(1), "it is left out again too soon to be logged");
    let server = SharedServer::alone(&upstream, &upstream.servers[0].origin);
    server.note_failed(start, IpAddr::from([192, 0, 2, 1]), settings, || true);
    assert!(server.ejection.is_logged_for_few());
    server.note_unreachable(settings, true, &ConnectError::TimedOut);
    assert!(!server.ejection.is_logged_for_few(), "it is for everybody now");
}
