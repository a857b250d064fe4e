//! The log at chosen instants; random ones are in `tests/model`.

use std::time::Duration;

use super::*;

const NOW: Micros = Micros(1_700_000_000_000_000);

fn at(micros: u64) -> Micros {
    Micros(NOW.0 + micros)
}

/// So many in ten seconds.
fn policy(count: u64) -> SlidingLog {
    SlidingLog::new(Rate::new(count, Duration::from_secs(10)).expect("a rate")).expect("a log")
}

/// Costs at instants, in seconds.
fn log(costs: &[(u64, u64)]) -> Log {
    let mut log = Log::default();
    for (second, cost) in costs {
        log.push(at(second * 1_000_000), *cost);
    }
    log
}

#[test]
fn requests_of_one_microsecond_all_count() {
    let (policy, mut log) = (policy(3), Log::default());
    for left in [2, 1, 0] {
        assert!(matches!(policy.evaluate_log(&log, NOW, 1), Verdict::Admit(_)));
        policy.charge_log(&mut log, NOW, 1);
        assert_eq!(policy.report(policy.sum_up(&log, NOW), NOW).remaining, left);
    }
    let refused = Verdict::Refuse(Retry::At(at(10_000_000)));
    assert_eq!(policy.evaluate_log(&log, NOW, 1), refused);
    assert_eq!(log.entries().len(), 1, "and take the room of one");
}

#[test]
fn a_cost_waits_until_enough_of_the_oldest_have_aged_out() {
    let (policy, log) = (policy(10), log(&[(0, 4), (2, 3), (3, 3)]));
    for (cost, second) in [(1, 10), (4, 10), (5, 12), (7, 12), (8, 13), (10, 13)] {
        let out = at(second * 1_000_000);
        assert_eq!(
            policy.evaluate_log(&log, at(4_000_000), cost),
            Verdict::Refuse(Retry::At(out)),
            "{cost}"
        );
        assert!(matches!(policy.evaluate_log(&log, out, cost), Verdict::Admit(_)), "{cost}");
        let early = Micros(out.0 - 1);
        assert!(matches!(policy.evaluate_log(&log, early, cost), Verdict::Refuse(_)), "{cost}");
    }
    assert_eq!(policy.evaluate_log(&log, NOW, 11), Verdict::Refuse(Retry::Never));
}

#[test]
fn what_has_aged_out_is_forgotten_with_the_next_charge() {
    let (policy, mut log) = (policy(10), log(&[(0, 4), (2, 3), (3, 3)]));
    policy.charge_log(&mut log, at(12_000_000), 2);
    let left: Vec<_> = log.entries().collect();
    assert_eq!(left, [(at(3_000_000), 3), (at(12_000_000), 2)]);
    assert_eq!(policy.sum_up(&log, at(12_000_000)).rest, 5);
}

#[test]
fn a_clock_that_stepped_back_leaves_what_was_used_in_use_for_one_window() {
    let (policy, mut log) = (policy(10), log(&[(0, 4), (20, 3), (30, 3)]));
    let now = at(5_000_000);
    assert!(policy.clamp_log(&mut log, at(40_000_000), now));
    assert!(!policy.clamp_log(&mut log, at(15_000_000), now));
    let left: Vec<_> = log.entries().collect();
    assert_eq!(left, [(at(0), 4), (now, 6)]);
}

#[test]
fn what_has_aged_out_under_a_shorter_period_is_gone_when_it_becomes_longer_again() {
    let (long, mut log) = (policy(10), log(&[(0, 4), (4, 3)]));
    let short = SlidingLog::new(Rate::new(10, Duration::from_secs(2)).expect("a rate"));
    let (short, now) = (short.expect("a log"), at(5_000_000));
    assert!(short.clamp_log(&mut log, at(14_000_000), now));
    assert_eq!(
        short.sum_up(&log, now),
        State { ends_at: at(6_000_000), rest: 3, grows_at: at(6_000_000) }
    );
    assert!(long.clamp_log(&mut log, at(6_000_000), now));
    assert_eq!(long.sum_up(&log, now).rest, 3);
}

#[test]
fn what_is_given_back_is_taken_from_its_own_instant() {
    let (policy, mut log) = (policy(10), log(&[(0, 4), (2, 3), (3, 3)]));
    policy.refund_log(&mut log, at(3_000_000), 1, at(2_000_000));
    policy.refund_log(&mut log, at(3_000_000), 9, at(3_000_000));
    policy.refund_log(&mut log, at(3_000_000), 9, at(1_000_000));
    let left: Vec<_> = log.entries().collect();
    assert_eq!(left, [(at(0), 4), (at(2_000_000), 2)]);
}

#[test]
fn debts_are_bounded_and_age_out_as_everything_does() {
    let (policy, mut log) = (policy(10).with_debt(5), Log::default());
    policy.charge_log(&mut log, NOW, 1_000);
    assert_eq!(policy.sum_up(&log, NOW).rest, 15);
    let out = Verdict::Refuse(Retry::At(at(10_000_000)));
    assert_eq!(policy.evaluate_log(&log, NOW, 0), out, "nothing passes while it is in debt");
    assert!(matches!(policy.evaluate_log(&log, at(10_000_000), 10), Verdict::Admit(_)));
}

#[test]
fn a_charge_after_the_fact_counts_for_a_whole_period_also_in_a_full_log() {
    let (policy, mut log) = (policy(10), log(&[(0, 7), (3, 3)]));
    policy.charge_log(&mut log, at(4_000_000), 2);
    let left: Vec<_> = log.entries().collect();
    assert_eq!(left, [(at(0), 5), (at(3_000_000), 3), (at(4_000_000), 2)]);
    let retry = Verdict::Refuse(Retry::At(at(14_000_000)));
    assert_eq!(policy.evaluate_log(&log, at(4_000_000), 10), retry);
    policy.charge_log(&mut log, at(5_000_000), 99);
    assert_eq!(log.entries().collect::<Vec<_>>(), [(at(5_000_000), 10)]);
}

#[test]
fn a_state_counts_as_much_as_the_log_it_was_made_of() {
    let (policy, log) = (policy(10), log(&[(0, 4), (2, 3), (3, 3)]));
    let (now, last) = (at(4_000_000), at(13_000_000));
    let state = policy.sum_up(&log, now);
    assert_eq!(state, State { ends_at: last, rest: 10, grows_at: at(10_000_000) });
    assert_eq!(policy.evaluate(state, now, 1), Verdict::Refuse(Retry::At(last)));
    assert!(matches!(policy.evaluate(state, last, 10), Verdict::Admit(_)));
}

#[test]
fn what_is_left_grows_once_the_debt_has_aged_out() {
    let (policy, mut log) = (policy(10).with_debt(10), log(&[(0, 4), (2, 3), (3, 3)]));
    let grows =
        |log: &Log| policy.report(policy.sum_up(log, at(4_000_000)), at(4_000_000)).grows_at;
    assert_eq!(grows(&log), at(10_000_000));
    policy.charge_log(&mut log, at(4_000_000), 5);
    assert_eq!(grows(&log), at(12_000_000));
    policy.charge_log(&mut log, at(4_000_000), 5);
    assert_eq!(grows(&log), at(14_000_000), "when all but what was owed is out");
}
