use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_millis(20);
const FAST: Duration = Duration::from_millis(3);
const SLOW: Duration = Duration::from_millis(30);

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

/// Probes as they are made, one after another, until one passes or there are no more.
fn passes(answers: impl Iterator<Item = Duration>, probation: Duration) -> Option<Duration> {
    let (start, mut trial) = (Instant::now(), RecoveryTrial::new(TIMEOUT));
    let mut now = start;
    for took in answers {
        now += took;
        match trial.add(took, now, probation) {
            TrialResult::Passed(_) => return Some(now.duration_since(start)),
            _ => now += pause(probation),
        }
    }
    None
}

#[test]
fn several_answers_in_a_row_have_to_be_in_time() {
    let mut trial = RecoveryTrial::new(TIMEOUT);
    let now = Instant::now();
    let mut add = |took| trial.add(took, now, Duration::ZERO);
    for _ in 0..PROBES - 1 {
        assert_eq!(add(TIMEOUT), TrialResult::Undecided);
    }
    assert_eq!(add(TIMEOUT + Duration::from_nanos(1)), TrialResult::Undecided, "one is late");
    for _ in 0..PROBES - 1 {
        assert_eq!(add(FAST), TrialResult::Undecided);
    }
    assert!(matches!(add(FAST), TrialResult::Passed(typical) if typical < TIMEOUT));
}

#[test]
fn three_late_answers_in_a_row_show_that_it_is_too_slow_and_by_how_much() {
    let mut trial = RecoveryTrial::new(TIMEOUT);
    let now = Instant::now();
    let mut add = |took| trial.add(took, now, Duration::ZERO);
    assert_eq!([add(SLOW), add(SLOW)], [TrialResult::Undecided; 2]);
    assert_eq!([add(SLOW), add(SLOW)], [TrialResult::TooSlow(SLOW); 2]);
    assert_eq!(add(FAST), TrialResult::Undecided);
}

#[test]
fn a_redis_that_alternates_is_found_out() {
    let mut trial = RecoveryTrial::new(TIMEOUT);
    let now = Instant::now();
    let outcomes = (0..20).map(|it| if it % 2 == 0 { SLOW } else { FAST });
    let outcomes: Vec<_> = outcomes.map(|it| trial.add(it, now, Duration::ZERO)).collect();
    assert!(outcomes.iter().any(|it| matches!(it, TrialResult::TooSlow(_))), "{outcomes:?}");
    assert!(!outcomes.iter().any(|it| matches!(it, TrialResult::Passed(_))), "{outcomes:?}");
}

#[test]
fn an_answer_late_now_and_then_does_not_keep_it_out() {
    for probation in [0.0, 0.5, 2.0, 8.0, 60.0].map(seconds) {
        let answers = (0..10_000).map(|it| if it % 40 == 7 { SLOW } else { FAST });
        let took = passes(answers, probation).expect("it comes back");
        assert!(took <= probation * 3 / 2 + seconds(0.5), "{took:?} for {probation:?}");
    }
}

#[test]
fn relapses_make_it_wait_longer_up_to_a_bound_and_good_times_start_over() {
    let mut relapses = Relapses::default();
    let mut now = Instant::now();
    relapses.opened(true, now);
    let mut waits = vec![relapses.probation()];
    for _ in 0..40 {
        relapses.closed(now);
        now += HEALTHY - Duration::from_millis(1);
        relapses.opened(true, now);
        waits.push(relapses.probation());
    }
    assert_eq!(waits[..7], [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0].map(seconds));
    assert_eq!(waits.last(), Some(&LONGEST_PROBATION));
    relapses.closed(now);
    relapses.opened(true, now + HEALTHY);
    assert_eq!(relapses.probation(), Duration::ZERO);
}

#[test]
fn an_outage_of_another_kind_is_no_relapse() {
    let now = Instant::now();
    let relapsed = || {
        let mut relapses = Relapses::default();
        for _ in 0..12 {
            relapses.closed(now);
            relapses.opened(true, now);
        }
        assert_eq!(relapses.probation(), LONGEST_PROBATION);
        relapses
    };
    let mut relapses = relapsed();
    relapses.failed(true);
    assert_eq!(relapses.probation(), LONGEST_PROBATION);
    relapses.failed(false);
    assert_eq!(relapses.probation(), Duration::ZERO, "it went away while it was too slow");
    let mut relapses = relapsed();
    relapses.closed(now);
    relapses.opened(false, now);
    assert_eq!(relapses.probation(), Duration::ZERO, "it was gone, not slow");
}

#[test]
fn a_close_that_fails_is_a_relapse() {
    let mut relapses = Relapses::default();
    relapses.opened(true, Instant::now());
    relapses.half_close_failed(true);
    relapses.half_close_failed(true);
    assert_eq!(relapses.probation(), seconds(0.5));
    relapses.half_close_failed(false);
    assert_eq!(relapses.probation(), Duration::ZERO);
}

proptest! {
    #[test]
    fn whatever_came_before_it_passes_only_after_answers_in_time_for_long_enough(
        probation in 0_u64..3000,
        answers in prop::collection::vec((1_u64..60, 0_u64..40), 1..300),
    ) {
        let probation = Duration::from_millis(probation);
        let (mut now, mut trial) = (Instant::now(), RecoveryTrial::new(TIMEOUT));
        let (mut in_time, mut late, mut began) = (0, 0, None);
        for (took, pause) in answers {
            let took = Duration::from_millis(took);
            now += took;
            let outcome = trial.add(took, now, probation);
            if took > TIMEOUT {
                (in_time, late) = (0, late + 1);
                prop_assert!(!matches!(outcome, TrialResult::Passed(_)));
                prop_assert!(late < 3 || matches!(outcome, TrialResult::TooSlow(_)));
            } else {
                (in_time, late) = (in_time + 1, 0);
                began.get_or_insert(now);
                prop_assert!(!matches!(outcome, TrialResult::TooSlow(_)));
            }
            if matches!(outcome, TrialResult::TooSlow(_)) {
                began = None;
            }
            let long = began.is_some_and(|it| now.duration_since(it) >= probation);
            let passed = matches!(outcome, TrialResult::Passed(_));
            prop_assert_eq!(passed, in_time >= PROBES && long);
            now += Duration::from_millis(pause);
        }
    }

    #[test]
    fn a_redis_that_has_become_fast_passes_soon(
        before in prop::collection::vec(1_u64..200, 0..100),
        relapses in 0_u32..3,
    ) {
        let probation =
            if relapses == 0 { Duration::ZERO } else { FIRST_PROBATION * 2_u32.pow(relapses - 1) };
        let (mut now, mut trial) = (Instant::now(), RecoveryTrial::new(TIMEOUT));
        for took in before {
            now += Duration::from_millis(took);
            trial.add(Duration::from_millis(took), now, probation);
        }
        let returned = now;
        loop {
            now += FAST;
            if let TrialResult::Passed(_) = trial.add(FAST, now, probation) {
                break;
            }
            now += pause(probation);
            prop_assert!(now.duration_since(returned) < seconds(3.0));
        }
    }
}
