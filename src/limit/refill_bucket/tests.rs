//! The refilled bucket at chosen instants; random ones are in `tests/model`.

use super::*;

const NOW: Micros = Micros(1_700_000_000_000_000);

fn at(micros: u64) -> Micros {
    Micros(NOW.0 + micros)
}

fn bucket(amount: u64, burst: u64) -> RefillBucket {
    RefillBucket::new(Duration::from_secs(1), amount, burst).expect("a bucket")
}

fn spend(bucket: &RefillBucket, state: State, now: Micros, cost: u64) -> State {
    bucket.evaluate(state, now, cost).admitted()
}

#[test]
fn refills_come_at_whole_periods_since_the_first_use() {
    let bucket = bucket(10, 25);
    let mut state = spend(&bucket, State::default(), NOW, 5);
    // The second use does not shift the refills.
    state = spend(&bucket, state, at(700_000), 20);
    let wait = |now, until| {
        assert_eq!(bucket.evaluate(state, now, 1), Verdict::Refuse(Retry::At(until)));
    };
    wait(at(700_000), at(1_000_000));
    wait(at(999_999), at(1_000_000));
    assert_eq!(bucket.report(state, at(1_000_000)).remaining, 10);
    assert_eq!(bucket.report(state, at(2_999_999)).remaining, 20);
    assert_eq!(bucket.report(state, at(3_000_000)).remaining, 25);
    assert_eq!(state.ends_at, at(3_000_000), "and from then on it is as good as none");
}

#[test]
fn a_cost_waits_for_the_refill_that_reaches_it() {
    let bucket = bucket(10, 30);
    let empty = spend(&bucket, State::default(), NOW, 30);
    for (cost, seconds) in [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (30, 3)] {
        let refused = Verdict::Refuse(Retry::At(at(seconds * 1_000_000)));
        assert_eq!(bucket.evaluate(empty, NOW, cost), refused, "{cost}");
        spend(&bucket, empty, at(seconds * 1_000_000), cost);
    }
    assert_eq!(bucket.evaluate(empty, NOW, 31), Verdict::Refuse(Retry::Never));
}

#[test]
fn a_debt_is_paid_off_before_anything_passes() {
    let bucket = bucket(10, 10).with_debt(15);
    let deep = bucket.charge_after(State::default(), NOW, 1_000);
    assert_eq!(bucket.evaluate(deep, NOW, 0), Verdict::Refuse(Retry::At(at(2_000_000))));
    assert_eq!(bucket.evaluate(deep, NOW, 1), Verdict::Refuse(Retry::At(at(2_000_000))));
    assert_eq!(bucket.evaluate(deep, NOW, 6), Verdict::Refuse(Retry::At(at(3_000_000))));
    let report = bucket.report(deep, NOW);
    assert_eq!((report.remaining, report.grows_at), (0, at(2_000_000)));
}

#[test]
fn refunds_put_off_no_refill_and_give_back_all_that_was_not_refilled() {
    let bucket = bucket(10, 100);
    let mut state = spend(&bucket, State::default(), NOW, 50);
    for _ in 0..3 {
        state = spend(&bucket, state, at(300_000), 12);
    }
    for later in [400_000, 500_000, 600_000] {
        state = bucket.refund(state, at(later), 12, at(300_000));
    }
    assert_eq!(state, spend(&bucket, State::default(), NOW, 50), "as if they had not been made");
    // A refill has come since: it would have come without the charge as well.
    state = spend(&bucket, state, at(600_000), 12);
    let late = bucket.refund(state, at(1_000_000), 12, at(600_000));
    assert_eq!(bucket.report(late, at(1_000_000)).remaining, 100 - 50 + 10 - 12 + 2);
    assert_eq!(bucket.report(late, at(1_000_000)).grows_at, at(2_000_000));
    assert_eq!(bucket.refund(state, at(2_000_000), 12, at(600_000)), state);
}

#[test]
fn other_numbers_leave_it_neither_fresh_nor_emptier_than_empty() {
    let spent = spend(&bucket(10, 30), State::default(), NOW, 30);
    for (amount, burst) in [(1, 5), (3, 30), (100, 40), (1_000_000, 1)] {
        let other = bucket(amount, burst);
        let clamped = other.clamp(spent, NOW);
        assert_eq!(other.clamp(clamped, NOW), clamped);
        assert!(other.report(clamped, NOW).remaining < burst, "{amount} {burst}");
        let full = other.report(clamped, NOW).full_at;
        assert_eq!(full, clamped.ends_at);
        assert!(full.0 <= NOW.0 + 1_000_000 * burst.div_ceil(amount));
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let second = Duration::from_secs(1);
    let new = RefillBucket::new;
    assert_eq!(new(Duration::from_micros(999), 1, 1), Err(RefillError::Every));
    assert_eq!(new(second, 0, 1), Err(RefillError::Amount));
    assert_eq!(new(second, 1, MAX_BURST + 1), Err(RefillError::Burst));
    assert_eq!(new(MAX_EVERY, 1, 100), Err(RefillError::TooSlow));
}
