//! Requests in flight under a `concurrency` limit: how to hold some, and how many there can be.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::client::Client;
use super::gateway::Weir;
use super::held_upstream::{HeldUpstream, UPGRADE};
use super::stores::TestStore;
use super::{fields, get, wait_until};

/// The lines of a `concurrency` limit of `count` slots.
pub(crate) fn concurrency_limit(count: usize) -> String {
    format!("key = \"global\"\nalgorithm = \"concurrency\"\nlimit = {count}")
}

/// A gateway with `count` slots.
pub(crate) fn start(test_store: &TestStore, held: &HeldUpstream, count: usize) -> Weir {
    let config = held.config().limit(&concurrency_limit(count)).upstream("retries = 0");
    Weir::start(&test_store.configure(config))
}

/// A request that stays in flight. A slot that was just released may still be on its way to the
/// store, so the request is repeated while it is refused.
#[track_caller]
pub(crate) fn hold(weir: &Weir, held: &HeldUpstream, target: &str) -> Client {
    let request = if target == "/tunnel" { UPGRADE.to_owned() } else { get(target) };
    hold_with(weir, held, &request)
}

/// The same by any request.
#[track_caller]
pub(crate) fn hold_with(weir: &Weir, held: &HeldUpstream, request: &str) -> Client {
    let before = held.held_count();
    let mut client = weir.connect();
    client.send(request);
    wait_until("it is in flight", || {
        if held.held_count() == before && is_answered(&client) {
            assert_eq!(client.response().status, 429);
            client.send(request);
        }
        held.held_count() > before
    });
    client
}

/// Whether there is something to read.
pub(crate) fn is_answered(client: &Client) -> bool {
    let stream = client.wire.stream();
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    peeked.is_ok()
}

/// How many slots are free, this request's own not counted.
pub(crate) fn free_slots(weir: &Weir) -> Option<i64> {
    let response = weir.get("/");
    (response.status == 200).then(|| fields::list(&response.all("ratelimit"))[0].integer("r") + 1)
}

/// Clients that behave, fail and leave in every way. Returns how many passed.
pub(crate) fn disorderly_clients(weirs: &[&Weir], rounds: usize) -> usize {
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..16 {
            let (weir, passed) = (weirs[number % weirs.len()], &passed);
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut client = weir.connect();
                    match (number + round) % 8 {
                        0 => {
                            client.send(get("/left"));
                            client.wire.reset();
                        }
                        1 => {
                            client.send(get("/left"));
                            drop(client);
                        }
                        2 => {
                            // Half a request is none.
                            client.send("GET /half HTTP/1.1\r\n");
                            client.wire.reset();
                        }
                        3 => {
                            client.send(get("/begun"));
                            // Leaves at another moment each time.
                            thread::sleep(Duration::from_millis((round % 5) as u64));
                            client.wire.reset();
                        }
                        4 => drop(client.try_ask(get("/broken"))),
                        5 => drop(client.try_ask(get("/cut"))),
                        6 => {
                            client.send(get("/a").repeat(5));
                            let _ = client.response();
                            client.wire.reset();
                        }
                        _ => {
                            let status = client.ask(get("/")).status;
                            assert!(matches!(status, 200 | 429), "{status}");
                            passed.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    passed.into_inner()
}

/// Checks that exactly `count` requests can be in flight, however they are spread.
#[track_caller]
pub(crate) fn assert_exact_slots(weirs: &[&Weir], held: &HeldUpstream, count: usize) {
    for weir in weirs {
        wait_until("all slots are free", || free_slots(weir) == Some(count as i64));
    }
    // The upstream may notice later than the gateway that a client has left.
    wait_until("no request is held any more", || held.held_count() == 0);
    let mut clients: Vec<Client> =
        (0..count).map(|n| hold(weirs[n % weirs.len()], held, "/held/last")).collect();
    for weir in weirs {
        assert_eq!(weir.get("/").status, 429, "{count} are in flight");
    }
    held.release("/held/last");
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    for weir in weirs {
        wait_until("all slots are free again", || free_slots(weir) == Some(count as i64));
    }
}

/// Many clients at once, each of which waits for all its answers.
pub(crate) fn orderly_clients(weirs: &[&Weir]) {
    let (passed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..16 {
            let (weir, passed, refused) = (weirs[number % weirs.len()], &passed, &refused);
            scope.spawn(move || {
                let mut client = weir.connect();
                for _ in 0..100 {
                    match client.ask(get("/slow")).status {
                        200 => passed.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        status => panic!("{status}"),
                    };
                }
            });
        }
    });
    let (passed, refused) = (passed.into_inner(), refused.into_inner());
    assert!(passed > 50 && refused > 50, "{passed} passed and {refused} were refused");
}
