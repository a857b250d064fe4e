use super::*;

/// Five in ten seconds; a minute's warning.
const GUARD: GuardNumbers =
    GuardNumbers { window_us: 10_000_000, threshold: 5, penalty_us: 60_000_000 };

fn second(seconds: u64) -> Micros {
    Micros(seconds * 1_000_000)
}

/// One request a time, `count` times at that second.
fn send(mut state: GuardState, at: u64, count: u64) -> GuardState {
    for _ in 0..count {
        state = GUARD.count(state, second(at), 1);
    }
    state
}

#[test]
fn the_request_that_exceeds_the_threshold_is_the_offence() {
    let state = send(GuardState::default(), 3, 5);
    assert_eq!(state.stage, GuardStage::Clean);
    let state = send(state, 4, 1);
    assert_eq!((state.stage, state.until), (GuardStage::Warned, second(64)));
    let state = send(state, 12, 3);
    assert_eq!((state.count, state.offence_count), (3, 6), "it stays known how many those were");
}

#[test]
fn a_window_is_one_offence_however_many_come() {
    let state = send(GuardState::default(), 3, 500);
    assert_eq!((state.stage, state.count), (GuardStage::Warned, 500));
}

#[test]
fn an_offence_in_a_later_window_while_warned_blocks_for_twice_as_long() {
    let state = send(GuardState::default(), 3, 6);
    let state = send(state, 12, 6);
    assert_eq!((state.stage, state.until), (GuardStage::Blocked, second(132)));
    // What is refused is not counted, and does not make it last longer.
    assert_eq!(send(state, 100, 50), GUARD.at(state, second(100)));
}

#[test]
fn an_offence_after_the_warning_is_a_first_one_again() {
    let state = send(GuardState::default(), 3, 6);
    let state = send(state, 70, 6);
    assert_eq!((state.stage, state.until), (GuardStage::Warned, second(130)));
}

#[test]
fn a_key_is_clean_when_its_block_ends() {
    let state = send(send(GuardState::default(), 3, 6), 12, 6);
    let clean = GUARD.at(state, second(132));
    assert_eq!((clean.stage, clean.count), (GuardStage::Clean, 0));
    assert_eq!(send(clean, 132, 5).stage, GuardStage::Clean);
    assert_eq!(send(clean, 132, 6).stage, GuardStage::Warned);
}

#[test]
fn a_block_that_ends_within_its_window_leaves_nothing_counted() {
    let short = GuardNumbers { penalty_us: 1_000_000, ..GUARD };
    let mut state = short.count(GuardState::default(), second(9), 6);
    state = short.count(state, Micros(9_500_000), 0);
    state = short.merge(state, short.count(state, second(10), 0), second(10));
    let state = GuardState { stage: GuardStage::Warned, until: second(12), ..state };
    let blocked = short.count(state, second(11), 6);
    assert_eq!((blocked.stage, blocked.until), (GuardStage::Blocked, second(13)));
    let after = short.count(blocked, second(13), 5);
    assert_eq!((after.stage, after.count), (GuardStage::Clean, 5));
}

#[test]
fn a_clock_that_steps_back_neither_forgets_nor_adds_a_window() {
    let state = send(GuardState::default(), 13, 5);
    let back = send(state, 3, 1);
    assert_eq!((back.stage, back.window_end), (GuardStage::Warned, second(20)));
}

#[test]
fn a_clock_that_is_set_back_far_neither_stops_a_guard_nor_makes_penalties_longer() {
    let far = 1_000_000;
    let warned = send(GuardState::default(), far + 3, 6);
    let blocked = send(warned, far + 13, 6);
    for (state, stage, seconds) in
        [(warned, GuardStage::Warned, 60), (blocked, GuardStage::Blocked, 120)]
    {
        let back = GUARD.at(state, second(5));
        assert_eq!((back.stage, back.until, back.count), (stage, second(5 + seconds), 0));
    }
    // An offence that seems to come is none of the windows after the next one.
    let back = GUARD.at(warned, second(5));
    assert_eq!(send(back, 25, 6).stage, GuardStage::Blocked);
    let lifted = GUARD.at(GUARD.lift(warned, second(far + 4)), second(5));
    assert_eq!(send(lifted, 6, 6).stage, GuardStage::Warned);
    assert_eq!(GUARD.merge(send(lifted, 6, 6), lifted, second(7)).stage, GuardStage::Warned);
}

#[test]
fn a_guard_with_a_shorter_window_counts_in_that_from_then_on() {
    let hour = GuardNumbers { window_us: 3_600_000_000, ..GUARD };
    let state = hour.count(GuardState::default(), second(3), 5);
    let state = send(state, 4, 5);
    assert_eq!((state.stage, state.window_end, state.count), (GuardStage::Clean, second(10), 5));
    let warned = hour.count(state, second(5), 6);
    assert_eq!((warned.stage, warned.offence), (GuardStage::Warned, second(3_600)));
    let warned = GUARD.at(warned, second(6));
    assert_eq!(send(warned, 25, 6).stage, GuardStage::Blocked);
}

#[test]
fn what_was_lifted_does_not_come_back_by_hearsay() {
    let warned = send(GuardState::default(), 3, 6);
    let lifted = GUARD.lift(warned, second(5));
    assert_eq!((lifted.stage, lifted.count), (GuardStage::Clean, 0));
    for (here, heard) in [(lifted, warned), (warned, lifted)] {
        let merged = GUARD.merge(here, heard, second(6));
        assert_eq!((merged.stage, merged.lifted), (GuardStage::Clean, second(5)));
    }
    let again = send(lifted, 7, 6);
    for (here, heard) in [(lifted, again), (again, lifted), (again, warned), (warned, again)] {
        let merged = GUARD.merge(here, heard, second(8));
        assert_eq!((merged.stage, merged.until), (GuardStage::Warned, second(67)));
    }
    assert_eq!(GUARD.lift(again, second(5)), again);
}

#[test]
fn two_gateways_that_notice_the_same_offence_notice_one() {
    let (a, b) = (send(GuardState::default(), 3, 6), send(GuardState::default(), 4, 6));
    let merged = GUARD.merge(a, b, second(5));
    assert_eq!((merged.stage, merged.until), (GuardStage::Warned, second(64)));
}

#[test]
fn offences_that_two_gateways_notice_in_two_windows_are_two() {
    let (a, b) = (send(GuardState::default(), 3, 6), send(GuardState::default(), 14, 6));
    assert_eq!(GUARD.merge(a, b, second(15)).stage, GuardStage::Blocked);
    assert_eq!(GUARD.merge(b, a, second(15)).stage, GuardStage::Warned, "an older one is none");
}

#[test]
fn nothing_heard_makes_a_block_weaker() {
    let blocked = send(send(GuardState::default(), 3, 6), 12, 6);
    for heard in [GuardState::default(), send(GuardState::default(), 14, 6)] {
        assert_eq!(GUARD.merge(blocked, heard, second(15)), GUARD.at(blocked, second(15)));
    }
    let heard = GUARD.merge(GuardState::default(), blocked, second(15));
    assert_eq!((heard.stage, heard.offence_count), (blocked.stage, 6));
}
