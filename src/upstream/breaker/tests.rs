//! When it opens and closes, for whom, and what the log says of it.

use std::net::Ipv4Addr;

use super::*;

const SETTINGS: Breaker =
    Breaker { failures: 3, window: Duration::from_secs(10), open: Duration::from_secs(2) };

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn of(client: IpAddr) -> FailureScope {
    FailureScope::Client(client)
}

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
        let fail = || self.0.note_failed(self.at(millis), of(CLIENT), &SETTINGS);
        (0..times).for_each(|_| fail());
    }

    fn is_logged(&self) -> bool {
        self.0.changing.lock().log.has_said()
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
fn a_client_that_fails_the_trial_leaves_the_next_to_others_at_once() {
    for clients in [&[CLIENT, OTHER][..], &[]] {
        let test = Test::new();
        test.fails(2, 0);
        clients.iter().for_each(|client| test.0.note_failed(test.at(0), of(*client), &SETTINGS));
        if clients.is_empty() {
            test.0.note_failed(test.at(0), FailureScope::Everybody, &SETTINGS);
        }
        assert_eq!(test.wait(2000), None, "the trial");
        assert_eq!(test.wait_of(OTHER, 2100), Some(1900), "which has not ended");
        test.fails(1, 2200);
        assert_eq!(test.wait(2300), Some(1900), "its client waits");
        assert_eq!(test.wait_of(OTHER, 2300), None);
    }
}

#[test]
fn a_client_whose_trials_hang_keeps_none_from_others() {
    let test = Test::new();
    test.fails(2, 0);
    test.0.note_failed(test.at(0), FailureScope::Everybody, &SETTINGS);
    assert_eq!(test.wait(2000), None, "the trial");
    for millis in [4000, 6000, 8000] {
        assert_eq!(test.wait(millis), None, "it may try again");
    }
    assert_eq!(test.wait_of(OTHER, 8001), None);
}

#[test]
fn trials_of_several_clients_that_fail_keep_it_open_for_all() {
    let test = Test::new();
    test.fails(2, 0);
    test.0.note_failed(test.at(0), FailureScope::Everybody, &SETTINGS);
    for last in 1..=4 {
        let client = IpAddr::from([198, 51, 100, last]);
        assert_eq!(test.wait_of(client, 2000), None, "{last}");
        test.0.note_failed(test.at(2000), of(client), &SETTINGS);
    }
    assert_eq!(test.wait_of(OTHER, 2000), Some(2000));
    assert_eq!(test.wait_of(OTHER, 4000), None);
    test.0.note_failed(test.at(4100), FailureScope::Everybody, &SETTINGS);
    assert_eq!(test.wait(4100), Some(2000), "no connection could be had, whoever asks");
}

#[test]
fn a_failure_that_another_request_was_counted_for_opens_nothing() {
    let test = Test::new();
    (0..9).for_each(|_| test.0.note_failed(test.at(0), FailureScope::Nobody, &SETTINGS));
    assert!(!test.0.is_open());
}

#[test]
fn it_is_open_for_those_whose_requests_have_failed_until_they_are_several() {
    let test = Test::new();
    test.fails(3, 0);
    assert!(test.wait(0).is_some());
    assert_eq!(test.wait_of(OTHER, 0), None);
    test.0.note_failed(test.at(0), of(OTHER), &SETTINGS);
    assert!(test.wait_of(OTHER, 0).is_some(), "its own has failed as well");
    let third = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
    assert_eq!(test.wait_of(third, 0), None);
    test.0.note_failed(test.at(0), FailureScope::Everybody, &SETTINGS);
    assert!(test.wait_of(third, 0).is_some(), "no request could have been sent");
    test.0.note_answered();
    test.fails(3, 0);
    assert_eq!(test.wait_of(OTHER, 0), None, "it has begun anew");
}

#[test]
fn one_that_opens_again_soon_is_logged_when_a_trial_has_failed() {
    let test = Test::new();
    let is_logged = || test.is_logged();
    // For everybody: what holds for one client is logged once a minute.
    let fails = |times, at| {
        (0..times)
            .for_each(|_| test.0.note_failed(test.at(at), FailureScope::Everybody, &SETTINGS));
    };
    fails(3, 0);
    assert!(is_logged());
    test.0.note_answered();
    fails(3, 100);
    assert!(test.0.is_open() && !is_logged(), "too soon");
    assert_eq!(test.wait(2100), None, "the trial");
    fails(1, 2200);
    assert!(is_logged());
    test.0.note_answered();
    assert!(!is_logged());
}

#[test]
fn the_log_says_when_it_is_no_longer_open_for_a_few_only() {
    let test = Test::new();
    let is_for_few = || test.0.changing.lock().log.has_said_for_few();
    test.fails(3, 0);
    assert!(is_for_few());
    test.0.note_failed(test.at(0), of(OTHER), &SETTINGS);
    assert!(is_for_few(), "two are few");
    test.0.note_failed(test.at(0), FailureScope::Everybody, &SETTINGS);
    assert!(!is_for_few());
    test.0.note_answered();
    (0..3).for_each(|_| test.0.note_failed(test.at(5000), FailureScope::Everybody, &SETTINGS));
    assert!(test.is_logged() && !is_for_few());
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
    assert!(!test.0.is_open() && !test.is_logged());
    test.fails(3, 3000);
    test.fails(1, 3500);
    assert_eq!(test.wait(4000), Some(1000), "the last of them was no trial");
}

#[test]
fn trials_of_both_kinds_are_had_by_each_of_some_clients_that_take_turns() {
    assert_eq!([0, 1].map(kind_of_trial), [BreakerPass::Trial, BreakerPass::TrialOfServer]);
    for clients in 1..=8 {
        for first in 0..clients {
            let mut kinds = (first..64).step_by(clients).map(|it| kind_of_trial(it as u32));
            let one = kinds.next();
            assert!(kinds.any(|it| Some(it) != one), "{first} of {clients}");
        }
    }
}
