//! Queues without a store: which request is first, which is rejected, which is woken.

use std::pin::pin;
use std::task::Context;

use std::task::Poll;

use super::*;
use crate::limit::Rate;
use crate::limit::token_bucket::TokenBucket;

fn ten_a_second() -> Policy {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"))
}

fn request<'a>(policy: &'a Policy, gauge: &'a IntGauge, seconds: u64) -> QueueRequest<'a> {
    QueueRequest {
        bucket: BucketId(1),
        policy,
        cost: 1,
        earliest: None,
        deadline: Instant::now() + Duration::from_secs(seconds),
        max_queue: 3,
        depth: gauge,
    }
}

fn is_first(ticket: &QueueTicket<'_>) -> bool {
    let first = pin!(ticket.first());
    first.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(QueueEvent::Ready)
}

fn gauge() -> IntGauge {
    IntGauge::new("depth", "depth").expect("a gauge")
}

#[test]
fn the_first_to_come_is_first_and_one_that_leaves_lets_the_others_move_up() {
    let (queues, policy, gauge) = (WaitQueues::default(), ten_a_second(), gauge());
    let join = || queues.join(&request(&policy, &gauge, 10)).expect("a position");
    let (one, two, three) = (join(), join(), join());
    assert_eq!([&one, &two, &three].map(is_first), [true, false, false]);
    assert_eq!((gauge.get(), queues.is_occupied(BucketId(1))), (3, true));
    drop(two);
    assert!(!is_first(&three));
    drop(one);
    assert!(is_first(&three));
    drop(three);
    assert_eq!((gauge.get(), queues.is_occupied(BucketId(1)), queues.is_used()), (0, false, false));
}

#[test]
fn a_full_queue_rejects_until_a_request_leaves_and_other_keys_have_their_own() {
    let (queues, policy, gauge) = (WaitQueues::default(), ten_a_second(), gauge());
    let join = || queues.join(&request(&policy, &gauge, 10));
    let mut tickets = vec![join(), join(), join()];
    assert_eq!(join().err(), Some(QueueRejection::Full));
    let other = QueueRequest { bucket: BucketId(2), ..request(&policy, &gauge, 10) };
    assert!(queues.join(&other).is_ok());
    tickets.pop();
    assert!(join().is_ok());
}

#[tokio::test]
async fn a_request_that_could_not_pass_in_time_does_not_wait() {
    let (queues, policy, gauge) = (WaitQueues::default(), ten_a_second(), gauge());
    let soon = Instant::now() + Duration::from_millis(850);
    let alone = QueueRequest { earliest: Some(soon), ..request(&policy, &gauge, 1) };
    let first = queues.join(&alone).expect("it passes in time");
    // The first says when it will pass.
    let waiting = pin!(first.freed(soon, 0));
    assert_eq!(waiting.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    let second = queues.join(&request(&policy, &gauge, 1));
    assert!(second.is_ok(), "a tenth of a second later");
    let third = queues.join(&request(&policy, &gauge, 1));
    assert!(matches!(third, Err(QueueRejection::TooLate(_))), "{third:?}");
    let late = QueueRequest { earliest: Some(soon), ..request(&policy, &gauge, 0) };
    let late = QueueRequest { bucket: BucketId(2), ..late };
    assert_eq!(queues.join(&late).err(), Some(QueueRejection::TooLate(soon)));
}

#[test]
fn the_first_is_woken_when_slots_become_free() {
    let (queues, policy, gauge) = (WaitQueues::default(), ten_a_second(), gauge());
    let ticket = queues.join(&request(&policy, &gauge, 10)).expect("a position");
    let mut freed = pin!(ticket.freed(Instant::now(), queues.freed_count()));
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Pending);
    queues.slots_freed([BucketId(2)].into_iter());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Pending);
    queues.slots_freed([BucketId(1)].into_iter());
    assert_eq!(freed.as_mut().poll(&mut cx), Poll::Ready(QueueEvent::Ready));
}

#[test]
fn a_drain_ends_all_waiting_and_rejects_new_requests() {
    let (queues, policy, gauge) = (WaitQueues::default(), ten_a_second(), gauge());
    let join = || queues.join(&request(&policy, &gauge, 10));
    let (one, two) = (join().expect("a position"), join().expect("a position"));
    queues.drain();
    for ticket in [&one, &two] {
        let first = pin!(ticket.first());
        let polled = first.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(QueueEvent::Draining));
    }
    assert_eq!(join().err(), Some(QueueRejection::Draining));
}
