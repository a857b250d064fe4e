//! Who may find out whether what has failed is well again, and when.
//!
//! While an upstream or a server is not asked, single requests are its trials. A trial may fail for what
//! is in it, so that its failure says little of the server: another client may then try at once, and only
//! when the trials of several clients have failed do all of them wait again. A client that has had a
//! trial waits for its next one, which delays nobody else's. So no client keeps the trials from others,
//! however often it asks.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::failing_clients::{FailingClients, SEVERAL};

/// Changed only under the lock of whom they belong to; [`due_for`](Trials::due_for) needs none.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// When the next is due for clients that have had none lately, in milliseconds.
    due: AtomicU64,
    /// Who has had one: the last few clients; and when the next is due for each of them.
    tried: FailingClients,
    due_again: [AtomicU64; SEVERAL],
    /// Of each of them: how its trial has ended is not known yet.
    are_unheard: [AtomicBool; SEVERAL],
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
        let due = match self.tried.position(client) {
            Some(at) => &self.due_again[at],
            None => &self.due,
        };
        due.load(Ordering::Relaxed)
    }

    /// There are none before that instant, and whose have failed is forgotten.
    pub(super) fn wait(&self, until: u64) {
        self.due.store(until, Ordering::Relaxed);
        self.forget_tried();
        self.failed.clear();
        self.is_under_way.store(false, Ordering::Relaxed);
    }

    /// A request of that client is a trial. Others wait until `next` to hear how it ends. True if several
    /// clients have had one since, and of the last one nothing was heard.
    pub(super) fn begin(&self, client: IpAddr, next: u64) -> bool {
        let is_unheard = self.is_under_way.swap(true, Ordering::Relaxed);
        let mut are_several = false;
        if self.tried.position(client).is_none() {
            self.due.store(next, Ordering::Relaxed);
            self.tried.note(client);
            // Those that have not heard of theirs for so long may try again as others do.
            if self.tried.are_everybody() {
                are_several = true;
                self.forget_tried();
                self.tried.note(client);
            }
        }
        self.store_due_again(client, next);
        if let Some(at) = self.tried.position(client) {
            self.are_unheard[at].store(true, Ordering::Relaxed);
        }
        are_several && is_unheard
    }

    /// The trial of that client takes longer to be heard of than was thought: others wait until then.
    pub(super) fn hold(&self, client: IpAddr, until: u64) {
        self.due.store(until, Ordering::Relaxed);
        self.store_due_again(client, until);
    }

    fn forget_tried(&self) {
        self.tried.clear();
        self.are_unheard.iter().for_each(|it| it.store(false, Ordering::Relaxed));
    }

    fn store_due_again(&self, client: IpAddr, due: u64) {
        if let Some(at) = self.tried.position(client) {
            self.due_again[at].store(due, Ordering::Relaxed);
        }
    }

    /// It has ended, whoever had it. False if there was none.
    pub(super) fn end(&self) -> bool {
        self.is_under_way.swap(false, Ordering::Relaxed)
    }

    /// A request of that client has failed. `None` if it was no trial, but under way before: that says
    /// nothing new, and the trial of another goes on. `again`: when a client whose trial has failed may try
    /// again.
    pub(super) fn fail(&self, client: IpAddr, now: u64, again: u64) -> Option<TrialFailure> {
        let at = self.tried.position(client)?;
        if !self.are_unheard[at].swap(false, Ordering::Relaxed) {
            return None;
        }
        self.end();
        self.failed.note(client);
        if self.failed.are_everybody() {
            return Some(TrialFailure::OfSeveralClients);
        }
        self.due.store(now, Ordering::Relaxed);
        self.store_due_again(client, again);
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
    fn a_request_from_before_ends_no_trial_of_another_client() {
        let trials = Trials::default();
        trials.wait(100);
        trials.begin(client(1), 200);
        trials.fail(client(1), 120, 220);
        trials.begin(client(2), 250);
        assert_eq!(trials.fail(client(1), 130, 230), None, "it was under way before");
        assert_eq!([1, 2, 3].map(|it| trials.due_for(client(it))), [220, 250, 250]);
        assert_eq!(trials.fail(client(2), 140, 240), Some(TrialFailure::OfOneClient));
    }

    #[test]
    fn a_trial_that_fails_after_another_has_begun_counts_as_well() {
        let trials = Trials::default();
        trials.wait(100);
        trials.begin(client(1), 200);
        trials.begin(client(2), 300);
        let one = Some(TrialFailure::OfOneClient);
        assert_eq!([1, 2].map(|it| trials.fail(client(it), 310, 410)), [one, one]);
        assert_eq!([1, 2].map(|it| trials.fail(client(it), 320, 420)), [None, None]);
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
    fn a_client_that_fails_its_trials_puts_off_those_of_no_other_that_has_had_one() {
        let trials = Trials::default();
        trials.wait(100);
        for number in [1, 2] {
            trials.begin(client(number), 200);
            trials.fail(client(number), 120, 220);
        }
        for again in [320, 420, 520] {
            trials.begin(client(1), again);
            trials.fail(client(1), again - 100, again);
            assert_eq!([1, 2].map(|it| trials.due_for(client(it))), [again, 220]);
        }
    }

    #[test]
    fn several_trials_of_which_nothing_is_heard_are_noticed() {
        let trials = Trials::default();
        trials.wait(100);
        let begin = |number| trials.begin(client(number), 200);
        assert_eq!([1, 2, 3, 3].map(begin), [false; 4]);
        assert!(begin(4));
        trials.hold(client(4), 900);
        assert_eq!([4, 5].map(|it| trials.due_for(client(it))), [900, 900]);
        trials.wait(100);
        for number in [1, 2, 3, 4] {
            assert!(!trials.begin(client(number), 200), "all others are heard of");
            trials.end();
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
