//! Queues without a store: who is first, who has no place, who is told.

use std::pin::pin;
use std::task::Context;

use super::*;
use crate::limit::Rate;
use crate::limit::token_bucket::TokenBucket;

fn ten_a_second() -> Policy {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"))
}

fn wish<'a>(policy: &'a Policy, gauge: &'a IntGauge, seconds: u64) -> Wish<'a> {
    Wish {
        bucket: BucketId(1),
        policy,
        cost: 1,
        promise: None,
        deadline: Instant::now() + Duration::from_secs(seconds),
        max_queue: 3,
        gauge,
    }
}

fn is_first(place: &Place<'_>) -> bool {
    let first = pin!(place.first());
    first.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(Turn::First)
}

fn gauge() -> IntGauge {
    IntGauge::new("depth", "depth").expect("a gauge")
}

#[test]
fn who_comes_first_is_first_and_whoever_leaves_lets_the_others_move_up() {
    let (queues, policy, gauge) = (Queues::default(), ten_a_second(), gauge());
    let join = || queues.join(&wish(&policy, &gauge, 10)).expect("a place");
    let (one, two, three) = (join(), join(), join());
    assert_eq!([&one, &two, &three].map(is_first), [true, false, false]);
    assert_eq!((gauge.get(), queues.has(BucketId(1))), (3, true));
    drop(two);
    assert!(!is_first(&three));
    drop(one);
    assert!(is_first(&three));
    drop(three);
    assert_eq!((gauge.get(), queues.has(BucketId(1)), queues.is_used()), (0, false, false));
}

#[test]
fn a_line_that_is_full_takes_nobody_until_somebody_leaves_and_no_other_key_minds() {
    let (queues, policy, gauge) = (Queues::default(), ten_a_second(), gauge());
    let join = || queues.join(&wish(&policy, &gauge, 10));
    let mut places = vec![join(), join(), join()];
    assert_eq!(join().err(), Some(NoPlace::Full));
    let other = Wish { bucket: BucketId(2), ..wish(&policy, &gauge, 10) };
    assert!(queues.join(&other).is_ok());
    places.pop();
    assert!(join().is_ok());
}

#[tokio::test]
async fn nobody_waits_who_could_not_pass_in_time() {
    let (queues, policy, gauge) = (Queues::default(), ten_a_second(), gauge());
    let soon = Instant::now() + Duration::from_millis(850);
    let alone = Wish { promise: Some(soon), ..wish(&policy, &gauge, 1) };
    let first = queues.join(&alone).expect("it passes in time");
    // The first says when it will pass.
    let waiting = pin!(first.freed(soon, 0));
    assert_eq!(waiting.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    let second = queues.join(&wish(&policy, &gauge, 1));
    assert!(second.is_ok(), "a tenth of a second later");
    let third = queues.join(&wish(&policy, &gauge, 1));
    assert!(matches!(third, Err(NoPlace::TooLong(_))), "{third:?}");
    let late = Wish { promise: Some(soon), ..wish(&policy, &gauge, 0) };
    let late = Wish { bucket: BucketId(2), ..late };
    assert_eq!(queues.join(&late).err(), Some(NoPlace::TooLong(soon)));
}

#[test]
fn the_first_is_told_of_places_that_become_free() {
    let (queues, policy, gauge) = (Queues::default(), ten_a_second(), gauge());
    let place = queues.join(&wish(&policy, &gauge, 10)).expect("a place");
    let mut freed = pin!(place.freed(Instant::now(), queues.freed_so_far()));
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Pending);
    queues.freed([BucketId(2)].into_iter());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Pending);
    queues.freed([BucketId(1)].into_iter());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Ready(Turn::First));
}

#[test]
fn a_drain_ends_all_waiting_and_lets_nobody_start() {
    let (queues, policy, gauge) = (Queues::default(), ten_a_second(), gauge());
    let join = || queues.join(&wish(&policy, &gauge, 10));
    let (one, two) = (join().expect("a place"), join().expect("a place"));
    queues.drain();
    for place in [&one, &two] {
        let first = pin!(place.first());
        let polled = first.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Turn::Draining));
    }
    assert_eq!(join().err(), Some(NoPlace::Draining));
}
