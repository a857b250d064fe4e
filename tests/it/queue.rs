//! `strategy = "queue"`: whoever is over the limit waits for it, in the order in which they came.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::load::FREE;
use crate::support::upstream::ok;
use crate::support::{
    Client, Config, Held, Home, Response, Upstream, Weir, fields, get, get_with, on_each_store,
    wait_until,
};

on_each_store!(
    a_thousand_wait_in_order_and_pass_at_the_rate,
    a_line_for_single_units_is_served_at_the_full_rate,
    those_who_wait_pass_first_come_first_served,
    whoever_leaves_frees_a_place_and_is_not_charged,
    who_finds_the_queue_full_is_refused_at_once,
    who_would_wait_too_long_is_refused_at_once,
    one_key_does_not_hold_up_another,
    sigterm_answers_those_who_wait,
    places_are_waited_for_as_well,
    another_limit_that_refuses_is_not_waited_for,
    a_cost_that_never_fits_is_not_waited_for,
);

/// What clocks may differ by over a few seconds.
const SKEW: Duration = Duration::from_millis(2);

/// An upstream that notes in which order and when numbered requests came.
#[derive(Debug)]
struct Noting {
    upstream: Upstream,
    arrivals: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl Noting {
    fn start() -> Noting {
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&arrivals);
        let upstream = Upstream::replying(move |request| {
            let number = request.all("x-number").first().map_or(0, |it| it.parse().unwrap());
            noted.lock().unwrap().push((number, Instant::now()));
            ok("ok")
        });
        Noting { upstream, arrivals }
    }

    fn arrivals(&self) -> Vec<(usize, Instant)> {
        self.arrivals.lock().unwrap().clone()
    }

    /// A gateway with one limit, which counts by `X-User`.
    fn queueing(&self, home: &Home, limit: &str) -> Weir {
        let limit = format!("key = \"header:x-user\"\nstrategy = \"queue\"\n{limit}");
        Weir::start(&home.of(Config::to(&self.upstream).limit(&limit)))
    }
}

fn numbered(number: usize) -> String {
    get_with("/", &format!("X-Number: {number}\r\n"))
}

fn depth(weir: &Weir) -> usize {
    weir.metrics().value("weir_queue_depth", &[("limit", "per-ip")]).unwrap_or(0.0) as usize
}

#[track_caller]
fn wait_for_depth(weir: &Weir, wanted: usize) {
    wait_until(&format!("{wanted} wait"), || depth(weir) == wanted);
}

/// Has a client wait behind all others.
#[track_caller]
fn join(weir: &Weir, request: &str) -> Client {
    let before = depth(weir);
    let mut client = weir.connect();
    client.send(request);
    wait_for_depth(weir, before + 1);
    client
}

/// With a burst, so that the bucket keeps what refills while a busy machine holds up the gateway.
fn a_thousand_wait_in_order_and_pass_at_the_rate(home: &Home) {
    // Over Redis each that passes is a call of its own, one after another: on a machine that is busy
    // with other tests, that alone takes milliseconds.
    let promised = match home {
        Home::Memory => 200.0,
        Home::Redis(_) => 100.0,
    };
    passes_at_the_rate(home, 1000, promised, 25);
}

/// Timers wake up late, and what refills meanwhile is not lost, though the bucket is full by then: up
/// to one unit, which at this rate takes longer than a busy machine makes anybody late by.
fn a_line_for_single_units_is_served_at_the_full_rate(home: &Home) {
    passes_at_the_rate(home, 200, 40.0, 1);
}

#[track_caller]
fn passes_at_the_rate(home: &Home, count: usize, promised: f64, burst: usize) {
    let mut rates = Vec::new();
    // Such a machine may fall behind. Nobody ever gets ahead, which each run makes sure of.
    let held = (0..3).any(|run| {
        let rate = rate_of_many(home, run, count, (promised, burst));
        rates.push(rate);
        (rate - promised).abs() <= promised * 0.02
    });
    assert!(held, "{rates:?} a second, {promised} are promised");
}

/// How many of them pass in a second, after the burst.
#[track_caller]
fn rate_of_many(home: &Home, run: usize, count: usize, (promised, burst): (f64, usize)) -> f64 {
    const GROUP: usize = 25;
    let noting = Noting::start();
    let tables = COUNTED.replace("1/second", &format!("{promised}/second"));
    let tables = tables.replace("burst = 1\n", &format!("burst = {burst}\n"));
    let tables = tables.replace("burst = 100", "burst = 9999");
    let tables = tables.replace("max_wait", "max_queue = 1000\nmax_wait");
    let config = Config::to(&noting.upstream).open().routes(&tables).also(FREE);
    let weir = Weir::start(&home.apart(run, config));
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
        wait_until("the whole group is in line, or through", || {
            let waiting = depth(&weir);
            deepest = deepest.max(waiting);
            waiting + noting.upstream.heads() >= sent
        });
    }
    assert!(deepest > count / 2, "only {deepest} ever waited");
    // The other limit tells in which order they passed, however long they then took to arrive.
    let passed = clients.iter_mut().enumerate().map(|(number, client)| {
        let response = client.response();
        assert_eq!(response.status, 200);
        (charged(&response, 9999), number / GROUP)
    });
    let mut passed: Vec<(i64, usize)> = passed.collect();
    passed.sort_unstable();
    assert!(passed.iter().map(|it| it.0).eq(1..=count as i64), "each was charged once");
    assert!(passed.is_sorted_by_key(|it| it.1), "first come, first served: {passed:?}");
    let arrivals = noting.arrivals();
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

fn those_who_wait_pass_first_come_first_served(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"5/second\"\nburst = 1\nmax_wait = \"30s\"";
    let weir = noting.queueing(home, limit);
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..8).map(|_| weir.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
        wait_until("it waits, or is through", || depth(&weir) + noting.upstream.heads() > number);
    }
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.status, 200);
        assert!(!response.has("retry-after"));
    }
    for (turn, (number, arrived)) in (0_u32..).zip(noting.arrivals()) {
        assert_eq!(number, turn as usize);
        assert!(arrived - begin + SKEW >= Duration::from_millis(200) * turn, "{turn}");
    }
    wait_for_depth(&weir, 0);
    let counted = |outcome| {
        let labels = [("limit", "per-ip"), ("outcome", outcome)];
        weir.metrics().value("weir_decisions_total", &labels).unwrap_or(0.0)
    };
    wait_until("outcomes are counted", || counted("allowed") == 8.0);
    assert!((5.0..=7.0).contains(&counted("queued")), "{}", counted("queued"));
    assert_eq!(counted("refused"), 0.0);
}

/// A queue of one a second, and a count of what was charged.
const COUNTED: &str = r#"
    [limits.per-ip]
    key = "global"
    rate = "1/second"
    burst = 1
    strategy = "queue"
    max_wait = "30s"

    [limits.count]
    key = "global"
    rate = "1/day"
    burst = 100

    [[routes]]
    name = "all"
    path = "/*"
    upstream = "api"
    limits = ["per-ip", "count"]
"#;

/// How many had been charged with this one, of all there are.
fn charged(response: &Response, all: i64) -> i64 {
    let told = fields::list(&response.all("ratelimit"));
    all - told.iter().find(|it| it.name() == "count").expect("the count").integer("r")
}

fn whoever_leaves_frees_a_place_and_is_not_charged(home: &Home) {
    let noting = Noting::start();
    let config = Config::to(&noting.upstream).open().routes(COUNTED);
    let weir = Weir::start(&home.of(config));
    let mut first = weir.connect();
    assert_eq!(charged(&first.ask(numbered(0)), 100), 1);
    let begin = Instant::now();
    let mut waiting: Vec<Client> = (1..=12).map(|number| join(&weir, &numbered(number))).collect();
    let mut last = waiting.pop().expect("the last");
    for (number, client) in waiting.into_iter().enumerate() {
        if number % 2 == 0 { drop(client) } else { client.wire.reset() }
    }
    let response = last.response();
    let took = begin.elapsed();
    assert_eq!((response.status, charged(&response, 100)), (200, noting.upstream.heads() as i64));
    // Twelve seconds, had all of them stayed.
    assert!(took < Duration::from_secs(8), "moved up only after {took:?}");
    wait_for_depth(&weir, 0);
    assert!(noting.upstream.heads() < 8, "those who left were not forwarded");
}

fn who_finds_the_queue_full_is_refused_at_once(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"1/2s\"\nburst = 1\nmax_wait = \"30s\"\nmax_queue = 2";
    let weir = noting.queueing(home, limit);
    assert_eq!(weir.ask(numbered(0)).status, 200);
    let mut waiting = [join(&weir, &numbered(1)), join(&weir, &numbered(2))];
    for _ in 0..3 {
        let refused = weir.ask(numbered(3));
        assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
        assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
        assert_eq!(refused.json()["limit"], "per-ip");
    }
    assert_eq!(noting.upstream.heads(), 1, "it was told while the others wait");
    assert_eq!(depth(&weir), 2);
    assert_eq!(waiting.each_mut().map(|client| client.response().status), [200, 200]);
    let numbers: Vec<usize> = noting.arrivals().iter().map(|it| it.0).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

fn who_would_wait_too_long_is_refused_at_once(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"1/2s\"\nburst = 1\nmax_wait = \"3s\"";
    let weir = noting.queueing(home, limit);
    assert_eq!(weir.ask(numbered(0)).status, 200);
    let mut waiting = join(&weir, &numbered(1));
    // The next would have to wait for four seconds, or nearly.
    let refused = weir.ask(numbered(2));
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
    assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!((noting.upstream.heads(), depth(&weir)), (1, 1), "it was told at once");
    assert_eq!(waiting.response().status, 200);
    // And without anybody before it.
    let weir = noting.queueing(home, "rate = \"1/hour\"\nburst = 1\nmax_wait = \"1m\"");
    let ask = || weir.ask(get_with("/", "X-User: other\r\n"));
    assert_eq!(ask().status, 200);
    let refused = ask();
    assert_eq!(refused.status, 429);
    let retry: u64 = refused.one("retry-after").parse().unwrap();
    assert!((3500..=3600).contains(&retry), "{retry}");
    assert_eq!(depth(&weir), 0);
}

fn one_key_does_not_hold_up_another(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"1/10s\"\nburst = 1\nmax_wait = \"1h\"\nmax_queue = 50";
    let weir = noting.queueing(home, limit);
    let as_user = |user: &str| get_with("/", &format!("X-User: {user}\r\n"));
    assert_eq!(weir.ask(as_user("busy")).status, 200);
    let _waiting: Vec<Client> = (0..40).map(|_| join(&weir, &as_user("busy"))).collect();
    for user in ["a", "b", "c", "d", "e"] {
        assert_eq!(weir.ask(as_user(user)).status, 200);
    }
    assert!(depth(&weir) >= 38, "they did not wait for those");
}

fn sigterm_answers_those_who_wait(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"1/hour\"\nburst = 1\nmax_wait = \"10h\"";
    let limit = format!("key = \"ip\"\nstrategy = \"queue\"\n{limit}");
    let config = Config::to(&noting.upstream).limit(&limit).server("drain = \"1h\"");
    let mut weir = Weir::start(&home.of(config));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting: Vec<Client> = (1..=6).map(|number| join(&weir, &numbered(number))).collect();
    weir.signal(Signal::TERM);
    for client in &mut waiting {
        let refused = client.response();
        assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".into()));
        assert!(refused.one("retry-after").parse::<u64>().unwrap() >= 1);
        assert!(client.closes());
    }
    assert_eq!(weir.exit().code(), Some(0));
    assert_eq!(noting.upstream.heads(), 1);
}

fn places_are_waited_for_as_well(home: &Home) {
    let held = Held::start();
    let limit = "key = \"ip\"\nalgorithm = \"concurrency\"\nlimit = 2\nstrategy = \"queue\"\n\
                 max_wait = \"1m\"\nmax_queue = 3";
    let weir = Weir::start(&home.of(held.config().limit(limit)));
    let targets = ["/held/0", "/held/1", "/held/2", "/held/3", "/held/4"];
    let mut clients: Vec<Client> = targets
        .into_iter()
        .enumerate()
        .map(|(number, target)| {
            let mut client = weir.connect();
            client.send(get(target));
            let expected = (2.min(number + 1), (number + 1).saturating_sub(2));
            wait_until("it is in flight, or waits", || (held.inside(), depth(&weir)) == expected);
            client
        })
        .collect();
    let refused = weir.get("/");
    assert_eq!((refused.status, refused.one("retry-after")), (429, "1"), "the queue is full");
    // One out, one in, in their order.
    for (number, client) in clients.iter_mut().enumerate() {
        let before = held.upstream.heads();
        held.let_go(targets[number]);
        assert_eq!(client.response().status, 200);
        if number < 3 {
            wait_until("the next moves up", || held.upstream.heads() > before);
            assert_eq!(held.upstream.last().target, targets[number + 2]);
        }
    }
    assert!(held.most() <= 2, "{}", held.most());
    wait_for_depth(&weir, 0);
    wait_until("both places are free", || {
        fields::list(&weir.get("/").all("ratelimit"))[0].integer("r") == 1
    });
}

fn another_limit_that_refuses_is_not_waited_for(home: &Home) {
    let noting = Noting::start();
    let tables = COUNTED.replace("burst = 100", "burst = 2").replace("1/second", "1/hour");
    let tables = tables.replace("burst = 1\n", "burst = 3\n").replace("30s", "10h");
    let weir = Weir::start(&home.of(Config::to(&noting.upstream).open().routes(&tables)));
    assert_eq!([0; 2].map(|_| weir.get("/").status), [200, 200]);
    for _ in 0..5 {
        let refused = weir.get("/");
        assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("count")));
        let told = fields::list(&refused.all("ratelimit"));
        assert_eq!(told[0].integer("r"), 1, "and the other was not charged");
    }
    assert_eq!(depth(&weir), 0);
}

fn a_cost_that_never_fits_is_not_waited_for(home: &Home) {
    let noting = Noting::start();
    let limit = "rate = \"10/second\"\nburst = 10\nmax_wait = \"10h\"\n\
                 cost = { from = \"header:x-weight\", default = 1, max = 100 }";
    let weir = noting.queueing(home, limit);
    let refused = weir.ask(get_with("/", "X-Weight: 11\r\n"));
    assert_eq!((refused.status, refused.error()), (429, "cost_exceeds_limit".into()));
    assert!(!refused.has("retry-after"));
    // What does fit is waited for, however much it is.
    assert_eq!(weir.ask(get_with("/", "X-Weight: 10\r\n")).status, 200);
    let begin = Instant::now();
    assert_eq!(weir.ask(get_with("/", "X-Weight: 10\r\n")).status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(500), "ten take a second");
}

#[test]
fn two_gateways_with_queues_pass_no_more_than_the_rate() {
    let home = Home::redis();
    let noting = Noting::start();
    let limit = "rate = \"100/second\"\nburst = 1\nmax_wait = \"30s\"\nmax_queue = 1000";
    let weirs = [noting.queueing(&home, limit), noting.queueing(&home, limit)];
    let begin = Instant::now();
    let mut clients: Vec<Client> = (0..200).map(|number| weirs[number % 2].connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(numbered(number));
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let arrivals = noting.arrivals();
    for (turn, (_, arrived)) in (0_u32..).zip(&arrivals) {
        assert!(*arrived - begin + SKEW >= Duration::from_millis(10) * turn, "{turn} is early");
    }
    for weir in &weirs {
        wait_for_depth(weir, 0);
    }
}
