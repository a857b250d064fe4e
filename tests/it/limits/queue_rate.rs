//! The rate at which a queue is served: the full rate of its limit, and never more.

use std::time::{Duration, Instant};

use super::queue::{SKEW, charged, counted_queue};
use crate::support::load::FREE;
use crate::support::queues::{RecordingUpstream, numbered, queue_depth, wait_for_depth};
use crate::support::{Client, TestStore, Weir, get, on_each_store, wait_until};

on_each_store!(
    thousand_queued_requests_pass_in_order_at_the_rate,
    queue_for_single_tokens_is_served_at_the_full_rate,
);

/// With a burst, so that the bucket keeps what refills while a busy machine holds up the gateway.
fn thousand_queued_requests_pass_in_order_at_the_rate(test_store: &TestStore) {
    // Over Redis each that passes is a call of its own, one after another: on a machine that is busy
    // with other tests, that alone takes milliseconds.
    let promised = match test_store {
        TestStore::Memory => 200.0,
        TestStore::Redis(_) | TestStore::Cluster(_) => 100.0,
    };
    passes_at_the_rate(test_store, 1000, promised, 25);
}

/// Timers wake up late, and what refills meanwhile is not lost, though the bucket is full by then: up
/// to one token, which at this rate takes longer than a busy machine is late by.
fn queue_for_single_tokens_is_served_at_the_full_rate(test_store: &TestStore) {
    passes_at_the_rate(test_store, 60, 10.0, 1);
}

#[track_caller]
fn passes_at_the_rate(test_store: &TestStore, count: usize, promised: f64, burst: usize) {
    let mut rates = Vec::new();
    // A busy machine may fall behind. No request is ever early, which each run makes sure of.
    let held = (0..3).any(|run| {
        let rate = rate_of_many(test_store, run, &Queue { count, promised, burst });
        rates.push(rate);
        (rate - promised).abs() <= promised * 0.02
    });
    assert!(held, "{rates:?} a second, {promised} are promised");
}

/// Requests that queue for one limit.
struct Queue {
    count: usize,
    /// How many may pass in a second.
    promised: f64,
    burst: usize,
}

/// How many of them pass in a second, after the burst.
#[track_caller]
fn rate_of_many(test_store: &TestStore, run: usize, queue: &Queue) -> f64 {
    const GROUP: usize = 25;
    let &Queue { count, promised, burst } = queue;
    let recording = RecordingUpstream::start();
    let numbers = format!(
        "rate = \"{promised}/second\"\nburst = {burst}\nmax_queue = 1000\nmax_wait = \"30s\""
    );
    let config = counted_queue(&recording.upstream, &numbers, 9999).also(FREE);
    let weir = Weir::start(&test_store.configure_case(run, config));
    let mut clients: Vec<Client> = (0..count).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(get("/free")).status, 200));
    let begin = Instant::now();
    let (mut sent, mut deepest) = (0, 0);
    for group in clients.chunks_mut(GROUP) {
        for client in group {
            client.send(numbered(sent));
            sent += 1;
        }
        // Two workers may take a group in any order, but none of the next before all of it.
        wait_until("the whole group is queued, or has passed", || {
            let waiting = queue_depth(&weir);
            deepest = deepest.max(waiting);
            waiting + recording.upstream.heads() >= sent
        });
    }
    assert!(deepest > count / 2, "only {deepest} ever waited");
    // The other limit shows in which order they passed, however long they then took to arrive.
    let passed = clients.iter_mut().enumerate().map(|(number, client)| {
        let response = client.response();
        assert_eq!(response.status, 200);
        (charged(&response, 9999), number / GROUP)
    });
    let mut passed: Vec<(i64, usize)> = passed.collect();
    passed.sort_unstable();
    assert!(passed.iter().map(|it| it.0).eq(1..=count as i64), "each was charged once");
    assert!(passed.is_sorted_by_key(|it| it.1), "first come, first served: {passed:?}");
    let arrivals = recording.arrivals();
    assert_eq!(arrivals.len(), count);
    for (turn, (_, arrived)) in arrivals.iter().enumerate() {
        let earliest = (turn + 1).saturating_sub(burst) as f64 / promised;
        let earliest = Duration::from_secs_f64(earliest);
        assert!(*arrived - begin + SKEW >= earliest, "{turn} passed too early");
    }
    wait_for_depth(&weir, 0);
    // The last of the burst finds the bucket empty.
    let (first, last) = (arrivals[burst - 1].1, arrivals[count - 1].1);
    (count - burst) as f64 / (last - first).as_secs_f64()
}

#[test]
fn two_gateways_with_queues_pass_no_more_than_the_rate() {
    let test_store = TestStore::redis();
    let recording = RecordingUpstream::start();
    let limit = "rate = \"100/second\"\nburst = 1\nmax_wait = \"30s\"\nmax_queue = 1000";
    let weirs = [recording.queueing(&test_store, limit), recording.queueing(&test_store, limit)];
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..200).map(|number| weirs[number % 2].connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let arrivals = recording.arrivals();
    for (turn, (_, arrived)) in (0_u32..).zip(&arrivals) {
        assert!(*arrived - begin + SKEW >= Duration::from_millis(10) * turn, "{turn} is early");
    }
    for weir in &weirs {
        wait_for_depth(weir, 0);
    }
}
