//! Ten thousand held slots: no decision waits for their renewal, no lease lapses, no breaker trips.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::support::fault_proxy::Link;
use crate::support::slots::is_answered;
use crate::support::{Client, Cluster, Config, FaultProxy, Load, Redis, Weir, get, get_with};
use crate::support::{LONG_PATIENCE, check_for, wait_at_most, wait_for_value};

const LEASE: Duration = Duration::from_secs(10);
/// Each holds a slot of every one of the limits, in a bucket of its own.
const CALLERS: usize = 2_500;
const LIMITS: usize = 4;
/// Callers that begin at once: few enough to be decided in time on a busy machine.
const GROUP: usize = 50;

/// `/held` takes a slot of four limits, `/other` asks a limit that has nothing to do with them.
fn config() -> Config {
    let slots = "key = \"header:x-caller\"\nalgorithm = \"concurrency\"\nlimit = 1";
    let names: Vec<String> = (0..LIMITS).map(|limit| format!("slots-{limit}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let config = Config::echo().open().server("workers = 2\nrequest_timeout = \"10m\"");
    let config = names.iter().fold(config, |config, name| config.add_limit(name, slots));
    config
        .add_limit("other", "key = \"global\"\nrate = \"1000000/second\"")
        .route("held", "/held", &names)
        .route("other", "/other", &["other"])
}

/// A request that is in flight until its body comes.
fn hold(weir: &Weir, caller: usize) -> Client {
    let mut client = weir.connect();
    client.send(format!(
        "POST /held HTTP/1.1\r\nHost: weir.test\r\nX-Caller: {caller}\r\nContent-Length: 1\r\n\r\n"
    ));
    client
}

fn admitted(weir: &Weir) -> f64 {
    weir.metrics().decisions("slots-3", "allowed").unwrap_or(0.0)
}

/// The statuses of some of the callers whose slots are held. A decision that a busy machine makes
/// late is repeated.
fn statuses(weir: &Weir) -> Vec<u16> {
    let mut client = weir.connect();
    let mut status = |caller: usize| {
        let request = get_with("/held", &format!("X-Caller: {caller}\r\n"));
        wait_for_value("it is decided", || client.ask(&request).status, |it| *it != 503)
    };
    (0..CALLERS).step_by(5).map(&mut status).collect()
}

/// Requests that hold a slot of each limit, one a caller.
struct Holders<'a> {
    weir: &'a Weir,
    clients: Vec<Client>,
    /// Callers whose decision has timed out before.
    retried: HashSet<usize>,
}

impl Holders<'_> {
    /// Begins with so many more, and waits until they are in flight.
    #[track_caller]
    fn add(&mut self, count: usize) {
        let so_far = self.clients.len();
        self.clients.extend((so_far..so_far + count).map(|caller| hold(self.weir, caller)));
        wait_at_most(LONG_PATIENCE, "they are in flight", || {
            !self.retry() && admitted(self.weir) >= self.clients.len() as f64
        });
    }

    /// Repeats what was answered, and returns whether there was any: on a busy machine a decision
    /// may time out. Until the slot that it took all the same is released, the caller is refused.
    #[track_caller]
    fn retry(&mut self) -> bool {
        let answered = self.answered();
        for (caller, status) in &answered {
            if *status == 503 {
                self.retried.insert(*caller);
            }
            let is_retry = self.retried.contains(caller) && matches!(status, 429 | 503);
            assert!(is_retry, "{status} for caller {caller}, who had no slot");
            self.clients[*caller] = hold(self.weir, *caller);
        }
        !answered.is_empty()
    }

    /// The callers who hold no slot any more, and what they were answered.
    fn answered(&mut self) -> Vec<(usize, u16)> {
        let clients = self.clients.iter_mut().enumerate();
        let answered = clients.filter(|(_, client)| is_answered(client));
        answered.map(|(caller, client)| (caller, client.response().status)).collect()
    }
}

/// Holds them for longer than a lease beside other requests, while the store is slow.
fn hold_ten_thousand(store: &str, set_slow: impl Fn(bool)) {
    let weir = Weir::start(&config().store(store).store("on_error = \"deny\""));
    let mut holders = Holders { weir: &weir, clients: Vec::new(), retried: HashSet::new() };
    while holders.clients.len() < CALLERS {
        holders.add(GROUP);
    }
    set_slow(true);
    let load = Load::start(&[weir.address()], &[get("/other")], 2);
    let begin = Instant::now();
    check_for(LEASE + LEASE / 2, || {
        assert!(!weir.degraded(), "after {:?}", begin.elapsed());
    });
    let answers = load.finish();
    let refused: Vec<_> = answers.iter().filter(|it| it.status != 200).collect();
    assert!(refused.is_empty(), "{} of {}: {:?}", refused.len(), answers.len(), refused[0]);
    set_slow(false);
    assert_eq!(holders.answered(), [], "all are still in flight");
    assert_eq!(statuses(&weir), [429; CALLERS / 5], "a slot is held, and given to another");
    assert!(!weir.degraded());
    drop(holders);
    wait_at_most(LEASE, "all slots are free", || statuses(&weir).iter().all(|it| *it == 200));
}

#[test]
fn ten_thousand_held_slots_are_kept_without_delaying_others() {
    let redis = Redis::start();
    let proxy = FaultProxy::to(redis.address());
    hold_ten_thousand(&format!("{}timeout = \"3s\"", proxy.store()), |slow| {
        proxy.set(if slow { Link::Slow(Duration::from_millis(50)) } else { Link::Good });
    });
}

#[test]
fn ten_thousand_held_slots_are_kept_in_a_cluster_without_delaying_others() {
    let cluster = Cluster::start();
    hold_ten_thousand(&format!("{}timeout = \"3s\"", cluster.store()), |_| {});
}
