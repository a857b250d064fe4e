//! A circuit breaker for a whole upstream: after enough failed requests in a row it opens, and
//! requests are answered at once, until a trial succeeds.
//!
//! It spares clients the wait for an upstream that is down, and the upstream what it cannot serve
//! anyway. All workers share it. While the failures are those of a few clients, it is open for these
//! only: see [`FailingClients`].

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::time::Instant;

use super::failing_clients::FailingClients;
use super::log_pace::LogPace;
use crate::clock::millis;
use crate::config::settings::Breaker;

/// What is known of one upstream.
#[derive(Debug)]
pub(super) struct BreakerState {
    upstream: String,
    /// Held by whoever changes what follows. A breaker that one request opens while the answer to another
    /// closes it would else be open without a failure, and no answer would close it any more.
    changing: Mutex<()>,
    /// Requests that failed in a row. Not zero while it is open, so that a response reads this and
    /// nothing else while none fails.
    failures: AtomicU32,
    /// Whose they were.
    clients: FailingClients,
    /// When the first of them did.
    first: AtomicU64,
    /// When the next trial is due; zero if it is closed. Read before each request.
    trial_at: AtomicU64,
    on_trial: AtomicBool,
    gauge: IntGauge,
    /// Requests of others may close it as soon as those of one client have opened it.
    log_pace: LogPace,
    /// The log says that it is open.
    is_logged: AtomicBool,
    /// And that it is so for a few clients only.
    is_logged_for_few: AtomicBool,
}

impl BreakerState {
    pub(super) fn new(upstream: &str, gauge: IntGauge) -> Self {
        BreakerState {
            upstream: upstream.to_owned(),
            changing: Mutex::new(()),
            failures: AtomicU32::new(0),
            clients: FailingClients::default(),
            first: AtomicU64::new(0),
            trial_at: AtomicU64::new(0),
            on_trial: AtomicBool::new(false),
            gauge,
            log_pace: LogPace::default(),
            is_logged: AtomicBool::new(false),
            is_logged_for_few: AtomicBool::new(false),
        }
    }

    /// # Errors
    /// If it is open for that client: with the time until the next trial.
    #[inline]
    pub(super) fn admit(
        &self,
        now: Instant,
        client: IpAddr,
        settings: &Breaker,
    ) -> Result<(), Duration> {
        match self.trial_at.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ if !self.clients.include(client) => Ok(()),
            due => self.admit_trial(millis(now), due, settings),
        }
    }

    /// While it is open, one request at a time finds out.
    fn admit_trial(&self, now: u64, due: u64, settings: &Breaker) -> Result<(), Duration> {
        let next = now + span(settings.open);
        if now >= due {
            let _changing = self.changing.lock();
            let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.trial_at.compare_exchange(due, next, set, get) {
                Ok(_) => {
                    self.on_trial.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                // Closed meanwhile.
                Err(0) => return Ok(()),
                Err(_) => {}
            }
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
        let _changing = self.changing.lock();
        self.failures.store(0, Ordering::Relaxed);
        self.clients.clear();
        self.on_trial.store(false, Ordering::Relaxed);
        if self.trial_at.swap(0, Ordering::Relaxed) != 0 {
            self.gauge.set(0);
            self.is_logged_for_few.store(false, Ordering::Relaxed);
            if self.is_logged.swap(false, Ordering::Relaxed) {
                tracing::info!(
                    "the breaker of upstream `{}` is closed: it answers again",
                    self.upstream
                );
            }
        }
    }

    /// A request has failed, after all retries. `client`: who sent it, unless it failed whatever was in
    /// it.
    pub(super) fn note_failed(&self, instant: Instant, client: Option<IpAddr>, settings: &Breaker) {
        let now = millis(instant);
        let _changing = self.changing.lock();
        if self.trial_at.load(Ordering::Relaxed) != 0 {
            self.note_client(client);
            self.log_open_for_everybody();
            // Requests that were under way when it opened say nothing new. That of a client for which it is
            // not open ends the trial as well: it is as good a proof.
            if self.on_trial.swap(false, Ordering::Relaxed) {
                self.trial_at.store(now + span(settings.open), Ordering::Relaxed);
                self.log_open(instant, settings);
            }
            return;
        }
        let first = self.first.load(Ordering::Relaxed);
        let is_first = self.failures.load(Ordering::Relaxed) == 0
            || now.saturating_sub(first) > span(settings.window);
        if is_first {
            self.first.store(now, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            self.clients.clear();
        }
        self.note_client(client);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= settings.failures {
            self.trial_at.store(now + span(settings.open), Ordering::Relaxed);
            self.gauge.set(1);
            self.log_open(instant, settings);
        }
    }

    /// Asked when it opens, and again with each trial that fails: one that opens too soon after the
    /// last time may stay open for long.
    fn log_open(&self, now: Instant, settings: &Breaker) {
        if self.is_logged.load(Ordering::Relaxed) || !self.log_pace.is_due(now, span(settings.open))
        {
            return;
        }
        let for_whom = self.clients.for_whom();
        self.is_logged.store(true, Ordering::Relaxed);
        self.is_logged_for_few.store(!for_whom.is_empty(), Ordering::Relaxed);
        tracing::warn!(
            "the breaker of upstream `{}` is open{for_whom}: {} requests in a row have failed",
            self.upstream,
            self.failures.load(Ordering::Relaxed)
        );
    }

    /// What the log has said of a few clients may come to hold for all while it is open.
    fn log_open_for_everybody(&self) {
        if self.clients.are_everybody() && self.is_logged_for_few.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "the breaker of upstream `{}` is now open for everybody: not only requests of a \
                 few clients fail",
                self.upstream
            );
        }
    }

    fn note_client(&self, client: Option<IpAddr>) {
        match client {
            Some(client) => self.clients.note(client),
            None => self.clients.note_everybody(),
        }
    }

    /// Forgets everything: there is no breaker any more.
    pub(super) fn reset(&self) {
        let _changing = self.changing.lock();
        self.failures.store(0, Ordering::Relaxed);
        self.clients.clear();
        self.trial_at.store(0, Ordering::Relaxed);
        self.on_trial.store(false, Ordering::Relaxed);
        self.gauge.set(0);
        self.is_logged.store(false, Ordering::Relaxed);
        self.is_logged_for_few.store(false, Ordering::Relaxed);
    }
}

fn span(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SETTINGS: Breaker =
        Breaker { failures: 3, window: Duration::from_secs(10), open: Duration::from_secs(2) };

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

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
            let fail = || self.0.note_failed(self.at(millis), Some(CLIENT), &SETTINGS);
            (0..times).for_each(|_| fail());
        }

        fn wait(&self, millis: u64) -> Option<u64> {
            self.wait_of(CLIENT, millis)
        }

        fn wait_of(&self, client: IpAddr, millis: u64) -> Option<u64> {
            let admitted = self.0.admit(self.at(millis), client, &SETTINGS);
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

    #[test]
    fn it_is_open_for_those_whose_requests_have_failed_until_they_are_several() {
        let test = Test::new();
        test.fails(3, 0);
        assert!(test.wait(0).is_some());
        assert_eq!(test.wait_of(OTHER, 0), None);
        test.0.note_failed(test.at(0), Some(OTHER), &SETTINGS);
        assert!(test.wait_of(OTHER, 0).is_some(), "its own has failed as well");
        let third = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
        assert_eq!(test.wait_of(third, 0), None);
        test.0.note_failed(test.at(0), None, &SETTINGS);
        assert!(test.wait_of(third, 0).is_some(), "no request could have been sent");
        test.0.note_answered();
        test.fails(3, 0);
        assert_eq!(test.wait_of(OTHER, 0), None, "it has begun anew");
    }

    #[test]
    fn one_that_opens_again_soon_is_logged_when_a_trial_has_failed() {
        let test = Test::new();
        let is_logged = || test.0.is_logged.load(Ordering::Relaxed);
        test.fails(3, 0);
        assert!(is_logged());
        test.0.note_answered();
        test.fails(3, 100);
        assert!(test.0.is_open() && !is_logged(), "too soon");
        assert_eq!(test.wait(2100), None, "the trial");
        test.fails(1, 2200);
        assert!(is_logged());
        test.0.note_answered();
        assert!(!is_logged());
    }

    #[test]
    fn the_log_says_when_it_is_no_longer_open_for_a_few_only() {
        let test = Test::new();
        let is_for_few = || test.0.is_logged_for_few.load(Ordering::Relaxed);
        test.fails(3, 0);
        assert!(is_for_few());
        test.0.note_failed(test.at(0), Some(OTHER), &SETTINGS);
        assert!(is_for_few(), "two are few");
        test.0.note_failed(test.at(0), None, &SETTINGS);
        assert!(!is_for_few());
        test.0.note_answered();
        (0..3).for_each(|_| test.0.note_failed(test.at(5000), None, &SETTINGS));
        assert!(test.0.is_logged.load(Ordering::Relaxed) && !is_for_few());
    }

    #[test]
    fn an_answer_closes_it_whatever_failed_at_the_same_time() {
        let test = Test::new();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    test.0.note_answered();
                }
            });
            for round in 0..50_000 {
                test.fails(3, round * 5000);
                let _ = test.wait(round * 5000 + 2000);
                test.fails(1, round * 5000 + 2500);
            }
            done.store(true, Ordering::Relaxed);
        });
        test.0.note_answered();
        assert!(!test.0.is_open());
        assert_eq!(test.0.gauge.get(), 0);
    }

    #[test]
    fn nothing_is_left_of_one_that_is_reset() {
        let test = Test::new();
        test.fails(3, 0);
        assert_eq!(test.wait(2000), None, "the trial");
        test.0.reset();
        assert!(!test.0.is_open() && !test.0.is_logged.load(Ordering::Relaxed));
        test.fails(3, 3000);
        test.fails(1, 3500);
        assert_eq!(test.wait(4000), Some(1000), "the last of them was no trial");
    }
}
