//! The breaker in front of Redis, one for the whole process.
//!
//! It is closed while Redis decides. Once it has opened, requests do not even try: they are served
//! by `on_error`, which costs them nothing, until Redis has answered the supervisor again and every
//! worker has a fresh connection. It opens when a connection is lost and cannot be had again, when
//! Redis says that it cannot serve, and after a few answers in a row that came too late, or too many
//! all in all ([`late_budget`](super::late_budget)); where nobody makes calls, after late
//! [`payments`](super::payments), or a [`silence`](super::silence) while one has to wait. After slowness it closes only when Redis answers as fast as decisions need it, for
//! longer after each relapse: see [`trial`](super::recovery_trial).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::late_budget::LateBudget;
use super::recovery_trial::Relapses;
use crate::clock;
use crate::limit::OnError;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::telemetry::{AuditEvent, AuditLog, Metrics};

#[derive(Debug)]
pub(crate) struct Breaker {
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
    late_budget: LateBudget,
    /// Since when no call of any worker, no payment and no heartbeat was answered in time, in
    /// milliseconds of the clock here; zero if the last was.
    silent_since: AtomicU64,
    record: Mutex<Record>,
    /// The address of Redis, as messages name it.
    address: String,
    /// What limits do that set no `on_error` themselves.
    on_error: Mutex<OnError>,
    metrics: Metrics,
    audit: AuditLog,
}

/// What is known of Redis beyond this moment.
#[derive(Debug, Default)]
struct Record {
    /// Known while limits are served without Redis.
    outage: Option<Outage>,
    relapses: Relapses,
    /// What to say of a relapse, if the probes before it were barely in time.
    note: Option<Failure>,
    /// When it was last logged that it is too slow.
    too_slow_logged: Option<Instant>,
}

/// What is known of a Redis that fails.
#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Instant,
    /// How it fails now.
    reason: Reason,
    /// The reason that was last logged, and when.
    last_logged: (Reason, Instant),
}

/// Reasons that alternate are not all logged.
const REASON_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// After this long an outage is logged as slowness, and at most so often.
const LASTING_OUTAGE: Duration = Duration::from_secs(5);
const TOO_SLOW_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// So long after the first late answer an outage is found at the latest: heartbeats are a second apart,
/// and wait for a second. One more is for a machine that is busy.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);

/// Late answers in a row, for each worker, that open the breaker though no worker had as many as it
/// takes by itself. All workers are late at once when Redis hesitates, and that is no slowness yet.
const SLACK: u32 = 4;

impl Breaker {
    /// Open until the first contact.
    pub(crate) fn new(
        workers: usize,
        address: String,
        on_error: OnError,
        metrics: Metrics,
        audit: AuditLog,
    ) -> Self {
        Breaker {
            open: AtomicBool::new(true),
            gate: watch::Sender::new(false),
            trips: watch::Sender::new(0),
            links: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            late_budget: LateBudget::new(SLACK.saturating_mul(workers.max(1) as u32)),
            silent_since: AtomicU64::new(0),
            record: Mutex::default(),
            address,
            on_error: Mutex::new(on_error),
            metrics,
            audit,
        }
    }

    pub(crate) fn set_on_error(&self, on_error: OnError) {
        *self.on_error.lock() = on_error;
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Why limits are served without Redis, as [`STORE_ERRORS`](crate::telemetry::metrics::STORE_ERRORS)
    /// calls it.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.record.lock().outage.map(|outage| outage.reason.label())
    }

    /// For how long limits have been served without Redis.
    pub(crate) fn outage(&self) -> Option<Duration> {
        self.record.lock().outage.map(|outage| outage.since.elapsed())
    }

    /// Counts a failure that does not open the breaker by itself.
    pub(crate) fn count(&self, failure: &Failure) {
        self.metrics.store_errors.with_label_values(&[failure.reason.label()]).inc();
    }

    /// A call was answered in time.
    #[inline]
    pub(crate) fn record_in_time(&self) {
        self.late_budget.record_in_time();
        self.end_silence();
    }

    /// A call was not. True if that happens too often.
    #[must_use]
    pub(crate) fn record_late(&self) -> bool {
        self.begin_silence();
        self.late_budget.record_late()
    }

    /// Redis has not answered a call or a payment in time.
    pub(crate) fn begin_silence(&self) {
        self.begin_silence_at(Instant::now());
    }

    fn begin_silence_at(&self, now: Instant) {
        let (silent, order) = (&self.silent_since, Ordering::Relaxed);
        let since = silent.load(order);
        // The first of several.
        if self.silence(now).is_zero() {
            let _ = silent.compare_exchange(since, clock::millis(now), order, order);
        }
    }

    /// It has answered one, or the heartbeat.
    #[inline]
    pub(crate) fn end_silence(&self) {
        // Mostly nothing is late, and nothing is written.
        if self.is_silent() {
            self.silent_since.store(0, Ordering::Relaxed);
        }
    }

    /// Whether Redis has not answered in time when it was last asked, though the breaker may still be
    /// closed.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_since.load(Ordering::Relaxed) > 0
    }

    /// For how long that has been so. Where nobody asks for anything, nothing ends a silence if heartbeats
    /// are answered late as well, and it says nothing of an outage minutes later.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let lasted = match self.silent_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(clock::millis(now).saturating_sub(since)),
        };
        if lasted > LONGEST_SILENCE { Duration::ZERO } else { lasted }
    }

    /// Opens the breaker. The first to do so since it was closed names the reason.
    pub(crate) fn trip(&self, failure: &Failure) {
        self.open(&mut self.record.lock(), failure, Instant::now(), false);
    }

    /// The same where Redis is another one from here on: connections are not to be trusted that
    /// were made while the breaker was open already.
    pub(crate) fn distrust(&self, failure: &Failure) {
        self.open(&mut self.record.lock(), failure, Instant::now(), true);
    }

    /// Redis answers, and later than decisions can wait.
    pub(crate) fn too_slow(&self, failure: &Failure) {
        let now = Instant::now();
        let mut record = self.record.lock();
        let is_news = self.open(&mut record, failure, now, false);
        let is_lasting =
            record.outage.is_some_and(|it| now.duration_since(it.since) >= LASTING_OUTAGE);
        let is_log_due =
            record.too_slow_logged.is_none_or(|it| now.duration_since(it) >= TOO_SLOW_LOG_INTERVAL);
        if is_lasting && is_log_due {
            tracing::warn!("store still degraded: {}: {failure}", self.address);
        }
        if is_news || (is_lasting && is_log_due) {
            record.too_slow_logged = Some(now);
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
                record.relapses.half_close_failed(slow);
            }
            outage.reason = failure.reason;
            // A Redis that is back and does not let in is not the one that was gone.
            let (logged, when) = outage.last_logged;
            if failure.reason.needs_operator()
                && failure.reason != logged
                && now.duration_since(when) >= REASON_LOG_INTERVAL
            {
                let address = &self.address;
                tracing::warn!(
                    "store still degraded, for another reason now: {address}: {failure}"
                );
                outage.last_logged = (failure.reason, now);
            }
            return false;
        }
        record.relapses.opened(slow, now);
        let relapsed = !record.relapses.probation().is_zero();
        let failure = record.note.take().filter(|_| relapsed).unwrap_or_else(|| failure.clone());
        let last_logged = (failure.reason, now);
        // It has begun with the first call that was not answered, however long that took to be enough.
        let since = now.checked_sub(self.silence(now)).unwrap_or(now);
        let outage = Outage { since, reason: failure.reason, last_logged };
        record.outage = Some(outage);
        self.metrics.store_degraded.set(1);
        let (reason, on_error) = (failure.reason.label(), *self.on_error.lock());
        let detail = format!("{}: {failure}", self.address);
        tracing::error!(
            "store degraded: {detail}; limits are served by on_error ({}, unless a limit says \
             otherwise) until it is back",
            on_error.name()
        );
        self.audit.record(AuditEvent::StoreDegraded { reason, detail: &detail, on_error });
        true
    }

    /// For how long Redis has to do well before it is used again.
    pub(crate) fn probation(&self) -> Duration {
        self.record.lock().relapses.probation()
    }

    /// What to say if it is too slow all the same.
    pub(crate) fn note(&self, note: Option<Failure>) {
        self.record.lock().note = note;
    }

    /// Has requests wait for Redis again, and calls for [`Breaker::close`], unless the breaker has
    /// opened again since `trips` was read.
    #[must_use]
    pub(crate) fn half_close(&self, trips: u64) -> bool {
        let _guard = self.record.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(false);
        self.open.store(false, Ordering::Release);
        true
    }

    /// Lets calls go out, unless the breaker has opened again since `trips` was read.
    #[must_use]
    pub(crate) fn close(&self, trips: u64) -> bool {
        let mut record = self.record.lock();
        if *self.trips.borrow() != trips {
            return false;
        }
        self.gate.send_replace(true);
        self.metrics.store_degraded.set(0);
        self.late_budget.reset();
        self.end_silence();
        record.relapses.closed(Instant::now());
        if let Some(outage) = record.outage.take() {
            let seconds = outage.since.elapsed().as_secs_f64();
            tracing::info!("store recovered after {seconds:.1} s");
            self.audit.record(AuditEvent::StoreRecovered { seconds });
        }
        true
    }

    /// Whether calls may go out.
    pub(crate) fn is_closed(&self) -> bool {
        !self.is_open() && *self.gate.borrow()
    }

    /// Resolves once calls may go out.
    pub(crate) async fn closed(&self) {
        // The sender is here, so it does not go away.
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
    }

    /// How often the breaker has opened so far, and a way to wait for the next time.
    pub(crate) fn trips(&self) -> watch::Receiver<u64> {
        self.trips.subscribe()
    }

    /// A worker has a connection that was begun after so many trips.
    pub(crate) fn link_is_up(&self, worker: usize, trips: u64) {
        self.links[worker].store(trips + 1, Ordering::Release);
    }

    pub(crate) fn link_is_down(&self, worker: usize) {
        self.links[worker].store(0, Ordering::Release);
    }

    /// Whether every worker has a connection from after the last trip.
    pub(crate) fn all_links_are_up(&self, trips: u64) -> bool {
        self.links.iter().all(|link| link.load(Ordering::Acquire) == trips + 1)
    }
}

#[cfg(test)]
mod tests;
