//! A circuit breaker for a whole upstream: after enough failed requests in a row it opens, and
//! requests are answered at once, until a trial succeeds.
//!
//! It spares clients the wait for an upstream that is down, and the upstream what it cannot serve
//! anyway. All workers share it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::time::Instant;

use crate::clock::millis;
use crate::config::settings::Breaker;

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct BreakerState {
    upstream: String,
    /// Requests that failed in a row. Not zero while it is open, so that a response reads this and
    /// nothing else while none fails.
    failures: AtomicU32,
    /// When the first of them did.
    first: AtomicU64,
    /// When the next trial is due; zero if it is closed. Read before each request.
    trial_at: AtomicU64,
    on_trial: AtomicBool,
    gauge: IntGauge,
}

impl BreakerState {
    pub(super) fn new(upstream: &str, gauge: IntGauge) -> Self {
        BreakerState {
            upstream: upstream.to_owned(),
            failures: AtomicU32::new(0),
            first: AtomicU64::new(0),
            trial_at: AtomicU64::new(0),
            on_trial: AtomicBool::new(false),
            gauge,
        }
    }

    /// # Errors
    /// If it is open: with the time until the next trial.
    #[inline]
    pub(super) fn admit(&self, now: Instant, settings: &Breaker) -> Result<(), Duration> {
        match self.trial_at.load(Ordering::Relaxed) {
            0 => Ok(()),
            due => self.admit_trial(millis(now), due, settings),
        }
    }

    /// While it is open, one request at a time finds out.
    fn admit_trial(&self, now: u64, due: u64, settings: &Breaker) -> Result<(), Duration> {
        let next = now + span(settings.open);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if now >= due && self.trial_at.compare_exchange(due, next, set, get).is_ok() {
            self.on_trial.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err(Duration::from_millis(if now >= due { next - now } else { due - now }))
    }

    pub(super) fn is_open(&self) -> bool {
        self.trial_at.load(Ordering::Relaxed) != 0
    }

    /// A response has come.
    #[inline]
    pub(super) fn note_answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.close();
        }
    }

    fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.on_trial.store(false, Ordering::Relaxed);
        if self.trial_at.swap(0, Ordering::Relaxed) != 0 {
            self.gauge.set(0);
            tracing::info!(
                "the breaker of upstream `{}` is closed: it answers again",
                self.upstream
            );
        }
    }

    /// A request has failed, after all retries.
    pub(super) fn note_failed(&self, now: Instant, settings: &Breaker) {
        let now = millis(now);
        if self.trial_at.load(Ordering::Relaxed) != 0 {
            // Requests that were under way when it opened say nothing new.
            if self.on_trial.swap(false, Ordering::Relaxed) {
                self.trial_at.store(now + span(settings.open), Ordering::Relaxed);
            }
            return;
        }
        let first = self.first.load(Ordering::Relaxed);
        let is_first = self.failures.load(Ordering::Relaxed) == 0
            || now.saturating_sub(first) > span(settings.window);
        if is_first {
            self.first.store(now, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let next = now + span(settings.open);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if failures >= settings.failures
            && self.trial_at.compare_exchange(0, next, set, get).is_ok()
        {
            self.gauge.set(1);
            tracing::warn!(
                "the breaker of upstream `{}` is open: {failures} requests in a row have failed",
                self.upstream
            );
        }
    }

    /// Forgets everything: there is no breaker any more.
    pub(super) fn reset(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.trial_at.store(0, Ordering::Relaxed);
        self.gauge.set(0);
    }
}

fn span(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Breaker =
        Breaker { failures: 3, window: Duration::from_secs(10), open: Duration::from_secs(2) };

    struct Test(BreakerState, Instant);

    impl Test {
        fn new() -> Self {
            let gauge = IntGauge::new("g", "g").unwrap();
            Test(BreakerState::new("api", gauge), Instant::now())
        }

        fn at(&self, millis: u64) -> Instant {
            self.1 + Duration::from_millis(millis)
        }

        fn fails(&self, times: usize, millis: u64) {
            (0..times).for_each(|_| self.0.note_failed(self.at(millis), &SETTINGS));
        }

        fn wait(&self, millis: u64) -> Option<u64> {
            let admitted = self.0.admit(self.at(millis), &SETTINGS);
            admitted.err().map(|wait| u64::try_from(wait.as_millis()).unwrap())
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_response_between_them_does_not() {
        let test = Test::new();
        test.fails(2, 0);
        test.0.note_answered();
        test.fails(2, 0);
        assert_eq!(test.wait(0), None);
        test.fails(1, 0);
        assert_eq!(test.wait(500), Some(1500));
        assert_eq!(test.0.gauge.get(), 1);
    }

    #[test]
    fn failures_that_are_far_apart_do_not_open_it() {
        let test = Test::new();
        for nth in 0..10 {
            test.fails(1, nth * 6000);
        }
        assert_eq!(test.wait(60_000), None);
    }

    #[test]
    fn one_trial_at_a_time_finds_out() {
        let test = Test::new();
        test.fails(3, 0);
        assert_eq!(test.wait(2000), None, "the trial");
        assert_eq!(test.wait(2000), Some(2000), "all others");
        test.fails(1, 2500);
        assert_eq!(test.wait(2500), Some(2000), "it has failed");
        assert_eq!(test.wait(4500), None, "the next trial");
        test.0.note_answered();
        assert_eq!((test.wait(4500), test.0.gauge.get()), (None, 0));
    }
}
