//! Leaving out servers that fail, for a time that grows, until a trial request brings them back.
//!
//! All workers share what is known of a server: one of them finds out, and one request is the trial.
//! A server that cannot be connected to is left out at once, since nothing is lost by asking another.
//! One that is connected to and fails is left out after several failures in a row, and only while
//! most of the upstream's servers are left to take its share. While the failures are those of a few
//! clients, it is left out for these only: see [`FailingClients`]. Whose request is the trial: see
//! [`Trials`].

mod backoff;
mod log;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ConnectError;
use super::failing_clients::FailingClients;
use super::trials::{TrialFailure, Trials};
use crate::clock::millis;
use crate::config::settings::Ejection;
use backoff::Backoff;
use log::EjectionLog;

/// What is known of one server's failures.
#[derive(Debug)]
pub(super) struct EjectionState {
    /// Failures since the last response. Not zero while it is ejected, so that a response to a server
    /// that is well reads this and nothing else.
    failures: AtomicU32,
    /// Whose they were, and so for whom it is left out if it is.
    clients: FailingClients,
    /// Whether it is left out, trials aside.
    ejected: AtomicBool,
    /// When one of those for whom it is left out may try again.
    trials: Trials,
    /// It was left out because there was no connection, so that having one is enough to return.
    unreachable: AtomicBool,
    /// Held by whoever changes what is above. A server that one request has left out while the answer to
    /// another brings it back would else be out without a failure, and no answer would bring it back.
    changing: Mutex<Changing>,
}

/// What is needed only where something changes.
#[derive(Debug)]
struct Changing {
    /// For how long it is left out for everybody.
    backoff: Backoff,
    /// The same for a few clients. It is apart, so that what they send makes no outage longer for others.
    few_backoff: Backoff,
    log: EjectionLog,
}

/// What a failure has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EjectionVerdict {
    Kept,
    /// Left out for so many milliseconds.
    Ejected(u64),
    /// It was left out already, and this was not its trial.
    StillEjected,
    /// Its trial has failed, or it has come to be left out for everybody: for so many milliseconds.
    EjectedAgain(u64),
}

impl EjectionState {
    /// `upstream` and `server` name it in the log.
    pub(super) fn new(upstream: &str, server: &str) -> Self {
        EjectionState {
            failures: AtomicU32::new(0),
            clients: FailingClients::default(),
            ejected: AtomicBool::new(false),
            trials: Trials::default(),
            unreachable: AtomicBool::new(false),
            changing: Mutex::new(Changing {
                backoff: Backoff::default(),
                few_backoff: Backoff::default(),
                log: EjectionLog::new(upstream, server),
            }),
        }
    }

    /// Whether others are to be asked in its place. Once a trial is due for that client this is false,
    /// for the request that is to be it.
    pub(super) fn is_ejected(&self, now: Instant, client: IpAddr) -> bool {
        self.is_out_for(client) && millis(now) < self.trials.due_for(client)
    }

    /// Whether it is left out for anybody, trials aside.
    pub(super) fn is_out(&self) -> bool {
        self.ejected.load(Ordering::Relaxed)
    }

    /// The same for one client.
    pub(super) fn is_out_for(&self, client: IpAddr) -> bool {
        self.is_out() && self.clients.include(client)
    }

    /// Whether there was no connection when one was last opened.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// A request goes there. If that is the trial of a server that was left out, others go on
    /// avoiding it until it is known how that has ended, or for as long as it was left out last.
    pub(super) fn note_attempt(&self, now: Instant, client: IpAddr, settings: &Ejection) {
        let now = millis(now);
        let is_trial = || self.is_out_for(client) && self.trials.due_for(client) <= now;
        if !self.is_out() || !is_trial() {
            return;
        }
        let changing = &mut *self.changing.lock();
        // If another request was faster, that one is the trial, and this one is no harm; or it is back.
        if is_trial() {
            let for_all = self.clients.are_everybody();
            let backoff = if for_all { &mut changing.backoff } else { &mut changing.few_backoff };
            // A server that hangs fails no trial for long: that nothing is heard of several is as bad.
            if self.trials.begin(client, now + backoff.time(settings)) {
                self.trials.hold(client, now + backoff.begin(now, settings));
            }
        }
    }

    /// A response to a request of that client has come. Whether the server is back because of it.
    #[inline]
    pub(super) fn note_answered(&self, client: IpAddr) -> bool {
        self.failures.load(Ordering::Relaxed) != 0
            && self.readmit("answers again", |changing| {
                // What others sent has failed for what was in it, and is no mark against the server.
                if !self.clients.include(client) {
                    changing.few_backoff = Backoff::default();
                }
            })
    }

    /// There is a connection. Whether there was none before.
    pub(super) fn note_connected(&self) -> bool {
        let was_unreachable = self.is_unreachable();
        if was_unreachable {
            self.readmit("can be reached again", |_| {});
        }
        was_unreachable
    }

    /// Servers are no longer left out for requests that fail: this one is back if it was.
    pub(super) fn note_turned_off(&self) {
        if self.is_out() && !self.is_unreachable() {
            self.readmit("is asked again: `ejection` is off", |_| {});
        }
    }

    fn readmit(&self, why: &str, change: impl FnOnce(&mut Changing)) -> bool {
        let mut changing = self.changing.lock();
        change(&mut changing);
        if self.clients.are_everybody() {
            changing.few_backoff = Backoff::default();
        }
        self.failures.store(0, Ordering::Relaxed);
        self.clients.clear();
        self.unreachable.store(false, Ordering::Relaxed);
        self.trials.end();
        changing.log.note_back(why);
        self.ejected.swap(false, Ordering::Relaxed)
    }

    /// No connection could be had. A server that has no others beside it stays.
    pub(super) fn note_unreachable(
        &self,
        instant: Instant,
        settings: &Ejection,
        has_others: bool,
        error: &ConnectError,
    ) -> EjectionVerdict {
        let mut changing = self.changing.lock();
        let was_out_for_all = self.is_out() && self.clients.are_everybody();
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.unreachable.store(true, Ordering::Relaxed);
        self.clients.note_everybody();
        changing.log.note_unreachable(instant, error);
        if !has_others {
            EjectionVerdict::Kept
        // Requests that were under way when it was left out say nothing new; its trial does.
        } else if was_out_for_all && !self.trials.end() {
            EjectionVerdict::StillEjected
        } else {
            self.eject(&mut changing, millis(instant), settings, was_out_for_all)
        }
    }

    /// A request was sent, and no response came, or none that is HTTP. `may_eject` is asked if that
    /// was one too many, and may only read this state: it is being changed.
    pub(super) fn note_failed(
        &self,
        instant: Instant,
        client: IpAddr,
        settings: &Ejection,
        may_eject: impl FnOnce() -> bool,
    ) -> EjectionVerdict {
        if !settings.is_on() {
            self.note_turned_off();
            return EjectionVerdict::Kept;
        }
        let mut changing = self.changing.lock();
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let (was_out, was_out_for_client) = (self.is_out(), self.is_out_for(client));
        let was_out_for_all = was_out && self.clients.are_everybody();
        let ejects = was_out_for_client || (failures >= settings.failures && may_eject());
        // It is left out for all whose requests have failed by then, and for others as theirs do.
        if ejects || !was_out {
            self.clients.note(client);
        }
        let verdict = match (ejects, was_out) {
            (false, _) => EjectionVerdict::Kept,
            (true, true) if was_out_for_client => {
                self.fail_trial(&mut changing, millis(instant), client, settings)
            }
            (true, true) if !self.clients.are_everybody() => EjectionVerdict::StillEjected,
            (true, _) => self.eject(&mut changing, millis(instant), settings, was_out_for_all),
        };
        changing.log.note_failed(instant, verdict, &self.clients, settings);
        verdict
    }

    /// A request of a client for which it is left out has failed: its trial, or one from before.
    fn fail_trial(
        &self,
        changing: &mut Changing,
        now: u64,
        client: IpAddr,
        settings: &Ejection,
    ) -> EjectionVerdict {
        let again = changing.few_backoff.next_time(settings);
        match self.trials.fail(client, now, now + again) {
            None => EjectionVerdict::StillEjected,
            Some(TrialFailure::OfOneClient) => {
                EjectionVerdict::EjectedAgain(changing.few_backoff.begin(now, settings))
            }
            Some(TrialFailure::OfSeveralClients) => {
                let is_out_for_all = self.clients.are_everybody();
                self.eject(changing, now, settings, is_out_for_all)
            }
        }
    }

    /// For those whose requests have failed.
    fn eject(
        &self,
        changing: &mut Changing,
        now: u64,
        settings: &Ejection,
        was_out_for_all: bool,
    ) -> EjectionVerdict {
        let for_all = self.clients.are_everybody();
        let backoff = if for_all { &mut changing.backoff } else { &mut changing.few_backoff };
        let was_out = self.ejected.swap(true, Ordering::Relaxed);
        // An outage may begin as that of a few clients: until now it was well for the others.
        if !was_out || (for_all && !was_out_for_all) {
            backoff.forget_if_well(now, settings);
        }
        let time = backoff.begin(now, settings);
        self.trials.wait(now + time);
        if was_out { EjectionVerdict::EjectedAgain(time) } else { EjectionVerdict::Ejected(time) }
    }
}

#[cfg(test)]
impl EjectionState {
    pub(super) fn is_logged(&self) -> bool {
        self.changing.lock().log.says_left_out()
    }

    pub(super) fn is_logged_for_few(&self) -> bool {
        self.changing.lock().log.says_for_few()
    }
}

#[cfg(test)]
mod tests;
