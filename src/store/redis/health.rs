//! The breaker in front of Redis, one for the whole process.
//!
//! It is closed while Redis decides. Once it has opened, requests do not even try: they are served
//! by `on_error`, which costs them nothing, until Redis has answered again to the keeper and every
//! worker has a fresh connection. It opens when a connection is lost and cannot be had again, when
//! Redis says that it cannot serve, and after a few answers in a row that came too late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::failure::{Failure, Reason};
use crate::limit::OnError;
use crate::telemetry::{Audit, Event, Metrics};

#[derive(Debug)]
pub struct Health {
    /// What requests look at.
    open: AtomicBool,
    /// False while debts are being paid: calls wait for that, for a moment.
    gate: watch::Sender<bool>,
    /// How often it has opened. A connection from before the last time is not to be trusted.
    trips: watch::Sender<u64>,
    /// For each worker the number of trips before its connection was made, plus one; zero if it
    /// has none.
    links: Vec<AtomicU64>,
    /// Known while limits are served without Redis.
    degraded: Mutex<Option<Outage>>,
    /// What it stands in front of, as messages name it.
    place: String,
    /// What limits do that say nothing themselves.
    on_error: Mutex<OnError>,
    metrics: Metrics,
    audit: Audit,
}

/// What is known of a Redis that fails.
#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Instant,
    /// How it fails now.
    reason: Reason,
    /// How the log has it, since when.
    told: (Reason, Instant),
}

/// Reasons that alternate are not all told.
const TOLD_AT_MOST_EVERY: Duration = Duration::from_secs(1);

impl Health {
    /// Open until the first contact.
    pub(super) fn new(
        workers: usize,
        (place, on_error): (String, OnError),
        metrics: Metrics,
        audit: Audit,
    ) -> Self {
        Health {
            open: AtomicBool::new(true),
            gate: watch::Sender::new(false),
            trips: watch::Sender::new(0),
            links: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            degraded: Mutex::new(None),
            place,
            on_error: Mutex::new(on_error),
            metrics,
            audit,
        }
    }

    pub(super) fn set_on_error(&self, on_error: OnError) {
        *self.on_error.lock() = on_error;
    }

    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Why limits are served without Redis, as [`STORE_ERRORS`](crate::telemetry::STORE_ERRORS)
    /// calls it.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.degraded.lock().map(|outage| outage.reason.label())
    }

    /// Counts a failure that does not open the breaker by itself.
    pub(super) fn count(&self, failure: &Failure) {
        self.metrics.store_errors.with_label_values(&[failure.reason.label()]).inc();
    }

    /// Opens the breaker. The first to do so since it was closed says why.
    pub(super) fn trip(&self, failure: &Failure) {
        self.open(failure, false);
    }

    /// The same where Redis is another one from here on: connections are not to be trusted that
    /// were made while the breaker was open already.
    pub(super) fn distrust(&self, failure: &Failure) {
        self.open(failure, true);
    }

    fn open(&self, failure: &Failure, is_another: bool) {
        let mut degraded = self.degraded.lock();
        if !self.open.swap(true, Ordering::AcqRel) || degraded.is_none() || is_another {
            self.trips.send_modify(|trips| *trips += 1);
        }
        let detail = format!("{}: {failure}", self.place);
        let now = Instant::now();
        if let Some(outage) = &mut *degraded {
            outage.reason = failure.reason;
            // A Redis that is back and does not let in is not the one that was gone.
            let (told, when) = outage.told;
            if failure.reason.needs_somebody()
                && failure.reason != told
                && now.duration_since(when) >= TOLD_AT_MOST_EVERY
            {
                tracing::warn!("store still degraded, for another reason now: {detail}");
                outage.told = (failure.reason, now);
            }
            return;
        }
        *degraded =
            Some(Outage { since: now, reason: failure.reason, told: (failure.reason, now) });
        self.metrics.store_degraded.set(1);
        let reason = failure.reason.label();
        let on_error = *self.on_error.lock();
        tracing::error!(
            "store degraded: {detail}; limits are served by on_error ({}) until it is back",
            on_error.name()
        );
        self.audit.record(Event::StoreDegraded { reason, detail: &detail, on_error });
    }

    /// Has requests wait for Redis again, and calls for [`Health::close`], unless the breaker has
    /// opened again since `trips` was read.
    pub(super) fn half_close(&self, trips: u64) -> bool {
        let _guard = self.degraded.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(false);
        self.open.store(false, Ordering::Release);
        true
    }

    /// Lets calls go out, unless the breaker has opened again since `trips` was read.
    pub(super) fn close(&self, trips: u64) -> bool {
        let mut degraded = self.degraded.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(true);
        self.metrics.store_degraded.set(0);
        if let Some(outage) = degraded.take() {
            let seconds = outage.since.elapsed().as_secs_f64();
            tracing::info!("store recovered after {seconds:.1} s");
            self.audit.record(Event::StoreRecovered { seconds });
        }
        true
    }

    /// Resolves once calls may go out.
    pub(super) async fn closed(&self) {
        // The sender is here, so it does not go away.
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
    }

    /// How often the breaker has opened so far, and a way to wait for the next time.
    pub(super) fn trips(&self) -> watch::Receiver<u64> {
        self.trips.subscribe()
    }

    /// A worker has a connection that was begun after so many trips.
    pub(super) fn link_is_up(&self, worker: usize, trips: u64) {
        self.links[worker].store(trips + 1, Ordering::Release);
    }

    pub(super) fn link_is_down(&self, worker: usize) {
        self.links[worker].store(0, Ordering::Release);
    }

    /// Whether every worker has a connection from after the last trip.
    pub(super) fn all_links_are_up(&self, trips: u64) -> bool {
        self.links.iter().all(|link| link.load(Ordering::Acquire) == trips + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::config::settings::LogTarget;
    use crate::store::redis::failure::Reason;

    /// A breaker for two workers.
    fn health(audit: Audit) -> Health {
        Health::new(2, ("redis at here".to_owned(), OnError::Deny), Metrics::new(), audit)
    }

    fn quiet() -> Health {
        health(Audit::open(&LogTarget::Off).expect("nowhere to write").0)
    }

    /// What was recorded while something was done.
    fn recorded(name: &str, act: impl FnOnce(&Health)) -> Vec<serde_json::Value> {
        let name = format!("weir-health-{name}-{}", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(name);
        let (audit, guard) = Audit::open(&LogTarget::File(path.clone())).expect("a file");
        act(&health(audit));
        drop(guard);
        let text = std::fs::read_to_string(&path).expect("what was written");
        std::fs::remove_file(path).expect("the file goes");
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    }

    fn gone(what: &str) -> Failure {
        Failure::new(Reason::Connection, what)
    }

    #[test]
    fn an_outage_is_told_of_once_and_so_is_its_end() {
        let events = recorded("once", |health| {
            health.trip(&gone("first"));
            health.trip(&gone("second"));
            assert_eq!(health.metrics.store_degraded.get(), 1);
            let trips = *health.trips().borrow();
            assert!(health.half_close(trips) && health.close(trips));
            assert_eq!(health.metrics.store_degraded.get(), 0);
            assert!(health.close(trips), "it is closed already");
            health.trip(&gone("third"));
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
        let health = quiet();
        assert_eq!(health.reason(), None);
        health.trip(&gone("gone"));
        assert_eq!(health.reason(), Some("connection"));
        health.trip(&Failure::new(Reason::Denied, "WRONGPASS"));
        assert_eq!(health.reason(), Some("denied"));
        let trips = *health.trips().borrow();
        assert!(health.half_close(trips) && health.close(trips));
        assert_eq!(health.reason(), None);
    }

    #[test]
    fn a_first_contact_that_succeeds_is_no_recovery() {
        let events = recorded("contact", |health| {
            assert!(health.is_open());
            assert!(health.half_close(0) && health.close(0));
            assert!(!health.is_open());
        });
        assert_eq!(events, [serde_json::Value::Null; 0]);
    }

    #[test]
    fn it_opens_anew_only_after_it_was_closed() {
        let health = quiet();
        let mut trips = health.trips();
        health.trip(&gone("no first contact"));
        assert_eq!(*trips.borrow_and_update(), 1);
        health.trip(&gone("still none"));
        assert!(!trips.has_changed().expect("a sender"));
        assert!(health.half_close(1));
        health.trip(&gone("gone again before it was closed"));
        assert_eq!(*trips.borrow_and_update(), 2);
        assert!(health.is_open());
    }

    #[test]
    fn connections_to_another_redis_do_not_count() {
        let health = quiet();
        health.trip(&gone("gone"));
        health.link_is_up(0, 1);
        health.link_is_up(1, 1);
        health.distrust(&gone("another one took its place"));
        assert!(!health.half_close(1), "they lead to the old one");
        assert!(!health.all_links_are_up(2) && health.is_open());
    }

    #[test]
    fn it_does_not_close_if_it_has_opened_since() {
        let health = quiet();
        assert!(health.half_close(0));
        health.trip(&gone("gone"));
        assert!(!health.close(0));
        assert!(!health.half_close(0));
        assert!(health.is_open());
        assert_eq!(health.metrics.store_degraded.get(), 1);
        assert!(health.half_close(1) && health.close(1));
        assert!(!health.is_open());
    }

    #[test]
    fn calls_go_out_once_it_is_closed_and_not_before() {
        let health = quiet();
        let may_go = || health.closed().now_or_never().is_some();
        assert!(!may_go());
        assert!(health.half_close(0));
        assert!(!may_go(), "debts are being paid");
        assert!(health.close(0));
        assert!(may_go());
        health.trip(&gone("gone"));
        assert!(health.half_close(1));
        assert!(!may_go(), "debts are being paid again");
    }

    #[test]
    fn every_worker_needs_a_connection_from_after_the_last_trip() {
        let health = quiet();
        assert!(!health.all_links_are_up(0));
        health.link_is_up(0, 0);
        assert!(!health.all_links_are_up(0));
        health.link_is_up(1, 0);
        assert!(health.all_links_are_up(0));
        assert!(!health.all_links_are_up(1), "they are from before");
        health.link_is_up(0, 1);
        assert!(!health.all_links_are_up(1));
        health.link_is_up(1, 1);
        assert!(health.all_links_are_up(1));
        health.link_is_down(0);
        assert!(!health.all_links_are_up(1));
    }

    #[test]
    fn failures_are_counted_by_their_reason() {
        let health = quiet();
        health.count(&gone("gone"));
        health.count(&Failure::timeout());
        health.count(&Failure::timeout());
        let count = |label| health.metrics.store_errors.with_label_values(&[label]).get();
        assert_eq!((count("connection"), count("timeout"), count("other")), (1, 2, 0));
        assert!(health.is_open() && *health.trips().borrow() == 0, "counting opens nothing");
    }
}
