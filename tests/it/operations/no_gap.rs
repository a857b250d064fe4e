//! Requests that keep coming while gateways are reloaded, replaced and restarted: none fails.
//!
//! A few thousand here; `tests/lifecycle/run` asks for a hundred thousand.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::ports::free_port;
use crate::support::wire::ReadError;
use crate::support::{
    Client, Config, LONG_PATIENCE, Scratch, SetOnDrop, Weir, get, wait_at_most, wait_until,
};

/// So many requests in each of the three parts, at least.
const REQUESTS: usize = 1_200;
const CLIENTS: usize = 6;
/// How often a thing happens in its part: once for so many requests, and a few times at least.
const REQUESTS_EACH: usize = 2_000;
const TIMES: usize = 3;

fn requests() -> usize {
    let asked = std::env::var("WEIR_TEST_LIFECYCLE_REQUESTS").ok();
    asked.map_or(REQUESTS, |it| it.parse::<usize>().expect("a number of requests").div_ceil(3))
}

/// What the clients of one part have seen.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    connections: usize,
    /// Requests on a kept connection that met its close, before a byte of an answer: clients send such
    /// a request again (RFC 9112 section 9.3.1).
    repeated: usize,
    failed: Vec<String>,
    slowest: Duration,
}

impl Tally {
    fn add(mut self, other: Tally) -> Tally {
        self.answered += other.answered;
        self.connections += other.connections;
        self.repeated += other.repeated;
        self.failed.extend(other.failed);
        self.slowest = self.slowest.max(other.slowest);
        self
    }
}

/// The gateways that a load balancer would choose from.
#[derive(Debug, Clone)]
struct Pool(Arc<RwLock<Vec<SocketAddr>>>);

impl Pool {
    fn of(addresses: &[SocketAddr]) -> Pool {
        Pool(Arc::new(RwLock::new(addresses.to_vec())))
    }

    /// When it returns, nobody is about to connect to it.
    fn remove(&self, address: SocketAddr) {
        self.0.write().unwrap().retain(|it| *it != address);
    }

    fn add(&self, address: SocketAddr) {
        self.0.write().unwrap().push(address);
    }

    fn connect(&self, number: usize) -> Option<Client> {
        let addresses = self.0.read().unwrap();
        Client::try_connect(addresses[number % addresses.len()])
    }
}

/// Asks until it is over, on one connection after another or on one for each request.
fn ask(pool: &Pool, keep: bool, over: &AtomicBool, count: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    let mut connection: Option<Client> = None;
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let fresh = connection.is_none();
        if fresh {
            tally.connections += 1;
            connection = pool.connect(tally.connections);
        }
        let Some(client) = &mut connection else {
            tally.failed.push("refused".to_owned());
            continue;
        };
        match client.try_ask(get("/some/path")) {
            Ok(answer) if answer.status == 200 && !answer.truncated => {
                tally.answered += 1;
                tally.slowest = tally.slowest.max(began.elapsed());
                count.fetch_add(1, Ordering::Relaxed);
                if !keep || answer.all("connection").contains(&"close") {
                    connection = None;
                }
            }
            Err(ReadError::Closed) if !fresh => {
                tally.repeated += 1;
                connection = None;
            }
            other => {
                tally.failed.push(format!("{other:?}"));
                connection = None;
            }
        }
    }
    tally
}

/// Has clients ask while something happens a few times, spread over the requests.
fn under_load(pool: &Pool, name: &str, mut happens: impl FnMut()) -> Tally {
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wanted = requests();
    let times = TIMES.max(wanted / REQUESTS_EACH);
    let answered = |least: usize| {
        let patience = LONG_PATIENCE + Duration::from_millis(10 * wanted as u64);
        wait_at_most(patience, "requests are answered", || count.load(Ordering::Relaxed) >= least);
    };
    let tally = thread::scope(|scope| {
        let end = SetOnDrop(&over);
        let client = |number| {
            let (over, count) = (&over, &count);
            scope.spawn(move || ask(pool, number % 2 == 0, over, count))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for time in 0..times {
            answered(wanted * (time + 1) / (times + 1));
            happens();
        }
        answered(wanted);
        drop(end);
        clients.into_iter().map(|it| it.join().unwrap()).fold(Tally::default(), Tally::add)
    });
    println!(
        "{name:<22} {times:>5} {:>9} {:>12} {:>9} {:>7} {:>10.1} ms",
        tally.answered,
        tally.connections,
        tally.repeated,
        tally.failed.len(),
        tally.slowest.as_secs_f64() * 1e3
    );
    assert!(tally.failed.is_empty(), "{name}: {:#?}", tally.failed);
    tally
}

fn start(folder: &Scratch, name: &str) -> Weir {
    let config = Config::echo()
        .open()
        .server(&format!("listen = \"127.0.0.1:{}\"", free_port()))
        .server(&format!("takeover = {:?}", folder.path().join(name)))
        .server("drain_delay = \"1h\"")
        .admin(&format!("listen = \"127.0.0.1:{}\"", free_port()));
    Weir::start(&config)
}

#[test]
fn no_request_fails_through_reloads_takeovers_and_restarts() {
    let folder = Scratch::new();
    let mut gateways = [start(&folder, "a"), start(&folder, "b")];
    let addresses = gateways.each_ref().map(|it| it.address());
    println!(
        "{:<22} {:>5} {:>9} {:>12} {:>9} {:>7} {:>13}",
        "while", "times", "requests", "connections", "repeated", "failed", "slowest"
    );

    let only = Pool::of(&addresses[..1]);
    under_load(&only, "SIGHUP", || {
        let before = gateways[0].reloads("ok");
        gateways[0].signal(Signal::HUP);
        wait_until("it is reloaded", || gateways[0].reloads("ok") > before);
    });
    // All are kept: the file lies in the folder of the first.
    let mut before = Vec::new();
    under_load(&only, "takeover", || {
        let next = gateways[0].take_over();
        before.push(std::mem::replace(&mut gateways[0], next));
        assert_eq!(before.last_mut().unwrap().exit().code(), Some(0));
    });

    let both = Pool::of(&addresses);
    let mut turn = 0;
    under_load(&both, "SIGTERM and a start", || {
        let gateway = &mut gateways[turn % 2];
        turn += 1;
        gateway.signal(Signal::TERM);
        wait_until("it is not ready", || gateway.admin("/readyz").status == 503);
        both.remove(gateway.address());
        // The balancer has noticed, so the delay may end.
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.exit().code(), Some(0));
        let next = Weir::start_from(Scratch::new(), gateway.file().to_owned());
        both.add(next.address());
        before.push(std::mem::replace(gateway, next));
    });
}
