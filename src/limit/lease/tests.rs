use std::time::Duration;

use smallvec::smallvec;

use super::*;
use crate::limit::Rate;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::refill_bucket::RefillBucket;
use crate::limit::token_bucket::TokenBucket;

const SECOND: u64 = 1_000_000;
const START: u64 = 1_794_814_000 * SECOND;

fn bucket(a_second: u64, burst: u64) -> Policy {
    let rate = Rate::new(a_second, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

fn refill(every_ms: u64, amount: u64, burst: u64) -> Policy {
    let bucket = RefillBucket::new(Duration::from_millis(every_ms), amount, burst);
    Policy::RefillBucket(bucket.expect("a bucket"))
}

/// Asks for some units, with nothing held before.
fn ask(units: u64) -> LeaseRequest {
    let steps = smallvec![LeaseStep { units, tested: units, is_enough: true }];
    let (released, taken_at) = (None, Micros(0));
    LeaseRequest { life: SECOND, released, kept: 0, returned: 0, taken_at, steps }
}

/// What is left at an instant.
fn left(leased: &mut LeasedBucket, policy: &Policy, at: u64) -> u64 {
    leased.advance(policy, Micros(at));
    policy.report(leased.state, Micros(at)).remaining
}

#[test]
fn bucket_refills_only_to_what_outstanding_units_leave() {
    for policy in [bucket(100, 50), refill(10, 1, 50)] {
        let mut leased = LeasedBucket::default();
        let reply = leased.exchange(&policy, Micros(START), &ask(20));
        assert_eq!(reply.granted, 20);
        for after in [0, SECOND / 10, SECOND / 2, SECOND] {
            assert_eq!(left(&mut leased, &policy, START + after), 30, "{policy:?} at {after}");
        }
        // A quarter of a second later it has surely ended, and refills from then on.
        let until = reply.until.0;
        assert!((SECOND..=SECOND + SECOND / 4).contains(&(until - START)), "{until}");
        assert_eq!(left(&mut leased, &policy, until + SECOND / 10), 40, "{policy:?}");
        assert_eq!(left(&mut leased, &policy, until + SECOND), 50, "{policy:?}");
        assert!(leased.outstanding.is_empty());
    }
}

#[test]
fn grant_that_ended_long_ago_is_refilled_though_nobody_looked() {
    for policy in [bucket(100, 50), refill(10, 1, 50)] {
        let mut leased = LeasedBucket::default();
        leased.exchange(&policy, Micros(START), &ask(50));
        assert_eq!(left(&mut leased, &policy, START + 3 * SECOND), 50, "{policy:?}");
    }
}

#[test]
fn returned_units_are_there_again_and_spent_ones_refill() {
    for policy in [bucket(100, 50), refill(10, 1, 50)] {
        let mut leased = LeasedBucket::default();
        let reply = leased.exchange(&policy, Micros(START), &ask(20));
        let released = Some(Grant { until: reply.until, amount: policy.lease_amount(20) });
        let done = LeaseRequest { released, returned: 12, steps: smallvec![], ..ask(0) };
        let reply = leased.exchange(&policy, Micros(START), &done);
        assert_eq!((reply.granted, reply.until), (0, Micros(0)));
        assert_eq!(left(&mut leased, &policy, START), 42, "{policy:?}");
        assert_eq!(left(&mut leased, &policy, START + SECOND / 20), 47, "{policy:?}");
        assert_eq!(left(&mut leased, &policy, START + SECOND), 50, "{policy:?}");
    }
}

#[test]
fn kept_units_go_on_in_the_new_grant() {
    let policy = bucket(100, 50);
    let mut leased = LeasedBucket::default();
    let first = leased.exchange(&policy, Micros(START), &ask(20));
    let released = Some(Grant { until: first.until, amount: policy.lease_amount(20) });
    let renewed = LeaseRequest { released, kept: 5, ..ask(10) };
    let second = leased.exchange(&policy, Micros(START + SECOND / 2), &renewed);
    assert_eq!(second.granted, 10);
    assert!(second.until > first.until);
    assert_eq!(leased.outstanding.total(), policy.lease_amount(15));
    // 20 were missing all the time; 15 that were spent have begun to refill.
    assert_eq!(left(&mut leased, &policy, START + SECOND / 2), 20);
    assert_eq!(left(&mut leased, &policy, START + SECOND / 2 + SECOND / 10), 30);
    assert_eq!(left(&mut leased, &policy, START + SECOND), 35);
}

#[test]
fn steps_that_fit_are_taken_up_to_the_first_that_is_enough() {
    let policy = bucket(1, 50);
    let mut leased = LeasedBucket::default();
    let step = |units, tested, is_enough| LeaseStep { units, tested, is_enough };
    let steps =
        smallvec![step(40, 80, true), step(20, 40, true), step(8, 8, false), step(4, 4, false)];
    let request = LeaseRequest { steps, ..ask(0) };
    let grants = [0; 5].map(|_| leased.exchange(&policy, Micros(START), &request).granted);
    assert_eq!(grants, [20, 12, 12, 4, 0]);
}

#[test]
fn window_caps_nothing_and_takes_back_in_the_same_window_only() {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let mut leased = LeasedBucket::default();
    let taken = leased.exchange(&policy, Micros(START), &ask(6));
    assert_eq!((taken.granted, policy.lease_amount(6)), (6, 0));
    assert!(leased.outstanding.is_empty());
    let back = LeaseRequest { returned: 4, taken_at: taken.now, steps: smallvec![], ..ask(0) };
    leased.exchange(&policy, Micros(START + SECOND / 2), &back);
    assert_eq!(left(&mut leased, &policy, START + SECOND / 2), 8);
    leased.exchange(&policy, Micros(START + SECOND), &ask(3));
    leased.exchange(&policy, Micros(START + SECOND), &back);
    assert_eq!(left(&mut leased, &policy, START + SECOND), 7);
}

#[test]
fn grants_beyond_the_most_are_merged_into_later_ones() {
    let policy = bucket(1_000, 1_000);
    let mut leased = LeasedBucket::default();
    for number in 0..40 {
        let request = LeaseRequest { life: (number + 1) * SECOND, ..ask(10) };
        assert_eq!(leased.exchange(&policy, Micros(START), &request).granted, 10);
    }
    assert_eq!(leased.outstanding.0.len(), MOST_GRANTS);
    assert_eq!(leased.outstanding.total(), policy.lease_amount(400));
}

#[test]
fn after_the_clock_was_set_back_no_grant_lasts_longer_than_any_lease() {
    let policy = bucket(100, 50);
    let mut leased = LeasedBucket::default();
    leased.exchange(&policy, Micros(START), &ask(20));
    let earlier = START - 3_600 * SECOND;
    assert_eq!(left(&mut leased, &policy, earlier), 0, "emptier than empty is empty");
    assert_eq!(left(&mut leased, &policy, earlier + SECOND / 2), 30);
    assert_eq!(left(&mut leased, &policy, earlier + LONGEST_LEASE + SECOND), 50);
}

#[test]
fn grants_are_read_from_behind_a_state() {
    let grant = |until, amount| Grant { until: Micros(until), amount };
    let both = Outstanding(smallvec![grant(7, 5), grant(9, 6)]);
    assert_eq!(Outstanding::parse("L7:5 9:6"), both);
    assert_eq!(Outstanding::parse("L7:5 9:6|3 0|8|1:2:3"), both);
    for none in ["", "3 0|8|1:2:3", "L", "Lx"] {
        assert!(Outstanding::parse(none).is_empty(), "{none}");
    }
}

#[test]
fn return_by_numbers_that_were_replaced_forgives_nothing() {
    let old = bucket(1_000, 1_000);
    let day = Rate::new(1, Duration::from_secs(86_400)).expect("a rate");
    let new = Policy::TokenBucket(TokenBucket::new(day, 500).expect("a bucket"));
    let mut leased = LeasedBucket::default();
    let taken = leased.exchange(&old, Micros(START), &ask(20));
    for _ in 0..400 {
        assert!(leased.decide(&new, Micros(START + 1), 1));
    }
    let left_before = left(&mut leased.clone(), &new, START + 2);
    let back = LeaseRequest { released: taken.grant, returned: 20, steps: smallvec![], ..ask(0) };
    leased.exchange(&old, Micros(START + 2), &back);
    assert_eq!(left(&mut leased, &new, START + 2), left_before);
}
