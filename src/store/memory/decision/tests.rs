//! Decisions whose buckets are judged by clocks of their own.

use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::limit::Rate;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::token_bucket::TokenBucket;

const START: Micros = Micros(1_700_000_000_000_000);
const HOUR: u64 = 3_600_000_000;

/// Five at once, and one a second.
fn bucket() -> Policy {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket"))
}

fn check(policy: &Policy, id: u128, cost: u64) -> Check<'_> {
    Check::new(policy, 0, BucketId(id << 64 | id), cost)
}

fn after(micros: u64) -> Micros {
    Micros(START.0 + micros)
}

/// Which of the checks refuse.
fn refused<const N: usize>(
    store: &MemoryStore,
    checks: [Check<'_>; N],
    at: [Micros; N],
) -> [bool; N] {
    let mut outcomes = [CheckOutcome::default(); N];
    let decision = store.decide_at(&checks, &at, &mut outcomes);
    assert_eq!(outcomes.map(|it| it.now), at);
    let refused = outcomes.map(|it| it.refused.is_some());
    assert_eq!(decision.admitted, refused == [false; N]);
    refused
}

#[test]
fn each_bucket_is_judged_at_the_instant_of_its_own_clock() {
    let (store, policy) = (MemoryStore::new(100, Clock::manual(START)), bucket());
    let at = |later: u64| [after(later), after(HOUR + later)];
    let both = |cost| [check(&policy, 1, cost), check(&policy, 2, cost)];
    assert_eq!(refused(&store, both(5), at(0)), [false, false]);
    assert_eq!(refused(&store, both(1), at(999_999)), [true, true], "neither has refilled");
    assert_eq!(refused(&store, both(1), at(1_000_000)), [false, false]);
    let uneven = [check(&policy, 1, 1), check(&policy, 2, 2)];
    assert_eq!(refused(&store, uneven, at(2_000_000)), [false, true]);
    assert_eq!(refused(&store, both(1), at(2_000_000)), [false, false], "nothing was charged");
    assert_eq!(refused(&store, both(1), at(2_000_000)), [true, true]);
    let [_, second] = both(5);
    assert_eq!(refused(&store, [second], [START]), [true], "a clock that was set back");
}

#[test]
fn windows_end_by_the_clock_of_their_bucket() {
    let store = MemoryStore::new(100, Clock::manual(START));
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let both = |cost| [check(&policy, 1, cost), check(&policy, 2, cost)];
    let at = |later: u64| [after(later), after(HOUR + 500_000 + later)];
    assert_eq!(refused(&store, both(10), at(0)), [false, false]);
    assert_eq!(refused(&store, both(1), at(499_999)), [true, true]);
    assert_eq!(refused(&store, both(1), at(500_000)), [true, false]);
    assert_eq!(refused(&store, both(1), at(1_000_000)), [false, false]);
}

#[test]
fn charge_after_the_fact_is_made_at_the_instant_of_its_bucket() {
    let (store, policy) = (MemoryStore::new(100, Clock::manual(START)), bucket());
    let charged = store.charge_after_at(&check(&policy, 1, 5), &[after(HOUR)]);
    assert_eq!((charged.now, charged.state.ends_at), (after(HOUR), after(HOUR + 5_000_000)));
    assert_eq!(refused(&store, [check(&policy, 1, 1)], [after(HOUR)]), [true]);
}

#[test]
fn bucket_is_dropped_once_it_has_ended_by_all_clocks() {
    let policy = bucket();
    let note = |store: &MemoryStore, id: u128, now: Micros| {
        let state = policy.charge_after(State::default(), now, 5);
        store.note(check(&policy, id, 1).bucket, &policy, now, |_| Some(state));
    };
    let is_known =
        |store: &MemoryStore, id: u128| store.state(check(&policy, id, 1).bucket).is_some();
    for spread in [0, HOUR] {
        let store = MemoryStore::new(1, Clock::manual(START));
        store.set_clock_spread(Duration::from_micros(spread));
        note(&store, 1, START);
        // It has been told by a clock that is an hour ahead.
        note(&store, 2, after(HOUR));
        assert_eq!(is_known(&store, 1), spread == HOUR);
        note(&store, 3, after(HOUR + 5_000_000));
        assert!(is_known(&store, 3) && !is_known(&store, 1), "it has ended by both");
    }
}

#[test]
fn what_was_spent_in_a_shared_bucket_does_not_move_to_another_clock() {
    let clock = Clock::manual(START);
    let (store, policy) = (MemoryStore::new(1, clock.clone()), bucket());
    assert_eq!(refused(&store, [check(&policy, 1, 1)], [START]), [false], "the table is full");
    assert_eq!(refused(&store, [check(&policy, 2, 5)], [START]), [false], "it is in a shared one");
    clock.advance(Duration::from_secs(1));
    // There is room now, and one token has come back.
    let mut outcomes = [CheckOutcome::default()];
    let asked = [check(&policy, 2, 2)];
    let decision = store.decide_at(&asked, &[after(HOUR)], &mut outcomes);
    assert!(!decision.admitted && outcomes[0].shared);
    assert_eq!(outcomes[0].now, after(1_000_000));
}
