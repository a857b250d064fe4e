//! A TCP proxy in front of Redis that delays, drops, cuts and refuses on demand.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::{PATIENCE, POLL_INTERVAL};

/// What the proxy does with its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// Everything passes.
    Good,
    /// Replies are delayed by this.
    Slow(Duration),
    /// On each connection, one of so many replies is delayed by this.
    SlowOneIn(usize, Duration),
    /// New connections are reset.
    Refusing,
    /// Connections are accepted, and everything sent on them is dropped.
    Silent,
}

/// How the reply to a script call gets lost once Redis has run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The connection ends in place of the reply.
    Cut,
    /// The connection stays, and nothing ever comes again.
    Silence,
}

/// What is held back of a worker's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its calls that decide.
    CallsOf(usize),
    /// All replies to it.
    RepliesTo(usize),
}

#[derive(Debug)]
struct State {
    line: Link,
    holds: Vec<Hold>,
    /// What is held back now.
    held: Vec<Hold>,
    /// The worker that made the last call that decides.
    last_worker: Option<usize>,
    next_loss: Option<Loss>,
    lost: usize,
    open: Vec<TcpStream>,
    over: bool,
}

#[derive(Debug)]
pub(crate) struct FaultProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FaultProxy {
    pub(crate) fn to(server: SocketAddr) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            line: Link::Good,
            holds: vec![],
            held: vec![],
            last_worker: None,
            next_loss: None,
            lost: 0,
            open: vec![],
            over: false,
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let line = {
                    let state = lock(&shared);
                    if state.over {
                        return;
                    }
                    state.line
                };
                if line == Link::Refusing {
                    let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
                    continue;
                }
                if let Ok(server) = TcpStream::connect_timeout(&server, PATIENCE) {
                    carry(client, server, &shared);
                }
            }
        });
        FaultProxy { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lines of `[store]` that lead to Redis this way.
    pub(crate) fn store(&self) -> String {
        format!("kind = \"redis\"\nurl = \"redis://{}\"\n", self.address)
    }

    pub(crate) fn set(&self, line: Link) {
        lock(&self.state).line = line;
    }

    /// The next call that decides reaches Redis, and its reply does not come back.
    pub(crate) fn lose_next_reply(&self, loss: Loss) {
        lock(&self.state).next_loss = Some(loss);
    }

    /// How many replies have been lost so.
    pub(crate) fn lost(&self) -> usize {
        lock(&self.state).lost
    }

    /// The worker that made the last call that decides, on a Redis that is no cluster.
    pub(crate) fn last_worker(&self) -> Option<usize> {
        lock(&self.state).last_worker
    }

    /// From now on this is held back.
    pub(crate) fn hold(&self, hold: Hold) {
        lock(&self.state).holds.push(hold);
    }

    /// Whether something is held back so.
    pub(crate) fn holds(&self, hold: Hold) -> bool {
        lock(&self.state).held.contains(&hold)
    }

    pub(crate) fn release(&self, hold: Hold) {
        lock(&self.state).holds.retain(|it| *it != hold);
    }

    /// Ends every connection there is.
    pub(crate) fn cut(&self) {
        for stream in lock(&self.state).open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        (state.over, state.holds) = (true, vec![]);
        drop(state);
        self.cut();
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Two threads a connection, one a direction; both end with it.
fn carry(client: TcpStream, server: TcpStream, state: &Arc<Mutex<State>>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let copy = |stream: &TcpStream| stream.try_clone().unwrap();
    lock(state).open.extend([copy(&client), copy(&server)]);
    // How the next reply on this connection gets lost.
    let loss = Arc::new(Mutex::new(None));
    // Whose connection it is, once that has shown.
    let worker = Arc::new(Mutex::new(None));
    let (there, back) = ((copy(&client), copy(&server)), (server, client));
    let (shared, armed, caller) = (Arc::clone(state), Arc::clone(&loss), Arc::clone(&worker));
    thread::spawn(move || {
        pass(there, |bytes| {
            if let Some(number) = worker_of(bytes) {
                *caller.lock().unwrap() = Some(number);
                lock(&shared).last_worker = Some(number);
                wait_while_held(&shared, Hold::CallsOf(number));
            }
            let mut state = lock(&shared);
            if state.line == Link::Silent {
                return Some(false);
            }
            if state.next_loss.is_some() && is_decision(bytes) {
                *armed.lock().unwrap() = state.next_loss.take();
            }
            Some(true)
        });
    });
    let shared = Arc::clone(state);
    thread::spawn(move || {
        let (mut gone, mut replies) = (false, 0_usize);
        pass(back, |_| {
            let caller = *worker.lock().unwrap();
            if let Some(number) = caller {
                wait_while_held(&shared, Hold::RepliesTo(number));
            }
            if let Some(loss) = loss.lock().unwrap().take() {
                lock(&shared).lost += 1;
                gone = true;
                return (loss == Loss::Silence).then_some(false);
            }
            if gone {
                return Some(false);
            }
            let line = lock(&shared).line;
            replies += 1;
            match line {
                Link::Silent => return Some(false),
                Link::Slow(by) => thread::sleep(by),
                Link::SlowOneIn(many, by) if replies.is_multiple_of(many) => thread::sleep(by),
                Link::Good | Link::Refusing | Link::SlowOneIn(..) => {}
            }
            Some(true)
        });
    });
}

fn wait_while_held(state: &Mutex<State>, hold: Hold) {
    let is_held = || lock(state).holds.contains(&hold);
    if !is_held() {
        return;
    }
    lock(state).held.push(hold);
    while is_held() {
        thread::sleep(POLL_INTERVAL);
    }
    lock(state).held.retain(|it| *it != hold);
}

/// Copies one direction. `judge` decides for each piece whether it is passed on; `None` ends the
/// connection.
fn pass((mut from, mut to): (TcpStream, TcpStream), mut judge: impl FnMut(&[u8]) -> Option<bool>) {
    let mut chunk = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        match judge(&chunk[..count]) {
            Some(true) if to.write_all(&chunk[..count]).is_ok() => {}
            Some(false) => {}
            _ => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Whether it is a script call that decides: those of heartbeats and probes name a key of their own.
fn is_decision(bytes: &[u8]) -> bool {
    let names = |what: &[u8]| bytes.windows(what.len()).any(|it| it.eq_ignore_ascii_case(what));
    let own_keys: [&[u8]; 3] = [b":@nodes", b":@probe", b":@overrides"];
    names(b"EVAL") && !own_keys.into_iter().any(names)
}

/// The worker whose call that decides it is, by the name of its fence.
fn worker_of(bytes: &[u8]) -> Option<usize> {
    const FENCE: &[u8] = b":@fence:";
    let at = bytes.windows(FENCE.len()).position(|it| it == FENCE)?;
    let name = bytes[at..].split(|it| *it == b'\r').next()?;
    let number = name.rsplit(|it| *it == b':').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}
