//! Who may find out whether what has failed is well again, and when.
//!
//! While an upstream or a server is not asked, single requests are its trials. A trial may fail for what
//! is in it, so that its failure says little of the server: another client may then try at once, and only
//! when the trials of several clients have failed do all of them wait again. A client that has had a
//! trial waits for its next one, which delays nobody else's. So no client keeps the trials from others,
//! however often it asks.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::failing_clients::FailingClients;

/// Changed only under the lock of whom they belong to; [`due_for`](Trials::due_for) needs none.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// When the next is due for clients that have had none lately, in milliseconds.
    due: AtomicU64,
    /// When it is for those that have had one.
    due_again: AtomicU64,
    /// Who has had one: the last few clients.
    tried: FailingClients,
    /// Whose have failed since all had to wait.
    failed: FailingClients,
    /// How the last one has ended is not known yet.
    is_under_way: AtomicBool,
}

/// What the failure of a trial leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialFailure {
    /// Its client waits, and another one may try at once.
    OfOneClient,
    /// It was one of several: all clients are to [`wait`](Trials::wait).
    OfSeveralClients,
}

impl Trials {
    /// When a request of that client may be a trial.
    pub(super) fn due_for(&self, client: IpAddr) -> u64 {
        let due = if self.tried.include(client) { &self.due_again } else { &self.due };
        due.load(Ordering::Relaxed)
    }

    /// There are none before that instant, and whose have failed is forgotten.
    pub(super) fn wait(&self, until: u64) {
        self.due.store(until, Ordering::Relaxed);
        self.due_again.store(until, Ordering::Relaxed);
        self.tried.clear();
        self.failed.clear();
        self.is_under_way.store(false, Ordering::Relaxed);
    }

    /// A request of that client is a trial. Others wait until `next` to hear how it ends.
    pub(super) fn begin(&self, client: IpAddr, next: u64) {
        if !self.tried.include(client) {
            self.due.store(next, Ordering::Relaxed);
            self.tried.note(client);
            // Those that have not heard of theirs for so long may try again as others do.
            if self.tried.are_everybody() {
                self.tried.clear();
                self.tried.note(client);
            }
        }
        self.due_again.store(next, Ordering::Relaxed);
        self.is_under_way.store(true, Ordering::Relaxed);
    }

    /// It has ended, whoever had it. False if there was none.
    pub(super) fn end(&self) -> bool {
        self.is_under_way.swap(false, Ordering::Relaxed)
    }

    /// A request of that client has failed. `None` if it was no trial, but under way before: that says
    /// nothing new. `again`: when a client whose trial has failed may try again.
    pub(super) fn fail(&self, client: IpAddr, now: u64, again: u64) -> Option<TrialFailure> {
        if !self.tried.include(client) || !self.end() {
            return None;
        }
        self.failed.note(client);
        if self.failed.are_everybody() {
            return Some(TrialFailure::OfSeveralClients);
        }
        self.due.store(now, Ordering::Relaxed);
        self.due_again.store(again, Ordering::Relaxed);
        Some(TrialFailure::OfOneClient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn a_client_whose_trial_fails_waits_and_another_does_not() {
        let trials = Trials::default();
        trials.wait(100);
        trials.begin(client(1), 200);
        assert_eq!([1, 2].map(|it| trials.due_for(client(it))), [200, 200]);
        assert_eq!(trials.fail(client(1), 120, 220), Some(TrialFailure::OfOneClient));
        assert_eq!([1, 2].map(|it| trials.due_for(client(it))), [220, 120]);
        assert_eq!(trials.fail(client(1), 130, 230), None, "it was under way before");
        trials.begin(client(2), 250);
        assert_eq!(trials.fail(client(3), 140, 240), None, "it had no trial");
    }

    #[test]
    fn a_client_that_tries_again_and_again_delays_nobody_else() {
        let trials = Trials::default();
        trials.wait(100);
        trials.begin(client(1), 200);
        for next in [300, 400, 500] {
            trials.begin(client(1), next);
            assert_eq!([1, 2].map(|it| trials.due_for(client(it))), [next, 200]);
        }
    }

    #[test]
    fn all_wait_when_the_trials_of_several_clients_have_failed() {
        let trials = Trials::default();
        trials.wait(100);
        let fail = |number| {
            trials.begin(client(number), 200);
            trials.fail(client(number), 120, 220)
        };
        let (one, several) = (TrialFailure::OfOneClient, TrialFailure::OfSeveralClients);
        assert_eq!([1, 1, 2, 3, 4].map(fail), [one, one, one, one, several].map(Some));
        trials.wait(300);
        assert_eq!([1, 5].map(|it| trials.due_for(client(it))), [300, 300]);
        assert_eq!(fail(1), Some(one), "it has begun anew");
    }
}
