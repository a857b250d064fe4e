use std::time::Duration;

use super::*;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::lease::LeasedBucket;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Rate, Retry, State};

const START: u64 = 1_794_814_000_000_000;
const BUCKET: BucketId = BucketId(7);

fn policy(a_second: u64, burst: u64) -> Policy {
    let rate = Rate::new(a_second, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

/// A table and the bucket in Redis, on one clock.
struct Pair {
    table: LeaseTable,
    shared: LeasedBucket,
    policy: Policy,
    now: u64,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        let timing = LeaseTiming::new(Duration::from_millis(100));
        let table = LeaseTable::new(timing, 100);
        Pair { table, shared: LeasedBucket::default(), policy, now: START }
    }

    fn check(&self, cost: u64) -> LeaseCheck<'static> {
        // Tests may leak.
        let policy = Box::leak(Box::new(self.policy));
        LeaseCheck { bucket: BUCKET, policy, cost }
    }

    fn spend(&mut self, cost: u64) -> Spend {
        self.table.spend(self.check(cost), Micros(self.now), Attempt::First)
    }

    /// Asks for the key until it is hot.
    fn heat(&mut self) {
        for _ in 0..4 {
            self.table.count_unleased(self.check(1), || b"key".to_vec(), Micros(self.now));
        }
    }

    fn ask(&mut self) -> Vec<LeaseAsk> {
        self.table.take_due(100, Micros(self.now))
    }

    fn answer(&mut self, ask: &LeaseAsk) {
        let now = Micros(self.now);
        let reply = self.shared.exchange(&ask.policy, now, &ask.request);
        self.table.apply(ask, &reply, CallSpan { sent: now, received: now });
    }

    fn tick(&mut self) {
        self.now += 25_000;
        self.table.tick(Micros(self.now));
    }

    fn lease(&mut self) {
        self.heat();
        for ask in self.ask() {
            self.answer(&ask);
        }
    }
}

#[test]
fn lease_that_was_forgotten_while_due_is_asked_for_once_when_it_comes_back() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.heat();
    (0..6).for_each(|_| pair.tick());
    assert!(pair.table.is_empty() && !pair.table.has_due());
    pair.heat();
    let asks = pair.ask();
    assert_eq!(asks.len(), 1);
    pair.answer(&asks[0]);
    while let Spend::Spent(_) = pair.spend(1) {}
    assert_eq!(pair.ask().len(), 1);
    assert_eq!(pair.ask().len(), 0, "one question at a time");
}

#[test]
fn after_a_lost_reply_redis_decides_and_what_is_left_is_spent() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.lease();
    let left = pair.table.unspent(BUCKET, Micros(pair.now));
    assert!(left > 2, "{left}");
    (0..left).for_each(|_| assert!(matches!(pair.spend(1), Spend::Spent(_))));
    assert_eq!(pair.spend(1), Spend::Awaited);
    let asks = pair.ask();
    pair.table.lose(&asks[0], Micros(pair.now));
    assert_eq!(pair.spend(1), Spend::Unleased, "nobody waits for the next question");
    pair.now += 100_000;
    assert_eq!(pair.spend(1), Spend::Awaited);
}

#[test]
fn orphan_is_spent_to_its_end_and_never_reported() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.lease();
    pair.table.orphan_all();
    assert!(matches!(pair.spend(1), Spend::Spent(_)));
    (0..6).for_each(|_| pair.tick());
    for ask in pair.ask() {
        assert_eq!((ask.request.released, ask.request.kept, ask.request.returned), (None, 0, 0));
    }
}

#[test]
fn reply_of_a_store_that_was_replaced_gives_nothing() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.heat();
    let asks = pair.ask();
    pair.table.orphan_all();
    pair.answer(&asks[0]);
    assert_eq!(pair.table.unspent(BUCKET, Micros(pair.now)), 0);
}

#[test]
fn dry_key_is_asked_for_again_within_a_second_and_tells_the_true_instant() {
    // A unit comes back in a minute.
    let rate = Rate::new(1, Duration::from_secs(60)).expect("a rate");
    let slow = Policy::TokenBucket(TokenBucket::new(rate, 5_000).expect("a bucket"));
    let mut pair = Pair::new(slow);
    assert!(pair.shared.decide(&slow, Micros(pair.now), 5_000), "others have taken all of it");
    pair.lease();
    match pair.spend(1) {
        Spend::Refused(Retry::At(at), _) => assert_eq!(at.0 - pair.now, 60_000_000),
        other => panic!("{other:?}"),
    }
    pair.now += 1_000_000;
    assert_eq!(pair.spend(1), Spend::Awaited);
}

#[test]
fn one_dear_request_does_not_spoil_the_lease_of_cheap_ones() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.lease();
    pair.spend(900);
    for _ in 0..40 {
        pair.spend(1);
    }
    (0..2).for_each(|_| pair.tick());
    pair.spend(1);
    for ask in pair.ask() {
        assert!(ask.request.steps.iter().all(|step| step.units < 900), "{:?}", ask.request);
    }
}

#[test]
fn what_was_held_from_a_lease_that_is_gone_is_refunded() {
    let mut pair = Pair::new(policy(1_000, 1_000));
    pair.lease();
    let mut hold = LeaseHold::default();
    assert!(matches!(pair.spend(3), Spend::Spent(_)));
    pair.table.hold(pair.check(3), &mut hold, Micros(pair.now));
    pair.now += 10_000_000;
    let stranded = pair.table.conclude(&hold, false, Micros(pair.now));
    assert_eq!(stranded.iter().map(|it| it.cost).collect::<Vec<_>>(), [3]);
}

#[test]
fn units_of_a_window_are_not_spent_in_the_next_whatever_redis_has_told_meanwhile() {
    let rate = Rate::new(10_000, Duration::from_secs(1)).expect("a rate");
    let mut pair = Pair::new(Policy::FixedWindow(FixedWindow::new(rate)));
    pair.lease();
    while pair.table.unspent(BUCKET, Micros(pair.now)) > 2 {
        pair.spend(1);
    }
    let asks = pair.ask();
    assert_eq!(asks.len(), 1);
    // The next window has begun, and Redis has decided a request in it.
    pair.now += 1_000_001;
    let next = State::new(Micros(START + 2_000_000), 1);
    let told = LeaseView { state: next, now: Micros(pair.now) };
    pair.table.hear(BUCKET, told, Micros(pair.now));
    pair.shared.state = next;
    pair.answer(&asks[0]);
    let granted = pair.shared.state.rest - 1;
    assert_eq!(pair.table.unspent(BUCKET, Micros(pair.now)), granted);
}
