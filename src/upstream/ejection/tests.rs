//! When a server is left out, for whom and for how long.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn settings() -> Ejection {
    let (time, max_time) = (Duration::from_secs(1), Duration::from_secs(4));
    Ejection { failures: 3, time, max_time, max_percent: 50 }
}

fn state() -> EjectionState {
    EjectionState::new("api", "server")
}

/// No connection could be had.
fn unreachable(state: &EjectionState, at: Instant) -> EjectionVerdict {
    state.note_unreachable(at, &settings(), true, &ConnectError::TimedOut)
}

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[test]
fn failures_in_a_row_eject_and_a_response_between_them_does_not() {
    let (state, start) = (state(), Instant::now());
    let fail = || state.note_failed(start, CLIENT, &settings(), || true);
    assert_eq!([fail(), fail()], [EjectionVerdict::Kept, EjectionVerdict::Kept]);
    assert!(!state.note_answered(CLIENT), "it was not out");
    assert_eq!(
        [fail(), fail(), fail()],
        [EjectionVerdict::Kept, EjectionVerdict::Kept, EjectionVerdict::Ejected(1000)]
    );
    assert!(state.is_ejected(after(start, 900), CLIENT));
    assert!(!state.is_ejected(after(start, 1000), CLIENT), "its trial is due");
}

#[test]
fn one_failed_connection_ejects_and_one_connection_brings_it_back() {
    let (state, start) = (state(), Instant::now());
    assert_eq!(unreachable(&state, start), EjectionVerdict::Ejected(1000));
    assert!(state.note_connected());
    assert!(!state.is_ejected(start, CLIENT) && !state.is_out());
    for _ in 0..3 {
        state.note_failed(start, CLIENT, &settings(), || true);
    }
    assert!(state.is_out());
    assert!(!state.note_connected(), "a server that accepts and does not answer is not back");
    assert!(state.note_answered(CLIENT));
}

#[test]
fn each_failed_trial_doubles_the_time_up_to_a_bound() {
    let (state, start) = (state(), Instant::now());
    let mut at = 0;
    unreachable(&state, start);
    for time in [1000, 2000, 4000, 4000] {
        assert!(state.is_ejected(after(start, at + time - 1), CLIENT), "{time}");
        at += time;
        assert!(!state.is_ejected(after(start, at), CLIENT), "{time}");
        state.note_attempt(after(start, at), CLIENT, &settings());
        assert!(state.is_ejected(after(start, at), CLIENT), "others avoid it during the trial");
        unreachable(&state, after(start, at));
    }
}

#[test]
fn answers_to_others_leave_no_mark_of_the_failures_of_one_client() {
    let (state, start) = (state(), Instant::now());
    for _ in 0..9 {
        (0..3).for_each(|_| _ = state.note_failed(start, CLIENT, &settings(), || true));
        assert!(state.is_out_for(CLIENT));
        assert!(state.note_answered(OTHER));
    }
    assert_eq!(unreachable(&state, start), EjectionVerdict::Ejected(1000));
}

#[test]
fn trials_of_one_client_that_fail_make_no_outage_longer_for_others() {
    let (state, start) = (state(), Instant::now());
    let fail = |at| state.note_failed(after(start, at), CLIENT, &settings(), || true);
    (0..3).for_each(|_| _ = fail(0));
    let mut at = 0;
    for (time, next) in [(1000, 2000), (2000, 4000), (4000, 4000)] {
        at += time;
        state.note_attempt(after(start, at), CLIENT, &settings());
        assert_eq!(fail(at), EjectionVerdict::EjectedAgain(next));
    }
    state.note_attempt(after(start, at + 4000), CLIENT, &settings());
    assert!(state.note_answered(OTHER), "during its trial");
    assert_eq!(unreachable(&state, after(start, at + 4000)), EjectionVerdict::Ejected(1000));
}

#[test]
fn an_outage_is_no_longer_for_what_one_client_has_sent_before() {
    let (state, start) = (state(), Instant::now());
    let fail = |at| state.note_failed(after(start, at), CLIENT, &settings(), || true);
    (0..3).for_each(|_| _ = fail(0));
    state.note_attempt(after(start, 1000), CLIENT, &settings());
    assert_eq!(fail(1000), EjectionVerdict::EjectedAgain(2000));
    assert_eq!(unreachable(&state, after(start, 1100)), EjectionVerdict::EjectedAgain(1000));
    assert!(state.is_ejected(after(start, 2099), OTHER));
    assert!(!state.is_ejected(after(start, 2100), OTHER));
}

#[test]
fn an_outage_is_as_long_as_the_first_when_the_last_was_over_long_ago_whoever_notices_it_first() {
    let ip = |last| IpAddr::from([198, 51, 100, last]);
    for (later, time) in [(1_000_000, 1000), (16_000, 4000)] {
        let out_for_one = || {
            let (state, start) = (state(), Instant::now());
            for at in [0, 1000, 3000, 7000, 11_000] {
                state.note_attempt(after(start, at), CLIENT, &settings());
                unreachable(&state, after(start, at));
            }
            assert!(state.note_answered(CLIENT));
            let again = after(start, later);
            let fail = |_| state.note_failed(again, ip(1), &settings(), || true);
            assert_eq!((0..3).map(fail).last(), Some(EjectionVerdict::Ejected(1000)));
            (state, after(again, 100))
        };
        let (state, then) = out_for_one();
        assert_eq!(unreachable(&state, then), EjectionVerdict::EjectedAgain(time), "no connection");
        let (state, then) = out_for_one();
        let fail = |last| state.note_failed(then, ip(last), &settings(), || true);
        assert_eq!(
            (2..=4).map(fail).last(),
            Some(EjectionVerdict::EjectedAgain(time)),
            "four clients"
        );
    }
}

#[test]
fn a_client_that_fails_the_trial_leaves_the_next_to_others_at_once() {
    let (state, start) = (state(), Instant::now());
    let ip = |last| IpAddr::from([198, 51, 100, last]);
    let fail = |at, client| state.note_failed(after(start, at), client, &settings(), || true);
    let is_ejected = |at, client| state.is_ejected(after(start, at), client);
    (1..=4).for_each(|last| _ = fail(0, ip(last)));
    assert!(is_ejected(999, ip(9)));
    state.note_attempt(after(start, 1000), ip(1), &settings());
    assert!(is_ejected(1001, ip(9)), "it is not known how the trial ends");
    fail(1100, ip(1));
    assert!(is_ejected(1100, ip(1)) && !is_ejected(1100, ip(9)));
    for last in 2..=4 {
        state.note_attempt(after(start, 1200), ip(last), &settings());
        let several = last == 4;
        let verdict = fail(1200, ip(last));
        assert_eq!(verdict == EjectionVerdict::EjectedAgain(2000), several, "{last}: {verdict:?}");
        assert_eq!(is_ejected(1200, ip(9)), several);
    }
    assert!(is_ejected(3199, ip(9)) && !is_ejected(3200, ip(9)));
}

#[test]
fn a_client_whose_trials_hang_keeps_none_from_others() {
    let (state, start) = (state(), Instant::now());
    let ip = |last| IpAddr::from([198, 51, 100, last]);
    (1..=4).for_each(|last| {
        state.note_failed(start, ip(last), &settings(), || true);
    });
    for at in [1000, 2000, 3000] {
        assert!(!state.is_ejected(after(start, at), ip(1)));
        state.note_attempt(after(start, at), ip(1), &settings());
    }
    assert!(!state.is_ejected(after(start, 3001), ip(9)));
}

#[test]
fn a_server_that_is_out_is_back_once_none_may_be() {
    let (state, start) = (state(), Instant::now());
    let off = Ejection { failures: 0, ..settings() };
    (0..3).for_each(|_| _ = state.note_failed(start, CLIENT, &settings(), || true));
    assert!(state.is_out());
    state.note_failed(start, CLIENT, &off, || true);
    assert!(!state.is_out(), "by a worker that has heard of it");
    unreachable(&state, start);
    state.note_failed(start, CLIENT, &off, || true);
    state.note_turned_off();
    assert!(state.is_out(), "one without a connection is left out all the same");
}

#[test]
fn an_answer_brings_it_back_whatever_failed_at_the_same_time() {
    // Each round is another chance for the answer to come in between.
    for _ in 0..100 {
        let (state, start) = (&state(), Instant::now());
        (0..2).for_each(|_| _ = state.note_failed(start, CLIENT, &settings(), || true));
        std::thread::scope(|scope| {
            state.note_failed(start, CLIENT, &settings(), || {
                // After the failure has been counted, and before the server is left out for it.
                let (begins, begun) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    begins.send(()).unwrap();
                    state.note_answered(CLIENT);
                });
                begun.recv().is_ok()
            });
        });
        state.note_answered(CLIENT);
        assert!(!state.is_out());
    }
}

#[test]
fn requests_that_were_under_way_do_not_prolong_it() {
    let (state, start) = (state(), Instant::now());
    for _ in 0..20 {
        state.note_failed(start, CLIENT, &settings(), || true);
    }
    assert!(!state.is_ejected(after(start, 1000), CLIENT));
    let fail = |at| state.note_failed(after(start, at), CLIENT, &settings(), || true);
    assert_eq!(fail(1000), EjectionVerdict::StillEjected);
    state.note_attempt(after(start, 1000), CLIENT, &settings());
    assert_eq!(fail(1100), EjectionVerdict::EjectedAgain(2000));
}

#[test]
fn a_server_that_must_stay_stays() {
    let (state, start) = (state(), Instant::now());
    for _ in 0..20 {
        assert_eq!(state.note_failed(start, CLIENT, &settings(), || false), EjectionVerdict::Kept);
    }
    assert!(!state.is_ejected(start, CLIENT));
}

#[test]
fn it_is_left_out_for_those_whose_requests_have_failed_until_they_are_several() {
    let (state, start) = (state(), Instant::now());
    let fail = |client| state.note_failed(start, client, &settings(), || true);
    let failed: Vec<_> = (0..3).map(|_| fail(CLIENT)).collect();
    assert_eq!(
        failed,
        [EjectionVerdict::Kept, EjectionVerdict::Kept, EjectionVerdict::Ejected(1000)]
    );
    assert!(state.is_ejected(start, CLIENT) && !state.is_ejected(start, OTHER));
    let must_stay = state.note_failed(start, OTHER, &settings(), || false);
    assert!(must_stay == EjectionVerdict::Kept && !state.is_out_for(OTHER));
    for last in 2..=4 {
        assert!(!state.is_out_for(OTHER), "{last}");
        fail(IpAddr::V4(Ipv4Addr::new(198, 51, 100, last)));
    }
    assert!(state.is_ejected(start, OTHER));
    assert!(state.note_answered(CLIENT) && !state.is_out_for(CLIENT));
}
