use std::path::PathBuf;

use futures_util::FutureExt as _;

use super::*;
use crate::config::settings::{AuditTargets, LogTarget};
use crate::store::redis::connect::failure::Reason;
use crate::telemetry::OpenedTargets;

/// A breaker for two workers.
fn breaker(audit: AuditLog) -> Breaker {
    Breaker::new(2, "redis at here".to_owned(), OnError::Deny, Metrics::new(), audit)
}

fn quiet() -> Breaker {
    breaker(AuditLog::nowhere(&Metrics::new()))
}

/// What was recorded while something was done.
fn recorded(name: &str, act: impl FnOnce(&Breaker)) -> Vec<serde_json::Value> {
    let name = format!("weir-health-{name}-{}", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let lines = vec![LogTarget::File(path.clone())];
    let opened = OpenedTargets::open(&AuditTargets { lines, ..AuditTargets::default() });
    let OpenedTargets { lines, guards } = opened.expect("a file");
    let audit = AuditLog::nowhere(&Metrics::new());
    audit.redirect(lines);
    act(&breaker(audit));
    drop(guards);
    let text = std::fs::read_to_string(&path).expect("what was written");
    std::fs::remove_file(path).expect("the file goes");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn gone(what: &str) -> Failure {
    Failure::new(Reason::Connection, what)
}

#[test]
fn the_log_promises_no_on_error_that_a_limit_may_have_changed() {
    let breaker = Breaker::new(
        2,
        "redis at here".to_owned(),
        OnError::Local,
        Metrics::new(),
        AuditLog::nowhere(&Metrics::new()),
    );
    let lines = crate::test_log::logged(|| {
        breaker.trip(&gone("gone"));
    });
    assert_eq!(
        lines,
        [
            "ERROR store degraded: redis at here: gone; limits are served by on_error (local, unless a \
          limit says otherwise) until it is back"
        ]
    );
}

#[test]
fn an_outage_is_logged_once_and_so_is_its_end() {
    let events = recorded("once", |breaker| {
        breaker.trip(&gone("first"));
        breaker.trip(&gone("second"));
        assert_eq!(breaker.metrics.store_degraded.get(), 1);
        let trips = *breaker.trips().borrow();
        assert!(breaker.half_close(trips) && breaker.close(trips));
        assert_eq!(breaker.metrics.store_degraded.get(), 0);
        assert!(breaker.close(trips), "it is closed already");
        breaker.trip(&gone("third"));
    });
    let names: Vec<_> = events.iter().map(|it| it["event"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["store_degraded", "store_recovered", "store_degraded"]);
    assert_eq!(events[0]["detail"], "redis at here: first");
    assert_eq!(
        (&events[0]["reason"], &events[0]["on_error"]),
        (&"connection".into(), &"deny".into())
    );
    assert_eq!(events[2]["detail"], "redis at here: third");
}

#[test]
fn an_outage_is_known_by_its_latest_reason() {
    let breaker = quiet();
    assert_eq!(breaker.reason(), None);
    breaker.trip(&gone("gone"));
    assert_eq!(breaker.reason(), Some("connection"));
    breaker.trip(&Failure::new(Reason::Denied, "WRONGPASS"));
    assert_eq!(breaker.reason(), Some("denied"));
    let trips = *breaker.trips().borrow();
    assert!(breaker.half_close(trips) && breaker.close(trips));
    assert_eq!(breaker.reason(), None);
}

#[test]
fn a_first_contact_that_succeeds_is_no_recovery() {
    let events = recorded("contact", |breaker| {
        assert!(breaker.is_open());
        assert!(breaker.half_close(0) && breaker.close(0));
        assert!(!breaker.is_open());
    });
    assert_eq!(events, [serde_json::Value::Null; 0]);
}

#[test]
fn it_opens_anew_only_after_it_was_closed() {
    let breaker = quiet();
    let mut trips = breaker.trips();
    breaker.trip(&gone("no first contact"));
    assert_eq!(*trips.borrow_and_update(), 1);
    breaker.trip(&gone("still none"));
    assert!(!trips.has_changed().expect("a sender"));
    assert!(breaker.half_close(1));
    breaker.trip(&gone("gone again before it was closed"));
    assert_eq!(*trips.borrow_and_update(), 2);
    assert!(breaker.is_open());
}

#[test]
fn connections_to_another_redis_do_not_count() {
    let breaker = quiet();
    breaker.trip(&gone("gone"));
    breaker.link_is_up(0, 1);
    breaker.link_is_up(1, 1);
    breaker.distrust(&gone("another one took its place"));
    assert!(!breaker.half_close(1), "they lead to the old one");
    assert!(!breaker.all_links_are_up(2) && breaker.is_open());
}

#[test]
fn it_does_not_close_if_it_has_opened_since() {
    let breaker = quiet();
    assert!(breaker.half_close(0));
    breaker.trip(&gone("gone"));
    assert!(!breaker.close(0));
    assert!(!breaker.half_close(0));
    assert!(breaker.is_open());
    assert_eq!(breaker.metrics.store_degraded.get(), 1);
    assert!(breaker.half_close(1) && breaker.close(1));
    assert!(!breaker.is_open());
}

#[test]
fn calls_go_out_once_it_is_closed_and_not_before() {
    let breaker = quiet();
    let may_go = || breaker.closed().now_or_never().is_some();
    assert!(!may_go());
    assert!(breaker.half_close(0));
    assert!(!may_go(), "debts are being paid");
    assert!(breaker.close(0));
    assert!(may_go());
    breaker.trip(&gone("gone"));
    assert!(breaker.half_close(1));
    assert!(!may_go(), "debts are being paid again");
}

#[test]
fn every_worker_needs_a_connection_from_after_the_last_trip() {
    let breaker = quiet();
    assert!(!breaker.all_links_are_up(0));
    breaker.link_is_up(0, 0);
    assert!(!breaker.all_links_are_up(0));
    breaker.link_is_up(1, 0);
    assert!(breaker.all_links_are_up(0));
    assert!(!breaker.all_links_are_up(1), "they are from before");
    breaker.link_is_up(0, 1);
    assert!(!breaker.all_links_are_up(1));
    breaker.link_is_up(1, 1);
    assert!(breaker.all_links_are_up(1));
    breaker.link_is_down(0);
    assert!(!breaker.all_links_are_up(1));
}

#[test]
fn failures_are_counted_by_their_reason() {
    let breaker = quiet();
    breaker.count(&gone("gone"));
    breaker.count(&Failure::timeout());
    breaker.count(&Failure::timeout());
    let count = |label| breaker.metrics.store_errors.with_label_values(&[label]).get();
    assert_eq!((count("connection"), count("timeout"), count("other")), (1, 2, 0));
    assert!(breaker.is_open() && *breaker.trips().borrow() == 0, "counting opens nothing");
}

fn slow() -> Failure {
    Failure::timeout()
}

fn reclose(breaker: &Breaker) {
    let trips = *breaker.trips().borrow();
    assert!(breaker.half_close(trips) && breaker.close(trips));
}

#[test]
fn a_redis_that_is_too_slow_from_the_start_is_an_outage_logged_once() {
    let [answer, timeout] = [31, 20].map(Duration::from_millis);
    let events = recorded("too-slow", |breaker| {
        for _ in 0..3 {
            breaker.too_slow(&Failure::too_slow(answer, timeout));
        }
        assert_eq!(breaker.reason(), Some("timeout"));
        assert_eq!(*breaker.trips().borrow(), 1);
    });
    assert_eq!(events.len(), 1, "{events:?}");
    let detail = events[0]["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("redis at here: answers take 31 ms, more than"), "{detail}");
}

#[test]
fn a_relapse_is_logged_with_what_the_probes_before_it_took() {
    let [answer, timeout] = [15, 20].map(Duration::from_millis);
    let events = recorded("relapse", |breaker| {
        breaker.note(Failure::barely_in_time(answer, timeout));
        breaker.trip(&slow());
        assert_eq!(breaker.probation(), Duration::ZERO, "it is the first time");
        breaker.note(Failure::barely_in_time(answer, timeout));
        reclose(breaker);
        breaker.trip(&slow());
        assert!(breaker.probation() > Duration::ZERO);
    });
    let detail = |index: usize| events[index]["detail"].as_str().unwrap_or_default();
    assert_eq!(detail(0), "redis at here: no answer in time");
    assert!(detail(2).contains("a busy gateway waits for two of them"), "{}", detail(2));
}

#[test]
fn a_lost_connection_is_no_relapse() {
    let breaker = quiet();
    for _ in 0..4 {
        breaker.trip(&slow());
        reclose(&breaker);
    }
    breaker.trip(&slow());
    let long = breaker.probation();
    breaker.trip(&slow());
    assert_eq!(breaker.probation(), long, "it is still the same outage");
    breaker.trip(&gone("gone"));
    assert_eq!(breaker.probation(), Duration::ZERO, "whatever comes back is another Redis");
}

#[test]
fn late_answers_of_all_workers_count_together_and_are_forgotten_with_the_outage() {
    let breaker = quiet();
    let slack = 2 * SLACK;
    assert!((1..slack).all(|_| !breaker.record_late()));
    assert!(breaker.record_late());
    breaker.trip(&slow());
    reclose(&breaker);
    for _ in 0..1000 {
        assert!(!breaker.record_late(), "one in fifty");
        (0..49).for_each(|_| breaker.record_in_time());
    }
}

/// How long ago an outage has begun that is noticed after these late answers, all in milliseconds of
/// one clock.
fn age_of_outage(late: &[u64], noticed: u64) -> u64 {
    let (breaker, start) = (quiet(), Instant::now());
    let at = |millis| start + Duration::from_millis(millis);
    late.iter().for_each(|it| breaker.begin_silence_at(at(*it)));
    let mut record = breaker.record.lock();
    assert!(breaker.open(&mut record, &slow(), at(noticed), false));
    let outage = record.outage.expect("an outage");
    at(noticed).duration_since(outage.since).as_millis() as u64
}

#[test]
fn outage_begins_with_the_first_of_the_late_answers_that_show_it() {
    // Clocks are read in whole milliseconds.
    let about = |age: u64, expected: u64| age.abs_diff(expected) <= 1;
    assert_eq!(age_of_outage(&[], 0), 0);
    assert!(about(age_of_outage(&[0], 2_000), 2_000), "a heartbeat finds out");
    assert!(about(age_of_outage(&[0, 400, 800], 800), 800));
    // Minutes ago one was late, and heartbeats were answered since.
    assert_eq!(age_of_outage(&[0], 600_000), 0);
    assert!(about(age_of_outage(&[0, 600_000, 600_200], 600_200), 200));
}
