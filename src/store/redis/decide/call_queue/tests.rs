//! Requests that join calls, and what each gets from them.

use futures_util::FutureExt as _;

use super::*;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::{Policy, Rate};
use crate::store::redis::wire::msgpack;
use crate::store::{BucketId, BucketKeys};

fn policy() -> Policy {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    Policy::FixedWindow(FixedWindow::new(rate))
}

fn queue(cluster: bool) -> CallQueue {
    CallQueue::new(Duration::from_secs(1), cluster)
}

/// A request with a check on each of these buckets joins.
fn join(queue: &CallQueue, buckets: &[&str]) -> Ticket {
    let (policy, mut keys) = (policy(), BucketKeys::default());
    let mut key = |bucket: &str| keys.add_copy(bucket.as_bytes());
    let id = |bucket: &str| {
        BucketId(bucket.bytes().fold(7, |id: u128, byte| id * 257 + u128::from(byte)))
    };
    let checks: Vec<Check<'_>> = buckets
        .iter()
        .map(|bucket| Check { key: key(bucket), ..Check::new(&policy, 0, id(bucket), 1) })
        .collect();
    queue.join(CheckSet { checks: &checks, keys: keys.view() })
}

/// The call that leaves next, if there is one.
fn next(queue: &CallQueue) -> Option<Rc<Call>> {
    queue.next().now_or_never()
}

fn requests(groups: &[CallGroup]) -> Vec<usize> {
    groups.iter().map(|group| group.batch.requests()).collect()
}

fn times() -> CallTimes {
    let now = Instant::now();
    CallTimes { sent: now, received: now }
}

/// A reply to a batch whose requests have one check each: those at even positions were admitted, and
/// the count of each is its position.
fn reply(batch: &Batch) -> Reply {
    let requests = batch.requests() as u64;
    let mut bytes = Vec::new();
    msgpack::array(&mut bytes, 1 + 3 * batch.requests());
    msgpack::number(&mut bytes, 1_000);
    for position in 0..requests {
        for number in [1 - position % 2, 2_000, position] {
            msgpack::number(&mut bytes, number);
        }
    }
    Reply::parse(&bytes, batch).expect("a sound reply")
}

/// Of one slot the checks that lie in it, and whether they were admitted and the first's count.
type SlotResult = (Vec<usize>, Result<(bool, u64), CallStatus>);

/// What a request with so many checks gets from each of its hash slots.
fn results(ticket: &Ticket, checks: usize) -> Vec<SlotResult> {
    let mut results = Vec::new();
    ticket.each(|result| {
        let has = (0..checks).filter(|check| result.has(*check)).collect();
        let outcome = match result.reply {
            Some(reply) => {
                let count = reply.check_replies(result.request).next().expect("a state").state.rest;
                Ok((reply.admitted(result.request), count))
            }
            None => Err(result.status),
        };
        results.push((has, outcome));
    });
    results
}

#[test]
fn requests_share_the_call_that_waits_and_never_one_that_has_left() {
    let queue = queue(false);
    assert!(next(&queue).is_none());
    let _tickets = ["a", "b"].map(|bucket| join(&queue, &[bucket]));
    let call = next(&queue).expect("a call");
    assert!(next(&queue).is_none(), "there is one call");
    let _late = join(&queue, &["c"]);
    assert_eq!(requests(&call.take()), [2]);
    let call = next(&queue).expect("another call");
    assert_eq!(requests(&call.take()), [1]);
}

#[test]
fn who_waits_for_a_call_is_woken_by_the_first_request() {
    let queue = queue(false);
    let mut waiting = std::pin::pin!(queue.next());
    assert!(waiting.as_mut().now_or_never().is_none());
    let _ticket = join(&queue, &["a"]);
    assert!(waiting.now_or_never().is_some());
}

#[test]
fn a_call_that_is_full_opens_the_next() {
    let queue = queue(false);
    let _tickets: Vec<Ticket> = (0..=MOST_REQUESTS).map(|_| join(&queue, &["a"])).collect();
    let calls = [next(&queue), next(&queue)].map(|call| call.expect("a call").take());
    assert_eq!(calls.each_ref().map(|groups| requests(groups)), [vec![MOST_REQUESTS], vec![1]]);
    assert!(next(&queue).is_none());
}

#[test]
fn a_call_takes_as_many_checks_as_one_request_over_its_bound_brings() {
    let queue = queue(false);
    // A bucket that is in it already is a check more all the same.
    let _tickets =
        [join(&queue, &["a"; MOST_CHECKS - 1]), join(&queue, &["a", "b"]), join(&queue, &["a"])];
    let calls = [next(&queue), next(&queue)].map(|call| call.expect("a call").take());
    let sizes = calls.each_ref().map(|groups| (requests(groups), groups[0].batch.keys()));
    assert_eq!(sizes, [(vec![2], 2), (vec![1], 1)]);
}

#[test]
fn each_request_gets_its_own_result() {
    let queue = queue(false);
    let tickets = ["a", "b", "a"].map(|bucket| join(&queue, &[bucket]));
    let call = next(&queue).expect("a call");
    let mut groups = call.take();
    groups[0].reply = Some(Ok(reply(&groups[0].batch)));
    assert!(tickets.iter().all(|ticket| ticket.wait().now_or_never().is_none()));
    call.finish(groups, times());
    for (position, ticket) in (0..).zip(&tickets) {
        assert!(ticket.wait().now_or_never().is_some(), "it is back");
        assert_eq!(results(ticket, 1), [(vec![0], Ok((position % 2 == 0, position)))]);
    }
}

#[test]
fn a_cluster_gets_a_group_for_each_slot() {
    let queue = queue(true);
    let one = join(&queue, &["{a}1", "{b}1"]);
    let two = join(&queue, &["{b}2"]);
    let three = join(&queue, &["{b}3", "{c}3"]);
    let call = next(&queue).expect("a call");
    let mut groups = call.take();
    let slots: Vec<u16> = groups.iter().map(|group| group.slot).collect();
    assert_eq!(slots, [b"a", b"b", b"c"].map(|tag| hash_slot(tag)));
    assert_eq!(requests(&groups), [1, 3, 1]);
    groups[0].reply = Some(Ok(reply(&groups[0].batch)));
    groups[1].reply = Some(Ok(reply(&groups[1].batch)));
    groups[2].reply = Some(Err(Failure::timeout()));
    groups[2].status = CallStatus::Unknown(7);
    call.finish(groups, times());
    assert_eq!(results(&one, 2), [(vec![0], Ok((true, 0))), (vec![1], Ok((true, 0)))]);
    assert_eq!(results(&two, 1), [(vec![0], Ok((false, 1)))]);
    assert_eq!(
        results(&three, 2),
        [(vec![0], Ok((true, 2))), (vec![1], Err(CallStatus::Unknown(7)))]
    );
}

#[test]
fn checks_in_one_slot_are_one_request_to_it() {
    let queue = queue(true);
    let _ticket = join(&queue, &["{a}1", "{b}1", "{a}2", "{b}2"]);
    let groups = next(&queue).expect("a call").take();
    assert_eq!(requests(&groups), [1, 1]);
    assert_eq!(groups.iter().map(|group| group.batch.keys()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn who_goes_before_the_answer_harms_nobody() {
    let queue = queue(false);
    let (gone, early, stays) = (join(&queue, &["a"]), join(&queue, &["b"]), join(&queue, &["c"]));
    assert!(gone.wait().now_or_never().is_none());
    drop(gone);
    let call = next(&queue).expect("a call");
    let mut groups = call.take();
    drop(early);
    groups[0].reply = Some(Ok(reply(&groups[0].batch)));
    call.finish(groups, times());
    drop(call);
    assert!(stays.wait().now_or_never().is_some());
    assert_eq!(results(&stays, 1), [(vec![0], Ok((true, 2)))]);
}

#[test]
fn a_call_without_answers_is_a_failure_to_all() {
    let queue = queue(false);
    let ticket = join(&queue, &["a"]);
    let call = next(&queue).expect("a call");
    let groups = call.take();
    call.finish(groups, times());
    assert_eq!(results(&ticket, 1), [(vec![0], Err(CallStatus::NotRun))]);
}

#[test]
fn memory_is_used_again_once_all_have_their_results() {
    let queue = queue(false);
    let [one, two] = ["a", "b"].map(|bucket| join(&queue, &[bucket]));
    let call = next(&queue).expect("a call");
    let mut groups = call.take();
    groups[0].reply = Some(Ok(reply(&groups[0].batch)));
    call.finish(groups, times());
    drop(call);
    queue.recycle(one);
    assert_eq!(queue.spare.borrow().len(), 0, "one has not read its result yet");
    assert_eq!(results(&two, 1), [(vec![0], Ok((false, 1)))]);
    queue.recycle(two);
    assert_eq!((queue.spare.borrow().len(), queue.spare_states.borrow().len()), (1, 1));
    let next_one = join(&queue, &["c"]);
    assert_eq!((queue.spare.borrow().len(), queue.spare_states.borrow().len()), (0, 0));
    assert!(next_one.wait().now_or_never().is_none(), "it has no times yet");
    let groups = next(&queue).expect("a call").take();
    assert_eq!((requests(&groups), groups[0].batch.keys()), (vec![1], 1), "nothing is left in it");
}
