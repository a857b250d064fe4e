//! Leaving out servers that fail, for a time that grows, until a trial request brings them back.
//!
//! All workers share what is known of a server: one of them finds out, and one request is the trial.
//! A server that cannot be connected to is left out at once, since nothing is lost by asking another.
//! One that is connected to and fails is left out after several failures in a row, and only while
//! most of the upstream's servers are left to take its share. While the failures are those of a few
//! clients, it is left out for these only: see [`FailingClients`].

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::failing_clients::FailingClients;
use crate::clock::millis;
use crate::config::settings::Ejection;

/// What is known of one server's failures.
#[derive(Debug, Default)]
pub(super) struct EjectionState {
    /// Held by whoever changes what follows. A server that one request has left out while the answer to
    /// another brings it back would else be out without a failure, and no answer would bring it back.
    changing: Mutex<()>,
    /// Failures since the last response. Not zero while it is ejected, so that a response to a server
    /// that is well reads this and nothing else.
    failures: AtomicU32,
    /// Whose they were.
    clients: FailingClients,
    /// Until when it is left out, or was last; zero if it never was.
    until: AtomicU64,
    /// Whether it is left out: until then, and from then on but for one trial at a time.
    ejected: AtomicBool,
    /// A request has been sent there since it was left out, to find out.
    on_trial: AtomicBool,
    /// It was left out because there was no connection, so that having one is enough to return.
    unreachable: AtomicBool,
    /// How often it has been left out, without a long good time in between.
    times: AtomicU32,
}

/// What a failure has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Kept,
    /// Left out for so many milliseconds.
    Ejected(u64),
    /// It was left out already, and this was not its trial.
    StillEjected,
    /// Its trial has failed, so that it is left out for so many milliseconds more.
    EjectedAgain(u64),
}

impl EjectionState {
    /// Whether others are to be asked in its place. Once its time is over this is false, for the
    /// request that is to be its trial.
    pub(super) fn is_ejected(&self, now: Instant, client: IpAddr) -> bool {
        self.is_out_for(client) && millis(now) < self.until.load(Ordering::Relaxed)
    }

    /// Whose requests have failed, and so for whom it is left out if it is.
    pub(super) fn clients(&self) -> &FailingClients {
        &self.clients
    }

    /// Whether it is left out for anybody, trials aside.
    pub(super) fn is_out(&self) -> bool {
        self.ejected.load(Ordering::Relaxed)
    }

    /// The same for one client.
    pub(super) fn is_out_for(&self, client: IpAddr) -> bool {
        self.is_out() && self.clients.include(client)
    }

    /// A request goes there. If that is the trial of a server that was left out, others go on
    /// avoiding it until it is known how that has ended, or for as long as it was left out last.
    pub(super) fn note_attempt(&self, now: Instant, client: IpAddr, settings: &Ejection) {
        if !self.is_out_for(client) {
            return;
        }
        let now = millis(now);
        let is_due = || self.until.load(Ordering::Relaxed) <= now;
        if !is_due() {
            return;
        }
        let _changing = self.changing.lock();
        // If another request was faster, that one is the trial, and this one is no harm; or it is back.
        if self.is_out() && is_due() {
            let next = now + duration(settings, self.times.load(Ordering::Relaxed));
            self.until.store(next, Ordering::Relaxed);
            self.on_trial.store(true, Ordering::Relaxed);
        }
    }

    /// A response has come. Whether the server is back because of it.
    #[inline]
    pub(super) fn note_answered(&self) -> bool {
        self.failures.load(Ordering::Relaxed) != 0 && self.readmit()
    }

    /// There is a connection. Whether there was none before.
    pub(super) fn note_connected(&self) -> bool {
        let was_unreachable = self.unreachable.load(Ordering::Relaxed);
        if was_unreachable {
            self.readmit();
        }
        was_unreachable
    }

    /// No connection could be had. A server that has no others beside it stays.
    pub(super) fn note_unreachable(
        &self,
        now: Instant,
        settings: &Ejection,
        has_others: bool,
    ) -> Verdict {
        let _changing = self.changing.lock();
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.unreachable.store(true, Ordering::Relaxed);
        self.clients.note_everybody();
        if has_others { self.eject(now, settings) } else { Verdict::Kept }
    }

    /// A request was sent, and no response came, or none that is HTTP. `may_eject` is asked if that
    /// was one too many, and may only read this state: it is being changed.
    pub(super) fn note_failed(
        &self,
        now: Instant,
        client: IpAddr,
        settings: &Ejection,
        may_eject: impl FnOnce() -> bool,
    ) -> Verdict {
        let _changing = self.changing.lock();
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let too_many = settings.failures > 0 && failures >= settings.failures;
        let ejects = self.is_out_for(client) || (too_many && may_eject());
        // It is left out for all whose requests have failed by then, and for others as theirs do.
        if ejects || !self.is_out() {
            self.clients.note(client);
        }
        if ejects { self.eject(now, settings) } else { Verdict::Kept }
    }

    /// To be called while `changing` is held.
    fn eject(&self, now: Instant, settings: &Ejection) -> Verdict {
        let was_out = self.ejected.swap(true, Ordering::Relaxed);
        // Requests that were under way when it was left out say nothing new; its trial does.
        if was_out && !self.on_trial.swap(false, Ordering::Relaxed) {
            return Verdict::StillEjected;
        }
        let now = millis(now);
        let good_time = u64::try_from(settings.max_time.as_millis()).unwrap_or(u64::MAX);
        if !was_out && now > self.until.load(Ordering::Relaxed).saturating_add(good_time) {
            self.times.store(0, Ordering::Relaxed);
        }
        let times = self.times.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let time = duration(settings, times);
        self.until.store(now + time, Ordering::Relaxed);
        if was_out { Verdict::EjectedAgain(time) } else { Verdict::Ejected(time) }
    }

    fn readmit(&self) -> bool {
        let _changing = self.changing.lock();
        self.failures.store(0, Ordering::Relaxed);
        self.clients.clear();
        self.unreachable.store(false, Ordering::Relaxed);
        let was_on_trial = self.on_trial.swap(false, Ordering::Relaxed);
        let was_out = self.ejected.swap(false, Ordering::Relaxed);
        // It has answered somebody for whom it was not left out. That it was is no mark against it, or one
        // client could have it left out for long for everybody.
        if was_out && !was_on_trial {
            let fewer = |times: u32| times.checked_sub(1);
            let _ = self.times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
        was_out
    }
}

/// How long a server is left out that is left out for the n-th time: twice as long each time.
fn duration(settings: &Ejection, times: u32) -> u64 {
    let doubled = settings.time.saturating_mul(1 << times.saturating_sub(1).min(16));
    u64::try_from(doubled.min(settings.max_time).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn settings() -> Ejection {
        let (time, max_time) = (Duration::from_secs(1), Duration::from_secs(4));
        Ejection { failures: 3, time, max_time, max_percent: 50 }
    }

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn failures_in_a_row_eject_and_a_response_between_them_does_not() {
        let (state, start) = (EjectionState::default(), Instant::now());
        let fail = || state.note_failed(start, CLIENT, &settings(), || true);
        assert_eq!([fail(), fail()], [Verdict::Kept, Verdict::Kept]);
        assert!(!state.note_answered(), "it was not out");
        assert_eq!(
            [fail(), fail(), fail()],
            [Verdict::Kept, Verdict::Kept, Verdict::Ejected(1000)]
        );
        assert!(state.is_ejected(after(start, 900), CLIENT));
        assert!(!state.is_ejected(after(start, 1000), CLIENT), "its trial is due");
    }

    #[test]
    fn one_failed_connection_ejects_and_one_connection_brings_it_back() {
        let (state, start) = (EjectionState::default(), Instant::now());
        assert_eq!(state.note_unreachable(start, &settings(), true), Verdict::Ejected(1000));
        assert!(state.note_connected());
        assert!(!state.is_ejected(start, CLIENT) && !state.is_out());
        for _ in 0..3 {
            state.note_failed(start, CLIENT, &settings(), || true);
        }
        assert!(state.is_out());
        assert!(!state.note_connected(), "a server that accepts and does not answer is not back");
        assert!(state.note_answered());
    }

    #[test]
    fn each_failed_trial_doubles_the_time_up_to_a_bound() {
        let (state, start) = (EjectionState::default(), Instant::now());
        let mut at = 0;
        state.note_unreachable(start, &settings(), true);
        for time in [1000, 2000, 4000, 4000] {
            assert!(state.is_ejected(after(start, at + time - 1), CLIENT), "{time}");
            at += time;
            assert!(!state.is_ejected(after(start, at), CLIENT), "{time}");
            state.note_attempt(after(start, at), CLIENT, &settings());
            assert!(state.is_ejected(after(start, at), CLIENT), "others avoid it during the trial");
            state.note_unreachable(after(start, at), &settings(), true);
        }
    }

    #[test]
    fn answers_to_others_leave_no_mark_of_the_failures_of_one_client() {
        let (state, start) = (EjectionState::default(), Instant::now());
        for _ in 0..9 {
            (0..3).for_each(|_| _ = state.note_failed(start, CLIENT, &settings(), || true));
            assert!(state.is_out_for(CLIENT));
            assert!(state.note_answered());
        }
        assert_eq!(state.note_unreachable(start, &settings(), true), Verdict::Ejected(1000));
    }

    #[test]
    fn an_answer_brings_it_back_whatever_failed_at_the_same_time() {
        let (state, start) = (EjectionState::default(), Instant::now());
        (0..2).for_each(|_| _ = state.note_failed(start, CLIENT, &settings(), || true));
        std::thread::scope(|scope| {
            state.note_failed(start, CLIENT, &settings(), || {
                // After the failure has been counted, and before the server is left out for it.
                let answer = scope.spawn(|| state.note_answered());
                let waits = Instant::now();
                while !answer.is_finished() && waits.elapsed() < Duration::from_millis(200) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                true
            });
        });
        state.note_answered();
        assert!(!state.is_out());
    }

    #[test]
    fn requests_that_were_under_way_do_not_prolong_it() {
        let (state, start) = (EjectionState::default(), Instant::now());
        for _ in 0..20 {
            state.note_failed(start, CLIENT, &settings(), || true);
        }
        assert!(!state.is_ejected(after(start, 1000), CLIENT));
        let fail = |at| state.note_failed(after(start, at), CLIENT, &settings(), || true);
        assert_eq!(fail(1000), Verdict::StillEjected);
        state.note_attempt(after(start, 1000), CLIENT, &settings());
        assert_eq!(fail(1100), Verdict::EjectedAgain(2000));
    }

    #[test]
    fn a_server_that_must_stay_stays() {
        let (state, start) = (EjectionState::default(), Instant::now());
        for _ in 0..20 {
            assert_eq!(state.note_failed(start, CLIENT, &settings(), || false), Verdict::Kept);
        }
        assert!(!state.is_ejected(start, CLIENT));
    }

    #[test]
    fn it_is_left_out_for_those_whose_requests_have_failed_until_they_are_several() {
        let (state, start) = (EjectionState::default(), Instant::now());
        let fail = |client| state.note_failed(start, client, &settings(), || true);
        let failed: Vec<_> = (0..3).map(|_| fail(CLIENT)).collect();
        assert_eq!(failed, [Verdict::Kept, Verdict::Kept, Verdict::Ejected(1000)]);
        assert!(state.is_ejected(start, CLIENT) && !state.is_ejected(start, OTHER));
        let must_stay = state.note_failed(start, OTHER, &settings(), || false);
        assert!(must_stay == Verdict::Kept && !state.is_out_for(OTHER));
        for last in 2..=4 {
            assert!(!state.is_out_for(OTHER), "{last}");
            fail(IpAddr::V4(Ipv4Addr::new(198, 51, 100, last)));
        }
        assert!(state.is_ejected(start, OTHER));
        assert!(state.note_answered() && !state.is_out_for(CLIENT));
    }
}
