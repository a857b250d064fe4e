//! The breaker in front of Redis, one for the whole process.
//!
//! It is closed while Redis decides. Once it has opened, requests do not even try: they are served
//! by `on_error`, which costs them nothing, until Redis has answered again to the keeper and every
//! worker has a fresh connection. It opens when a connection is lost and cannot be had again, when
//! Redis says that it cannot serve, and after a few answers in a row that came too late, or too many
//! all in all. After slowness it closes only when Redis answers as fast as decisions need it, for
//! longer after each relapse: see [`trial`](super::trial).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::failure::{Failure, Reason};
use super::lateness::Lateness;
use super::trial::Relapses;
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
    /// Late answers of all workers.
    lateness: Lateness,
    record: Mutex<Record>,
    /// What it stands in front of, as messages name it.
    place: String,
    /// What limits do that say nothing themselves.
    on_error: Mutex<OnError>,
    metrics: Metrics,
    audit: Audit,
}

/// What is known of Redis beyond this moment.
#[derive(Debug, Default)]
struct Record {
    /// Known while limits are served without Redis.
    outage: Option<Outage>,
    relapses: Relapses,
    /// What to say of a relapse, if the probes before it were barely in time.
    note: Option<Failure>,
    /// When the log was last told that it is too slow.
    too_slow_told: Option<Instant>,
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

/// An outage that lasts is told to be one of slowness, and so often at most.
const LASTING: Duration = Duration::from_secs(5);
const TOO_SLOW_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Late answers in a row, for each worker, that open the breaker though no worker had as many as it
/// takes by itself. All workers are late at once when Redis hesitates, and that is no slowness yet.
const SLACK: u32 = 4;

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
            lateness: Lateness::new(SLACK.saturating_mul(workers.max(1) as u32)),
            record: Mutex::default(),
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
        self.record.lock().outage.map(|outage| outage.reason.label())
    }

    /// Counts a failure that does not open the breaker by itself.
    pub(super) fn count(&self, failure: &Failure) {
        self.metrics.store_errors.with_label_values(&[failure.reason.label()]).inc();
    }

    /// A call was answered in time.
    #[inline]
    pub(super) fn in_time(&self) {
        self.lateness.in_time();
    }

    /// A call was not: whether that happens too often.
    pub(super) fn late(&self) -> bool {
        self.lateness.late()
    }

    /// Opens the breaker. The first to do so since it was closed says why.
    pub(super) fn trip(&self, failure: &Failure) {
        self.open(&mut self.record.lock(), failure, Instant::now(), false);
    }

    /// The same where Redis is another one from here on: connections are not to be trusted that
    /// were made while the breaker was open already.
    pub(super) fn distrust(&self, failure: &Failure) {
        self.open(&mut self.record.lock(), failure, Instant::now(), true);
    }

    /// Redis answers, and later than decisions can wait.
    pub(super) fn too_slow(&self, failure: &Failure) {
        let now = Instant::now();
        let mut record = self.record.lock();
        let is_news = self.open(&mut record, failure, now, false);
        let lasts = record.outage.is_some_and(|it| now.duration_since(it.since) >= LASTING);
        let silent =
            record.too_slow_told.is_none_or(|it| now.duration_since(it) >= TOO_SLOW_TOLD_EVERY);
        if lasts && silent {
            tracing::warn!("store still degraded: {}: {failure}", self.place);
        }
        if is_news || (lasts && silent) {
            record.too_slow_told = Some(now);
        }
    }

    /// Opens the breaker; true if nothing was known to be wrong.
    fn open(&self, record: &mut Record, failure: &Failure, now: Instant, is_another: bool) -> bool {
        let was_open = self.open.swap(true, Ordering::AcqRel);
        if !was_open || record.outage.is_none() || is_another {
            self.trips.send_modify(|trips| *trips += 1);
        }
        let slow = failure.reason == Reason::Timeout;
        if let Some(outage) = &mut record.outage {
            if was_open {
                record.relapses.failed(slow);
            } else {
                record.relapses.half_closed_in_vain(slow);
            }
            outage.reason = failure.reason;
            // A Redis that is back and does not let in is not the one that was gone.
            let (told, when) = outage.told;
            if failure.reason.needs_somebody()
                && failure.reason != told
                && now.duration_since(when) >= TOLD_AT_MOST_EVERY
            {
                let place = &self.place;
                tracing::warn!("store still degraded, for another reason now: {place}: {failure}");
                outage.told = (failure.reason, now);
            }
            return false;
        }
        record.relapses.opened(slow, now);
        let relapsed = !record.relapses.probation().is_zero();
        let failure = record.note.take().filter(|_| relapsed).unwrap_or_else(|| failure.clone());
        let outage = Outage { since: now, reason: failure.reason, told: (failure.reason, now) };
        record.outage = Some(outage);
        self.metrics.store_degraded.set(1);
        let (reason, on_error) = (failure.reason.label(), *self.on_error.lock());
        let detail = format!("{}: {failure}", self.place);
        tracing::error!(
            "store degraded: {detail}; limits are served by on_error ({}) until it is back",
            on_error.name()
        );
        self.audit.record(Event::StoreDegraded { reason, detail: &detail, on_error });
        true
    }

    /// For how long Redis has to do well before it is used again.
    pub(super) fn probation(&self) -> Duration {
        self.record.lock().relapses.probation()
    }

    /// What to say if it is too slow all the same.
    pub(super) fn note(&self, note: Option<Failure>) {
        self.record.lock().note = note;
    }

    /// Has requests wait for Redis again, and calls for [`Health::close`], unless the breaker has
    /// opened again since `trips` was read.
    pub(super) fn half_close(&self, trips: u64) -> bool {
        let _guard = self.record.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(false);
        self.open.store(false, Ordering::Release);
        true
    }

    /// Lets calls go out, unless the breaker has opened again since `trips` was read.
    pub(super) fn close(&self, trips: u64) -> bool {
        let mut record = self.record.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(true);
        self.metrics.store_degraded.set(0);
        self.lateness.reset();
        record.relapses.closed(Instant::now());
        if let Some(outage) = record.outage.take() {
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
mod tests;
