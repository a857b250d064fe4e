//! An upstream that takes as long as a test wants it to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::config::Config;
use super::upstream::{After, Exchange, Upstream, ok};
use super::wire::Stop;

/// Longer than any test holds a request.
const LONG: Duration = Duration::from_secs(60);

/// Says that it switches protocols.
pub(crate) const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
/// Asks for it.
pub(crate) const UPGRADE: &str = "GET /tunnel HTTP/1.1\r\nHost: weir.test\r\n\
                                  Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// `/held…` is answered when it is let go; `/begun…` has its head and the beginning of its body at
/// once and the end when it is let go. `/broken` and `/cut` fail at once, before the head and behind
/// it; `/broken/held…` when it is let go. `/tunnel` switches protocols, and closes when the client
/// does or it is let go. `/slow` takes a few milliseconds, and all else is answered at once.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) upstream: Upstream,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often each target has been let go.
    let_go: HashMap<String, usize>,
    inside: usize,
    served: usize,
    most: usize,
    over: bool,
}

impl Held {
    pub(crate) fn start() -> Held {
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
        Held { upstream, gate }
    }

    pub(crate) fn config(&self) -> Config {
        Config::to(&self.upstream)
    }

    /// Answers those of this target that are held now.
    pub(crate) fn let_go(&self, target: &str) {
        *self.gate.state.lock().unwrap().let_go.entry(target.to_owned()).or_default() += 1;
    }

    /// How many are held.
    pub(crate) fn inside(&self) -> usize {
        self.gate.state.lock().unwrap().inside
    }

    /// The most that were ever served at once.
    pub(crate) fn most(&self) -> usize {
        self.gate.state.lock().unwrap().most
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap().over = true;
    }
}

fn serve(exchange: &mut Exchange<'_>, gate: &Gate) -> After {
    let target = exchange.request.target.clone();
    exchange.read_body();
    match target.as_str() {
        "/tunnel" => {
            let stay = gate.arrive(&target);
            exchange.reply(SWITCH);
            exchange.wire.set_patience(Duration::from_millis(5));
            gate.hold(stay, || exchange.wire.fill() != Err(Stop::Closed));
            return After::Close;
        }
        it if it.starts_with("/begun") => {
            let stay = gate.arrive(&target);
            exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            gate.hold(stay, || true);
            gate.leave();
            exchange.reply("0\r\n\r\n");
            return After::Keep;
        }
        it if it.starts_with("/broken") => {
            if it.contains("/held") {
                gate.hold(gate.arrive(&target), || true);
            }
            return After::Close;
        }
        it if it.starts_with("/cut") => {
            exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            return After::Close;
        }
        it if it.starts_with("/held") => gate.hold(gate.arrive(&target), || true),
        "/slow" => thread::sleep(Duration::from_millis(3)),
        _ => {}
    }
    // Whoever reads the answer finds it gone from here.
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
    fn arrive<'a>(&self, target: &'a str) -> Stay<'a> {
        let mut state = self.state.lock().unwrap();
        state.inside += 1;
        Stay { target, times: state.times(target) }
    }

    /// Until it is let go, or need not stay any longer.
    fn hold(&self, stay: Stay<'_>, mut still: impl FnMut() -> bool) {
        let begin = Instant::now();
        let held = || {
            let state = self.state.lock().unwrap();
            state.times(stay.target) == stay.times && !state.over && begin.elapsed() < LONG
        };
        while held() && still() {
            thread::sleep(Duration::from_millis(1));
        }
        self.state.lock().unwrap().inside -= 1;
    }
}

impl State {
    fn times(&self, target: &str) -> usize {
        self.let_go.get(target).copied().unwrap_or(0)
    }
}

/// How often its target had been let go when a request came.
struct Stay<'a> {
    target: &'a str,
    times: usize,
}
