//! What holds for every algorithm, at chosen instants; random ones are in `tests/model`.

use std::time::Duration;

use super::*;
use crate::limit::Rate;

const NOW: Micros = Micros(1_700_000_000_000_000);
const LATER: Micros = Micros(NOW.0 + 1_000_000);

/// Five a minute, by each algorithm.
fn policies() -> [Policy; 5] {
    let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
    [
        Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket")),
        Policy::SlidingWindow(SlidingWindow::new(rate)),
        Policy::FixedWindow(FixedWindow::new(rate)),
        Policy::LeakyBucket(LeakyBucket::new(rate, 5).expect("a bucket")),
        Policy::RefillBucket(RefillBucket::new(Duration::from_secs(60), 1, 5).expect("a bucket")),
    ]
}

#[test]
fn a_clock_that_stepped_back_refunds_nothing() {
    for policy in policies() {
        let spent = policy.charge_after(State::default(), NOW, 3);
        assert_eq!(policy.refund(spent, NOW, 3, LATER), spent);
        assert_eq!(policy.refund(spent, NOW, 3, NOW), State::default());
    }
}

#[test]
fn a_state_that_is_clamped_gets_no_refund() {
    for policy in policies() {
        let spent = policy.charge_after(State::default(), NOW, 5);
        let hour_back = Micros(NOW.0 - 3_600_000_000);
        let clamped = policy.clamp(spent, hour_back);
        assert_ne!(clamped, spent);
        assert_eq!(policy.refund(spent, hour_back, 5, hour_back), clamped);
    }
}

#[test]
fn an_absent_bucket_has_nothing_to_refund() {
    for policy in policies() {
        let nothing = policy.refund(State::default(), LATER, 3, NOW);
        assert_eq!(nothing, State::default());
    }
}

#[test]
fn whatever_is_charged_the_bucket_is_empty_at_most() {
    for policy in policies() {
        let empty = policy.charge_after(State::default(), NOW, policy.quota());
        assert_eq!(policy.charge_after(State::default(), NOW, u64::MAX), empty);
        assert_eq!(policy.charge_after(empty, NOW, u64::MAX), empty);
        assert_eq!(policy.charge_after(empty, NOW, 0), empty);
    }
}
