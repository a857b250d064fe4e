//! An upstream that holds requests until a test releases them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::config::Config;
use super::upstream::{After, Exchange, Upstream, ok};
use super::wire::ReadError;

/// Longer than any test holds a request.
const LONG: Duration = Duration::from_secs(60);

/// The response that switches protocols.
pub(crate) const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
/// The request for it.
pub(crate) const UPGRADE: &str = "GET /tunnel HTTP/1.1\r\nHost: weir.test\r\n\
                                  Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Answers by the target of a request:
///
/// - `/held…`: when it is released.
/// - `/begun…`: head and beginning of the body at once, the end when it is released.
/// - `/broken`: closes before the head; `/broken/held…` when it is released.
/// - `/cut`: closes in the middle of the body.
/// - `/tunnel`: switches protocols, and closes when the client does or it is released.
/// - `/slow`: after a few milliseconds.
/// - everything else: at once.
#[derive(Debug)]
pub(crate) struct HeldUpstream {
    pub(crate) upstream: Upstream,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    /// Signalled when requests are released.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often each target has been released.
    released: HashMap<String, usize>,
    held_count: usize,
    served: usize,
    most: usize,
    over: bool,
}

impl HeldUpstream {
    pub(crate) fn start() -> HeldUpstream {
        let gate = Arc::new(Gate::default());
        let inner = Arc::clone(&gate);
        let upstream = Upstream::scripted(move |exchange| {
            inner.enter();
            let after = serve(exchange, &inner);
            if after == After::Close {
                inner.leave();
            }
            after
        });
        HeldUpstream { upstream, gate }
    }

    pub(crate) fn config(&self) -> Config {
        Config::to(&self.upstream)
    }

    /// Answers those of this target that are held now.
    pub(crate) fn release(&self, target: &str) {
        *self.gate.state.lock().unwrap().released.entry(target.to_owned()).or_default() += 1;
        self.gate.changed.notify_all();
    }

    /// How many are held.
    pub(crate) fn held_count(&self) -> usize {
        self.gate.state.lock().unwrap().held_count
    }

    /// The most that were ever served at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.gate.state.lock().unwrap().most
    }
}

impl Drop for HeldUpstream {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap().over = true;
        self.gate.changed.notify_all();
    }
}

fn serve(exchange: &mut Exchange<'_>, gate: &Gate) -> After {
    let target = exchange.request.target.clone();
    exchange.read_body();
    match target.as_str() {
        "/tunnel" => {
            let held_request = gate.arrive(&target);
            exchange.reply(SWITCH);
            exchange.wire.set_patience(Duration::from_millis(5));
            gate.hold_tunnel(&held_request, || exchange.wire.fill() != Err(ReadError::Closed));
            return After::Close;
        }
        it if it.starts_with("/begun") => {
            let held_request = gate.arrive(&target);
            exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            gate.hold(&held_request);
            gate.leave();
            exchange.reply("0\r\n\r\n");
            return After::Keep;
        }
        it if it.starts_with("/broken") => {
            if it.contains("/held") {
                gate.hold(&gate.arrive(&target));
            }
            return After::Close;
        }
        it if it.starts_with("/cut") => {
            exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            return After::Close;
        }
        it if it.starts_with("/held") => gate.hold(&gate.arrive(&target)),
        // Taking its time is what it is for.
        "/slow" => thread::sleep(Duration::from_millis(3)),
        _ => {}
    }
    // Counted before the reply, so that a client that has the response finds it counted.
    gate.leave();
    exchange.reply(ok("ok"));
    After::Keep
}

impl Gate {
    fn enter(&self) {
        let mut state = self.state.lock().unwrap();
        state.served += 1;
        state.most = state.most.max(state.served);
    }

    fn leave(&self) {
        self.state.lock().unwrap().served -= 1;
    }

    /// Counts as held from now on.
    fn arrive<'a>(&self, target: &'a str) -> HeldRequest<'a> {
        let mut state = self.state.lock().unwrap();
        state.held_count += 1;
        HeldRequest { target, times: state.times(target) }
    }

    /// Waits until it is released.
    fn hold(&self, held_request: &HeldRequest<'_>) {
        let state = self.state.lock().unwrap();
        let held = |state: &mut State| state.holds(held_request);
        let (mut state, _) = self.changed.wait_timeout_while(state, LONG, held).unwrap();
        state.held_count -= 1;
    }

    /// Waits until it is released or its client closes, which `is_open` finds out by reading.
    fn hold_tunnel(&self, held_request: &HeldRequest<'_>, mut is_open: impl FnMut() -> bool) {
        let begin = Instant::now();
        let held = || self.state.lock().unwrap().holds(held_request) && begin.elapsed() < LONG;
        while held() && is_open() {}
        self.state.lock().unwrap().held_count -= 1;
    }
}

impl State {
    fn times(&self, target: &str) -> usize {
        self.released.get(target).copied().unwrap_or(0)
    }

    fn holds(&self, held_request: &HeldRequest<'_>) -> bool {
        self.times(held_request.target) == held_request.times && !self.over
    }
}

/// A request, and how often its target had been released when it came.
struct HeldRequest<'a> {
    target: &'a str,
    times: usize,
}
