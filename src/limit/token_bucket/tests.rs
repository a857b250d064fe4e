//! The token bucket at chosen instants; random ones are in `tests/model`.

use std::time::Duration;

use super::*;

const NOW: Micros = Micros(1_700_000_000_000_000);

fn bucket(count: u64, period: Duration, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::new(count, period).expect("a rate"), burst).expect("a bucket")
}

fn spend(bucket: &TokenBucket, state: State, now: Micros, cost: u64) -> State {
    bucket.evaluate(state, now, cost).admitted()
}

#[test]
fn a_burst_out_of_range_is_refused() {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    assert_eq!(TokenBucket::new(rate, 0), Err(BurstError::OutOfRange));
    assert_eq!(TokenBucket::new(rate, MAX_BURST + 1), Err(BurstError::OutOfRange));
    let daily = Rate::new(1, Duration::from_secs(86_400)).expect("a rate");
    assert!(TokenBucket::new(daily, 36_525).is_ok());
    assert_eq!(TokenBucket::new(daily, 36_526), Err(BurstError::TooSlow));
}

#[test]
fn rounding_a_token_does_not_show_in_whole_seconds() {
    assert_eq!(bucket(3, Duration::from_secs(1), 3).window_seconds(), Some(1));
    assert_eq!(bucket(600, Duration::from_secs(60), 100).window_seconds(), Some(10));
    assert_eq!(bucket(600, Duration::from_secs(60), 101).window_seconds(), Some(11));
    assert_eq!(bucket(1_000_000_000, Duration::from_secs(1), 1).window_seconds(), Some(1));
}

#[test]
fn rounding_stays_within_a_millionth_of_any_rate() {
    for count in [3, 7, 600_000, 999_999_937, 1_000_000_000] {
        let bucket = bucket(count, Duration::from_secs(1), 1);
        let exact = 1_000_000_u128 << FRACTION_BITS;
        let rounded = bucket.token * u128::from(count);
        assert!(rounded >= exact);
        assert!((rounded - exact) * 1_000_000 < exact, "{count} a second");
    }
}

#[test]
fn a_bucket_further_ahead_than_empty_is_empty() {
    let bucket = bucket(1, Duration::from_secs(1), 5);
    let hour_ahead = State::new(Micros(NOW.0 + 3_600_000_000), 0);
    let clamped = bucket.clamp(hour_ahead, NOW);
    assert_eq!(clamped, State::new(Micros(NOW.0 + 5_000_000), 0));
    let next = Micros(NOW.0 + 1_000_000);
    assert_eq!(bucket.evaluate(hour_ahead, NOW, 1), Verdict::Refuse(Retry::At(next)));
    assert!(matches!(bucket.evaluate(clamped, next, 1), Verdict::Admit(_)));
}

#[test]
fn a_cost_of_zero_changes_nothing() {
    let bucket = bucket(3, Duration::from_secs(1), 3);
    let spent = spend(&bucket, State::default(), NOW, 3);
    assert_eq!(bucket.evaluate(spent, NOW, 0), Verdict::Admit(spent));
    assert_eq!(bucket.clamp(spent, NOW), spent);
}

#[test]
fn a_report_tells_what_is_left_and_when_more_comes() {
    let bucket = bucket(10, Duration::from_secs(1), 5);
    let full = Report { remaining: 5, grows_at: NOW, full_at: NOW };
    assert_eq!(bucket.report(State::default(), NOW), full);

    let spent = spend(&bucket, State::default(), NOW, 2);
    let later = Micros(NOW.0 + 30_000);
    let report = bucket.report(spent, later);
    assert_eq!(report.remaining, 3);
    assert_eq!(report.grows_at, Micros(NOW.0 + 100_000));
    assert_eq!(report.full_at, Micros(NOW.0 + 200_000));
    assert_eq!(bucket.report(spent, report.grows_at).remaining, 4);
}

#[test]
fn a_slow_rate_with_a_large_burst_is_as_exact() {
    let century = bucket(1_000, Duration::from_secs(86_400), 30_000_000);
    let spent = spend(&century, State::default(), NOW, 30_000_000);
    let report = century.report(spent, NOW);
    assert_eq!(report.remaining, 0);
    assert_eq!(report.grows_at, Micros(NOW.0 + 86_400_000));
    let Verdict::Refuse(Retry::At(at)) = century.evaluate(spent, NOW, 29_999_999) else {
        panic!("admitted by an empty bucket");
    };
    assert!(matches!(century.evaluate(spent, at, 29_999_999), Verdict::Admit(_)));
    let before = Micros(at.0 - 1);
    assert!(matches!(century.evaluate(spent, before, 29_999_999), Verdict::Refuse(_)));
}

#[test]
fn what_is_given_back_at_once_leaves_no_trace() {
    let bucket = bucket(3, Duration::from_secs(1), 9);
    let before = spend(&bucket, State::default(), NOW, 4);
    let charged = spend(&bucket, before, NOW, 5);
    assert_eq!(bucket.refund(charged, NOW, 5, NOW), before);
    assert_eq!(bucket.refund(before, NOW, 4, NOW), State::default());
    assert_eq!(bucket.refund(before, NOW, 5, NOW), State::default());
}

/// Two tokens are spent, one refills, and another caller spends two: without the first charge the
/// bucket would have been full then, so it may not look as if only one were spent.
#[test]
fn what_has_refilled_is_not_given_back_again() {
    let bucket = bucket(1, Duration::from_secs(1), 9);
    let charged = spend(&bucket, State::default(), NOW, 2);
    let later = Micros(NOW.0 + 1_000_000);
    let other = spend(&bucket, charged, later, 2);
    let without = spend(&bucket, State::default(), later, 2);
    assert_eq!(bucket.refund(other, later, 2, NOW), without);
    let too_late = Micros(NOW.0 + 2_000_000);
    assert_eq!(bucket.refund(other, too_late, 2, NOW), other);
}

#[test]
fn a_bucket_owes_at_most_all_its_tokens() {
    let bucket = bucket(3, Duration::from_secs(1), 9);
    let spent = spend(&bucket, State::default(), NOW, 7);
    assert_eq!(bucket.charge_after(spent, NOW, 2), spend(&bucket, spent, NOW, 2));
    assert_eq!(bucket.charge_after(spent, NOW, 3), spend(&bucket, spent, NOW, 2));
}

#[test]
fn spans_go_over_the_wire_split_as_a_state_is() {
    let check = |cost| WireCheck { cost, grace: 9, holder: 1, around: NOW };
    let bucket = bucket(3, Duration::from_secs(1), 2);
    let one = spend(&bucket, State::default(), NOW, 1);
    let all = spend(&bucket, one, NOW, 1);
    let [one, all] = [one, all].map(|state| [state.ends_at.0 - NOW.0, state.rest]);
    let args = bucket.wire_args(&check(1));
    assert_eq!(
        args.as_slice(),
        [one, all, all].concat().into_iter().chain([9]).collect::<Vec<_>>()
    );
    assert_eq!(bucket.wire_args(&check(0)).as_slice()[..2], [0, 0]);
    let deeper = bucket.beside(&bucket.with_debt(1));
    assert_eq!(deeper.wire_args(&check(1)).as_slice().len(), 9, "reach differs from deepest");
}

#[test]
fn parts_for_different_costs_forgive_each_other_nothing() {
    let bucket = bucket(1, Duration::from_secs(1), 2);
    let (large, small) = (bucket.share(5, 2), bucket.share(5, 1));
    let spent = spend(&large, State::default(), NOW, 2);
    assert_eq!(spent.ends_at, Micros(NOW.0 + 10_000_000));
    assert_eq!(small.clamp(spent, NOW), spent);
    let refused = small.evaluate(spent, NOW, 1);
    assert_eq!(refused, Verdict::Refuse(Retry::At(Micros(NOW.0 + 10_000_000))));
}

#[test]
fn what_other_numbers_let_a_bucket_owe_is_not_clamped() {
    let (small, large) =
        (bucket(1, Duration::from_secs(1), 2), bucket(1, Duration::from_secs(1), 50));
    let spent = spend(&large, State::default(), NOW, 50);
    assert_eq!(
        small.clamp(spent, NOW),
        state_in_deficit(small.empty, NOW),
        "alone, it is empty at most"
    );
    let (small, large) = (small.beside(&large), large.beside(&small));
    assert_eq!(small.clamp(spent, NOW), spent);
    assert_eq!(small.report(spent, NOW).remaining, 0);
    assert_eq!(
        large.clamp(spent, Micros(NOW.0 - 1)),
        state_in_deficit(large.empty, Micros(NOW.0 - 1))
    );
}
