//! One server's connections, in the hands of one worker.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use http::Method;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::Instant;

use super::ConnectError;
use super::resolve::Address;
use crate::config::settings::Origin;
use crate::http1::Wire;
use crate::http1::wire::Disturbance;

/// How long a server that refused a connection is passed over.
const SHUNNED: Duration = Duration::from_secs(1);
/// Complaints about the same server are this far apart.
const COMPLAIN: Duration = Duration::from_secs(30);
/// How many idle connections are looked at in search of one from an earlier turn.
const LOOK: usize = 8;

#[derive(Debug)]
pub struct Server {
    pub address: Address,
    /// The host to ask for when the client names none.
    pub authority: String,
    idle: RefCell<Vec<Idle>>,
    keep: Cell<usize>,
    patience: Cell<Duration>,
    active: Cell<usize>,
    shunned_until: Cell<Option<Instant>>,
    complained: Cell<Option<Instant>>,
    /// It has sent the body that the answer to a HEAD, or a 304, spoke of.
    sends_unasked: Cell<bool>,
    /// One has been watched, and none came.
    keeps_silent: Cell<bool>,
}

#[derive(Debug)]
struct Idle {
    wire: Box<Wire>,
    /// The last answer on it spoke of a body, and had none.
    announced: bool,
    since: Instant,
    /// The runtime's turn in which it fell idle.
    turn: u64,
}

/// A body that is sent to HEAD follows its head within this.
const WATCHED: Duration = Duration::from_millis(25);

impl Idle {
    /// Whether it has been silent for long enough.
    fn is_ripe(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WATCHED
    }
}

/// A connection that was idle.
#[derive(Debug)]
pub struct Reused {
    pub wire: Box<Wire>,
    /// The last answer on it spoke of a body, and had none: if one comes after all, what is read
    /// next is that body.
    pub announced: bool,
}

impl Server {
    #[must_use]
    pub fn new(origin: &Origin) -> Self {
        let bracketed = origin.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        Server {
            address: Address::new(origin),
            authority: format!("{open}{}{close}:{}", origin.host, origin.port),
            idle: RefCell::default(),
            keep: Cell::new(0),
            patience: Cell::default(),
            active: Cell::new(0),
            shunned_until: Cell::new(None),
            complained: Cell::new(None),
            sends_unasked: Cell::new(false),
            keeps_silent: Cell::new(false),
        }
    }

    pub(super) fn keep_idle(&self, keep: usize, patience: Duration) {
        self.keep.set(keep);
        self.patience.set(patience);
    }

    /// Requests under way here.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.get()
    }

    #[must_use]
    pub fn is_shunned(&self, now: Instant) -> bool {
        self.shunned_until.get().is_some_and(|until| now < until)
    }

    /// Leaves the server alone for a moment. Said once, and again while it lasts.
    pub(super) fn failed(&self, now: Instant, error: &ConnectError) {
        self.shunned_until.set(Some(now + SHUNNED));
        if self.complained.get().is_none_or(|last| now - last > COMPLAIN) {
            self.complained.set(Some(now));
            tracing::warn!("upstream server {} cannot be reached: {error}", self.authority);
        }
    }

    /// While one request finds out whether it is back, others need not wait for the answer.
    pub(super) fn tried(&self, now: Instant) {
        if self.complained.get().is_some() {
            self.shunned_until.set(Some(now + SHUNNED));
        }
    }

    pub(super) fn recovered(&self) {
        self.shunned_until.set(None);
        if self.complained.take().is_some() {
            tracing::info!("upstream server {} can be reached again", self.authority);
        }
    }

    /// Counts a request until its slot is dropped.
    pub fn occupy(self: &Rc<Self>, now: Instant) -> Slot {
        self.active.set(self.active.get() + 1);
        Slot { server: self.clone(), since: now }
    }

    /// The idle connection that was used last, if the server has not closed it meanwhile.
    #[must_use]
    pub fn reuse(&self, now: Instant, method: &Method) -> Option<Reused> {
        let turn = turn();
        loop {
            let idle = self.take_idle(turn, |idle| self.may_serve(idle, now, method))?;
            let fresh = now.saturating_duration_since(idle.since) < self.patience.get();
            // What may come at any moment is asked of the kernel.
            match idle.wire.disturbance(idle.turn != turn && !idle.announced) {
                None if fresh => {
                    if idle.announced && idle.is_ripe(now) {
                        self.keeps_silent.set(true);
                    }
                    return Some(Reused { wire: idle.wire, announced: idle.announced });
                }
                Some(Disturbance::Sent) if idle.announced => self.sends_unasked.set(true),
                _ => {}
            }
        }
    }

    /// The server sends bodies where there can be none: after such an answer its connections are
    /// of no more use.
    pub fn note_unasked(&self) {
        self.sends_unasked.set(true);
    }

    /// One of the last that fell idle, preferably in an earlier turn: the runtime has heard of all
    /// that happened to it until now, and the kernel need not be asked.
    fn take_idle(&self, turn: u64, may_serve: impl Fn(&Idle) -> bool) -> Option<Idle> {
        let mut idle = self.idle.borrow_mut();
        let looked = idle.len().saturating_sub(LOOK)..idle.len();
        let earlier = looked.rev().find(|&at| idle[at].turn != turn && may_serve(&idle[at]));
        let any = || idle.iter().rposition(&may_serve);
        let at = earlier.or_else(any)?;
        Some(idle.remove(at))
    }

    /// Until a server has been seen to keep silent after an answer that spoke of a body and had
    /// none, such a connection serves HEAD alone for a moment: a body that comes after all would be
    /// read as the answer to somebody else's request.
    fn may_serve(&self, idle: &Idle, now: Instant, method: &Method) -> bool {
        !idle.announced || self.keeps_silent.get() || method == Method::HEAD || idle.is_ripe(now)
    }

    pub(super) fn close_idle(&self, now: Instant) {
        let patience = self.patience.get();
        self.idle.borrow_mut().retain(|idle| now.duration_since(idle.since) < patience);
    }
}

/// The number of times that this thread's runtime has asked the kernel for news. Always the same
/// where there is no runtime: then nothing is taken to be known.
fn turn() -> u64 {
    thread_local! {
        static RUNTIME: OnceCell<Option<RuntimeMetrics>> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let found = || Handle::try_current().ok().map(|handle| handle.metrics());
        let metrics = runtime.get_or_init(found).as_ref();
        metrics.map_or(0, |metrics| metrics.worker_park_count(0))
    })
}

/// A request's place at a server.
#[derive(Debug)]
pub struct Slot {
    server: Rc<Server>,
    since: Instant,
}

impl Slot {
    /// Keeps a connection for the next request. Its idle time is counted from the start of this
    /// one: a little too much rather than too little, and the clock need not be asked again.
    /// `announced`: the last answer spoke of a body, and had none.
    pub fn give_back(&self, mut wire: Box<Wire>, announced: bool) {
        if announced && self.server.sends_unasked.get() {
            return;
        }
        let mut idle = self.server.idle.borrow_mut();
        if idle.len() < self.server.keep.get() {
            wire.clear_deadline();
            wire.slim();
            let since = if announced { Instant::now() } else { self.since };
            idle.push(Idle { wire, announced, since, turn: turn() });
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
