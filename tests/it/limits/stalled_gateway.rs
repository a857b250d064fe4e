//! A gateway that stands still (SIGSTOP, a paused container, a machine that swaps) while requests
//! wait: what refills meanwhile is not passed on to all of them at once when it goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::queues::queue_depth;
use crate::support::upstream::ok;
use crate::support::{
    Client, Config, TestStore, Upstream, Weir, get_with, on_each_store, wait_at_most, wait_until,
};

on_each_store!(
    queues_admit_no_more_than_the_rate_after_stalls,
    leaky_bucket_forwards_one_by_one_after_stalls,
    leaky_bucket_holds_no_more_than_its_burst_after_a_stall,
    request_due_exactly_within_max_wait_passes,
    no_request_is_queued_only_to_be_refused,
    request_that_can_no_longer_pass_after_a_stall_is_refused_then,
);

/// Slow enough that what a busy machine does to a stamp is less than a request's worth.
const RATE: f64 = 20.0;
/// What the upstream's stamps may be late by: an interval that begins with a late one seems that
/// much shorter than it was. Less than half of what a request takes at this rate, so a request more
/// than was promised shows whatever the noise.
const STAMP: Duration = Duration::from_millis(20);
const STALLS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(600), Duration::from_secs(3)];

/// An upstream that stamps requests as soon as they are there, by their user.
struct TimestampUpstream {
    upstream: Upstream,
    stamps: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
}

impl TimestampUpstream {
    fn start() -> TimestampUpstream {
        let stamps = Arc::new(Mutex::new(BTreeMap::<String, Vec<Instant>>::new()));
        let noted = Arc::clone(&stamps);
        let upstream = Upstream::replying(move |request| {
            let now = Instant::now();
            let user = request.all("x-user").first().map_or("", |it| it).to_owned();
            noted.lock().unwrap().entry(user).or_default().push(now);
            ok("ok")
        });
        TimestampUpstream { upstream, stamps }
    }

    fn of(&self, user: &str) -> Vec<Instant> {
        let mut stamps = self.stamps.lock().unwrap().get(user).cloned().unwrap_or_default();
        stamps.sort_unstable();
        stamps
    }
}

/// By how many the worst interval exceeds `burst + rate × t`.
fn excess(stamps: &[Instant], burst: f64) -> f64 {
    let mut worst = f64::MIN;
    for (first, from) in stamps.iter().enumerate() {
        for (more, to) in stamps[first..].iter().enumerate() {
            let refilled = RATE * (*to - *from + STAMP).as_secs_f64();
            worst = worst.max((more + 1) as f64 - burst - refilled);
        }
    }
    worst
}

fn as_user(user: &str) -> String {
    get_with("/", &format!("X-User: {user}\r\n"))
}

fn outcomes(weir: &Weir, outcome: &str) -> f64 {
    weir.metrics().decisions("per-ip", outcome).unwrap_or(0.0)
}

/// Stops it between two requests: one that was on its way to the upstream would be stamped late,
/// and says nothing about the queued requests.
#[track_caller]
fn stall_after_the_next(weir: &Weir, recording: &TimestampUpstream, time: Duration) {
    let before = recording.upstream.heads();
    wait_at_most(crate::support::PATIENCE, "another has passed", || {
        recording.upstream.heads() > before
    });
    weir.stall(time);
}

/// Has many wait, stops the gateway again and again, and returns by how many the worst interval of
/// each user exceeds what a bucket of `burst` would have let pass.
fn worst_excess(
    test_store: &TestStore,
    run: usize,
    limit: &str,
    users: &[&str],
    burst: f64,
) -> Vec<f64> {
    const EACH: usize = 60;
    let recording = TimestampUpstream::start();
    let limit = format!("key = \"header:x-user\"\nrate = \"{RATE}/second\"\n{limit}");
    let weir =
        Weir::start(&test_store.configure_case(run, Config::to(&recording.upstream).limit(&limit)));
    let mut clients: Vec<Client> = (0..users.len() * EACH).map(|_| weir.connect()).collect();
    for (client, user) in clients.iter_mut().zip(users.iter().cycle()) {
        client.send(as_user(user));
    }
    wait_until("most of them wait", || queue_depth(&weir) > users.len() * EACH / 2);
    for time in STALLS {
        stall_after_the_next(&weir, &recording, time);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    users.iter().map(|user| excess(&recording.of(user), burst)).collect()
}

/// Runs it up to three times: a busy machine may stamp later than allowed for, and stalls itself,
/// but a limit that admits too many does so every time.
#[track_caller]
fn holds_the_promise(worst: impl Fn(usize) -> Vec<f64>) {
    let mut seen = Vec::new();
    let held = (0..3).any(|run| {
        let worst = worst(run);
        let held = worst.iter().all(|worst| *worst <= 1.0);
        seen.push(worst);
        held
    });
    assert!(held, "so many more than burst + rate x t passed: {seen:.2?}");
}

fn queues_admit_no_more_than_the_rate_after_stalls(test_store: &TestStore) {
    let limit = "burst = 1\nstrategy = \"queue\"\nmax_wait = \"60s\"\nmax_queue = 100";
    holds_the_promise(|run| worst_excess(test_store, run, limit, &["a", "b", "c"], 1.0));
}

/// One leaves every W/N, and one more may leave at once for having been late: what leaves is held
/// to a bucket of one, and not only to one of its burst.
fn leaky_bucket_forwards_one_by_one_after_stalls(test_store: &TestStore) {
    let limit = "algorithm = \"leaky_bucket\"\nburst = 60";
    holds_the_promise(|run| worst_excess(test_store, run, limit, &["a", "b"], 1.0));
}

/// Paced requests still wait when it goes on, though their turns have passed: there is no room for
/// as many again.
fn leaky_bucket_holds_no_more_than_its_burst_after_a_stall(test_store: &TestStore) {
    const BURST: usize = 20;
    let recording = TimestampUpstream::start();
    let limit = "key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"2/second\"\nburst = 20";
    let weir = Weir::start(&test_store.configure(Config::to(&recording.upstream).limit(limit)));
    let mut clients: Vec<Client> = (0..BURST).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(as_user("")));
    wait_until("all but the first wait", || queue_depth(&weir) >= BURST - 2);
    weir.stall(Duration::from_secs(5));
    // Ten turns have passed, and one or two of them have left.
    let mut more: Vec<Client> = (0..BURST).map(|_| weir.connect()).collect();
    more.iter_mut().for_each(|client| client.send(as_user("")));
    wait_until("all have been decided", || {
        outcomes(&weir, "allowed") + outcomes(&weir, "refused") == 2.0 * BURST as f64
    });
    let (waiting, left) = (queue_depth(&weir), recording.upstream.heads());
    // One more, whose turn has come and whose task has not woken up yet.
    assert!(waiting <= BURST + 1, "{waiting} wait in a bucket of {BURST}, {left} have left");
}

fn request_due_exactly_within_max_wait_passes(test_store: &TestStore) {
    let limit = "key = \"ip\"\nrate = \"20/second\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"50ms\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut client = weir.connect();
    // Each comes just after the one before has passed, so it may wait for a moment longer than it
    // has to: less than a timer is late by.
    let refused = (0..60).filter(|_| client.ask(as_user("")).status != 200).count();
    assert_eq!(refused, 0, "of 60");
}

/// Whether a request can pass in time is known when it arrives, as no other caller spends.
fn no_request_is_queued_only_to_be_refused(test_store: &TestStore) {
    let limit = "key = \"ip\"\nrate = \"20/second\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"2s\"\nmax_queue = 1000";
    let mut seen = Vec::new();
    // A machine that stands still for longer than a request's worth makes some of them late.
    let held = (0..3).any(|run| {
        let weir = Weir::start(&test_store.configure_case(run, Config::echo().limit(limit)));
        let mut clients: Vec<Client> = (0..120).map(|_| weir.connect()).collect();
        assert_eq!(clients[0].ask(as_user("")).status, 200);
        clients.iter_mut().for_each(|client| client.send(as_user("")));
        let statuses: Vec<u16> =
            clients.iter_mut().map(|client| client.response().status).collect();
        let passed = statuses.iter().filter(|status| **status == 200).count();
        wait_until("all are counted", || {
            outcomes(&weir, "allowed") + outcomes(&weir, "refused") == 121.0
        });
        let waited = outcomes(&weir, "queued") as usize;
        seen.push((waited, passed));
        passed > 30 && waited <= passed
    });
    assert!(held, "so many waited, and so many passed: {seen:?}");
}

/// That is known as soon as the gateway goes on, long before `max_wait` is over.
fn request_that_can_no_longer_pass_after_a_stall_is_refused_then(test_store: &TestStore) {
    let limit = "key = \"ip\"\nrate = \"1/second\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"15s\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut clients: Vec<Client> = (0..15).map(|_| weir.connect()).collect();
    let mut last_sent = Instant::now();
    for (number, client) in clients.iter_mut().enumerate() {
        last_sent = Instant::now();
        client.send(as_user(""));
        wait_until("it waits, or is through", || queue_depth(&weir) + 1 > number);
    }
    assert!(outcomes(&weir, "refused") == 0.0, "all of them can pass in time");
    weir.stall(Duration::from_secs(8));
    // Seven of the seconds that the last ones would have needed are gone.
    wait_until("those who cannot pass are refused", || outcomes(&weir, "refused") >= 1.0);
    let took = last_sent.elapsed();
    assert!(took < Duration::from_secs(15), "refused only after {took:?}");
    drop(clients);
}
