//! What every black-box test stands on: the real binary, a raw client, a scriptable upstream, real
//! Redis servers.
//!
//! Nothing here shares code with the product: requests are bytes on a socket, answers are taken
//! apart by a strict parser of the tests' own. Everything binds port 0 and may run in parallel.

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod crowd;
pub(crate) mod fault_proxy;
pub(crate) mod fields;
pub(crate) mod frame_server;
pub(crate) mod frames;
pub(crate) mod gateway;
pub(crate) mod held_upstream;
pub(crate) mod http2_upstream;
pub(crate) mod issuer;
pub(crate) mod load;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub(crate) mod nginx;
pub(crate) mod ports;
pub(crate) mod programs;
pub(crate) mod queues;
pub(crate) mod redis;
pub(crate) mod resp;
pub(crate) mod response;
pub(crate) mod scratch;
pub(crate) mod sentinel;
pub(crate) mod skew;
pub(crate) mod slots;
pub(crate) mod stores;
pub(crate) mod tls_client;
pub(crate) mod tls_front;
pub(crate) mod tool;
pub(crate) mod upstream;
pub(crate) mod wire;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use certificates::Certificates;
pub(crate) use client::Client;
pub(crate) use cluster::Cluster;
pub(crate) use config::Config;
pub(crate) use crowd::passed_at_once;
pub(crate) use fault_proxy::FaultProxy;
pub(crate) use gateway::Weir;
pub(crate) use held_upstream::HeldUpstream;
pub(crate) use issuer::{Issuer, KeyServer};
pub(crate) use load::Load;
pub(crate) use redis::Redis;
pub(crate) use response::Response;
pub(crate) use scratch::Scratch;
pub(crate) use sentinel::Sentinel;
pub(crate) use stores::{TestStore, on_each_store, on_every_store};
pub(crate) use tls_client::TlsClient;
pub(crate) use tool::{skip, tool};
pub(crate) use upstream::{After, Exchange, Upstream};

/// How long anything may take before a test gives up. Far above what is ever needed, so that a
/// busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The same for what takes long by itself on a busy machine, such as thousands of decisions.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// How soon a gateway uses its Redis again once it answers: probes are less than a second apart, and
/// the rest is for a busy machine.
pub(crate) const RECOVERY: Duration = Duration::from_secs(10);

/// How long a test waits before it looks at a condition again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Sets a flag when it goes, also because the test has failed: a scope waits for its threads, and they
/// go on until they are told.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until `condition` holds, and fails the test with `what` if it never does.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_at_most(PATIENCE, what, &mut condition);
}

/// The same for what was promised within a time.
#[track_caller]
pub(crate) fn wait_at_most(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until `accept` takes what `observe` returns, and fails the test with the last value otherwise.
#[track_caller]
pub(crate) fn wait_for_value<T: Debug>(
    what: &str,
    mut observe: impl FnMut() -> T,
    accept: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = observe();
        if accept(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}: {seen:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until `observe` returns the same twice, a while apart, and returns it.
#[track_caller]
pub(crate) fn wait_until_steady<T: PartialEq>(what: &str, mut observe: impl FnMut() -> T) -> T {
    let mut last = observe();
    wait_until(what, || {
        // The absence of change over a while is the condition, so time has to pass.
        std::thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut last, observe());
        before == last
    });
    last
}

/// Checks again and again, for so long, that nothing happens: `check` fails the test if it does.
pub(crate) fn check_for(time: Duration, mut check: impl FnMut()) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        check();
        std::thread::sleep(10 * POLL_INTERVAL);
    }
}

/// `GET target` as an ordinary HTTP/1.1 client sends it, keeping the connection.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n")
}

/// The same with further header lines, each ended by CRLF.
pub(crate) fn get_with(target: &str, lines: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n{lines}\r\n")
}

/// `POST target` with a Content-Length and its body.
pub(crate) fn post(target: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {length}\r\n\r\n{body}")
}
