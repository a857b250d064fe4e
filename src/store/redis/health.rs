//! The breaker in front of Redis, one for the whole process.
//!
//! It is closed while Redis decides. Once it has opened, requests do not even try: they are served
//! by `on_error`, which costs them nothing, until Redis has answered again to the keeper and every
//! worker has a fresh connection. It opens when a connection is lost and cannot be had again, when
//! Redis says that it cannot serve, and after a few answers in a row that came too late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::failure::Failure;
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
    /// Since when it is known that limits are served without Redis.
    degraded: Mutex<Option<Instant>>,
    /// What it stands in front of, as messages name it.
    place: String,
    /// What limits do that say nothing themselves.
    on_error: OnError,
    metrics: Metrics,
    audit: Audit,
}

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
            on_error,
            metrics,
            audit,
        }
    }

    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a failure that does not open the breaker by itself.
    pub(super) fn count(&self, failure: &Failure) {
        self.metrics.store_errors.with_label_values(&[failure.reason.label()]).inc();
    }

    /// Opens the breaker. The first to do so since it was closed says why.
    pub(super) fn trip(&self, failure: &Failure) {
        let mut degraded = self.degraded.lock();
        if !self.open.swap(true, Ordering::AcqRel) || degraded.is_none() {
            self.trips.send_modify(|trips| *trips += 1);
        }
        if degraded.is_some() {
            return;
        }
        *degraded = Some(Instant::now());
        self.metrics.store_degraded.set(1);
        let reason = failure.reason.label();
        let detail = format!("{}: {failure}", self.place);
        tracing::error!(
            "store degraded: {detail}; limits are served by on_error ({}) until it is back",
            self.on_error.name()
        );
        let on_error = self.on_error;
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
        if let Some(since) = degraded.take() {
            let seconds = since.elapsed().as_secs_f64();
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
