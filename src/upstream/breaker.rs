//! A circuit breaker for a whole upstream: after enough failed requests in a row it opens, and
//! requests are answered at once, until a trial succeeds.
//!
//! It spares clients the wait for an upstream that is down, and the upstream what it cannot serve
//! anyway. All workers share it. While the failures are those of a few clients, it is open for these
//! only: see [`FailingClients`]. Whose request is the trial: see [`Trials`].

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use prometheus::IntGauge;
use tokio::time::Instant;

use super::failing_clients::{FailingClients, FailureScope};
use super::failure_log::FailureLog;
use super::trials::{TrialFailure, Trials};
use crate::clock::{millis, whole_millis};
use crate::config::settings::Breaker;

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct BreakerState {
    upstream: String,
    /// Read before each request.
    is_open: AtomicBool,
    /// Requests that failed in a row. Not zero while it is open, so that a response reads this and
    /// nothing else while none fails.
    failures: AtomicU32,
    /// Whose they were.
    clients: FailingClients,
    trials: Trials,
    gauge: IntGauge,
    /// Held by whoever changes what is above. A breaker that one request opens while the answer to
    /// another closes it would else be open without a failure, and no answer would close it any more.
    changing: Mutex<Changing>,
}

/// What is needed only where something changes.
#[derive(Debug, Default)]
struct Changing {
    /// When the first of the failures was.
    first: u64,
    /// How many trials there have been since it opened.
    trial_count: u32,
    /// Paces its lines: one client can open it, and answers to others close it, as often as it likes.
    log: FailureLog,
}

/// How a request has passed the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerPass {
    /// It is closed, or open for others only.
    Closed,
    /// It is open, and this request finds out whether it may close. It is not sent to a server that is
    /// left out, if there is another.
    Trial,
    /// The same, but if the trial of a server that is left out is due, this one is that as well.
    TrialOfServer,
}

impl BreakerState {
    pub(super) fn new(upstream: &str, gauge: IntGauge) -> Self {
        BreakerState {
            upstream: upstream.to_owned(),
            is_open: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            clients: FailingClients::default(),
            trials: Trials::default(),
            gauge,
            changing: Mutex::default(),
        }
    }

    /// # Errors
    /// If it is open for that client: with the time until its next trial.
    #[inline]
    pub(super) fn admit(
        &self,
        now: Instant,
        client: IpAddr,
        settings: &Breaker,
    ) -> Result<BreakerPass, Duration> {
        if !self.is_open() || !self.clients.include(client) {
            return Ok(BreakerPass::Closed);
        }
        self.admit_trial(millis(now), client, settings)
    }

    /// While it is open, one request at a time finds out.
    fn admit_trial(
        &self,
        now: u64,
        client: IpAddr,
        settings: &Breaker,
    ) -> Result<BreakerPass, Duration> {
        if now >= self.trials.due_for(client) {
            let mut changing = self.changing.lock();
            if !self.is_open() {
                return Ok(BreakerPass::Closed);
            }
            // Unless another request was faster.
            if now >= self.trials.due_for(client) {
                self.trials.begin(client, now + whole_millis(settings.open));
                let pass = kind_of_trial(changing.trial_count);
                changing.trial_count = changing.trial_count.wrapping_add(1);
                return Ok(pass);
            }
        }
        Err(Duration::from_millis(self.trials.due_for(client).saturating_sub(now)))
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// A response has come.
    #[inline]
    pub(super) fn note_answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.close();
        }
    }

    fn close(&self) {
        let mut changing = self.clear();
        if changing.log.end() {
            tracing::info!(
                "the breaker of upstream `{}` is closed: it answers again",
                self.upstream
            );
        }
    }

    /// A request has failed, after all retries.
    pub(super) fn note_failed(&self, instant: Instant, scope: FailureScope, settings: &Breaker) {
        if scope == FailureScope::Nobody {
            return;
        }
        let now = millis(instant);
        let mut changing = self.changing.lock();
        if self.is_open() {
            let was_for_all = self.clients.are_everybody();
            self.clients.note_scope(scope);
            let has_failed = self.fail_trial(now, scope, settings);
            if changing.log.widen(&self.clients) {
                tracing::warn!(
                    "the breaker of upstream `{}` is now open for everybody: not only requests of \
                     a few clients fail",
                    self.upstream
                );
            } else if has_failed || (!was_for_all && self.clients.are_everybody()) {
                self.log_open(&mut changing.log, instant, settings);
            }
            return;
        }
        let is_first = self.failures.load(Ordering::Relaxed) == 0
            || now.saturating_sub(changing.first) > whole_millis(settings.window);
        if is_first {
            changing.first = now;
            self.failures.store(0, Ordering::Relaxed);
            self.clients.clear();
        }
        self.clients.note_scope(scope);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= settings.failures {
            self.is_open.store(true, Ordering::Relaxed);
            self.trials.wait(now + whole_millis(settings.open));
            changing.trial_count = 0;
            self.gauge.set(1);
            self.log_open(&mut changing.log, instant, settings);
        }
    }

    /// While it is open. False if it was no trial that has failed: requests that were under way when it
    /// opened say nothing new.
    fn fail_trial(&self, now: u64, scope: FailureScope, settings: &Breaker) -> bool {
        let next = now + whole_millis(settings.open);
        let failure = match scope {
            FailureScope::Client(client) => self.trials.fail(client, now, next),
            // No server can be reached, whoever asks.
            FailureScope::Everybody => self.trials.end().then_some(TrialFailure::OfSeveralClients),
            FailureScope::Nobody => None,
        };
        if failure == Some(TrialFailure::OfSeveralClients) {
            self.trials.wait(next);
        }
        failure.is_some()
    }

    /// Asked when it opens, and again with each trial that fails: one that opens too soon after the
    /// last time may stay open for long.
    fn log_open(&self, log: &mut FailureLog, now: Instant, settings: &Breaker) {
        if log.begin(now, whole_millis(settings.open), &self.clients) {
            tracing::warn!(
                "the breaker of upstream `{}` is open{}: {} requests in a row have failed",
                self.upstream,
                self.clients.for_whom(),
                self.failures.load(Ordering::Relaxed)
            );
        }
    }

    /// Forgets everything: there is no breaker any more.
    pub(super) fn reset(&self) {
        self.clear().log = FailureLog::default();
    }

    fn clear(&self) -> MutexGuard<'_, Changing> {
        let changing = self.changing.lock();
        self.failures.store(0, Ordering::Relaxed);
        self.clients.clear();
        self.is_open.store(false, Ordering::Relaxed);
        self.gauge.set(0);
        changing
    }
}

/// While a breaker is open nothing but its trials asks a server that is left out, and that may be the one
/// that is well: half of them do. By the number of ones in the trial's number (the Thue-Morse sequence):
/// if every other one did, clients that take turns would have trials of one kind only.
fn kind_of_trial(number: u32) -> BreakerPass {
    match number.count_ones() % 2 {
        0 => BreakerPass::Trial,
        _ => BreakerPass::TrialOfServer,
    }
}

#[cfg(test)]
mod tests;
