//! One server's idle connections and its state, as one worker sees them.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use http::Method;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::Instant;

use super::ConnectError;
use super::resolve::ServerAddress;
use crate::config::settings::Origin;
use crate::http1::{BufferedStream, IdleEvent};

/// How long a server that refused a connection gets no requests, if there are others.
const UNAVAILABLE: Duration = Duration::from_secs(1);
/// The same failing server is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// How many idle connections are searched for one whose state the runtime knows.
const SEARCHED: usize = 8;

#[derive(Debug)]
pub(crate) struct Server {
    pub address: ServerAddress,
    /// The host to ask for when the client names none.
    pub authority: String,
    idle: RefCell<Vec<IdleConnection>>,
    max_idle: Cell<usize>,
    idle_timeout: Cell<Duration>,
    active: Cell<usize>,
    unavailable_until: Cell<Option<Instant>>,
    failure_logged: Cell<Option<Instant>>,
    /// It has sent a body after a response that cannot have one: to HEAD, or a 304.
    sends_forbidden_bodies: Cell<bool>,
    /// After such a response a connection was watched, and no body came.
    proven_silent: Cell<bool>,
}

#[derive(Debug)]
struct IdleConnection {
    io: Box<BufferedStream>,
    /// The last response on it announced a body that it must not have: to HEAD, or a 304.
    announced: bool,
    since: Instant,
    /// How often the runtime had polled the kernel when it fell idle.
    polls: u64,
}

/// A server that wrongly sends a body with the response to HEAD does so within this time.
const WATCH_TIME: Duration = Duration::from_millis(25);

impl IdleConnection {
    /// Whether it has been silent for long enough.
    fn is_ripe(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WATCH_TIME
    }
}

/// A connection that was idle.
#[derive(Debug)]
pub(crate) struct ReusedConnection {
    pub io: Box<BufferedStream>,
    /// The last response on it announced a body that it must not have: if that comes after all, it
    /// is what is read next.
    pub announced: bool,
}

impl Server {
    pub(crate) fn new(origin: &Origin) -> Self {
        let bracketed = origin.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        Server {
            address: ServerAddress::new(origin),
            authority: format!("{open}{}{close}:{}", origin.host, origin.port),
            idle: RefCell::default(),
            max_idle: Cell::new(0),
            idle_timeout: Cell::default(),
            active: Cell::new(0),
            unavailable_until: Cell::new(None),
            failure_logged: Cell::new(None),
            sends_forbidden_bodies: Cell::new(false),
            proven_silent: Cell::new(false),
        }
    }

    pub(super) fn keep_idle(&self, max_idle: usize, idle_timeout: Duration) {
        self.max_idle.set(max_idle);
        self.idle_timeout.set(idle_timeout);
    }

    /// Requests under way here.
    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    pub(crate) fn is_unavailable(&self, now: Instant) -> bool {
        self.unavailable_until.get().is_some_and(|until| now < until)
    }

    /// Takes the server out of the choice for a moment. Logged once, and again while it lasts.
    pub(super) fn note_failed(&self, now: Instant, error: &ConnectError) {
        self.unavailable_until.set(Some(now + UNAVAILABLE));
        if self.failure_logged.get().is_none_or(|last| now - last > LOG_INTERVAL) {
            self.failure_logged.set(Some(now));
            tracing::warn!("upstream server {} cannot be reached: {error}", self.authority);
        }
    }

    /// While one request finds out whether a failed server is back, others avoid it.
    pub(super) fn note_attempt(&self, now: Instant) {
        if self.failure_logged.get().is_some() {
            self.unavailable_until.set(Some(now + UNAVAILABLE));
        }
    }

    pub(super) fn note_recovered(&self) {
        self.unavailable_until.set(None);
        if self.failure_logged.take().is_some() {
            tracing::info!("upstream server {} can be reached again", self.authority);
        }
    }

    /// Counts a request until what this returns is dropped.
    pub(crate) fn begin_request(self: &Rc<Self>, now: Instant) -> ActiveRequest {
        self.active.set(self.active.get() + 1);
        ActiveRequest { server: self.clone(), since: now }
    }

    /// The idle connection that was used last, if the server has not closed it meanwhile.
    pub(crate) fn reuse(&self, now: Instant, method: &Method) -> Option<ReusedConnection> {
        let polls = poll_count();
        loop {
            let idle = self.take_idle(polls, |idle| self.may_serve(idle, now, method))?;
            let fresh = now.saturating_duration_since(idle.since) < self.idle_timeout.get();
            // A forbidden body may have arrived since the last poll, so the kernel is asked.
            match idle.io.idle_event(idle.polls != polls && !idle.announced) {
                None if fresh => {
                    if idle.announced && idle.is_ripe(now) {
                        self.proven_silent.set(true);
                    }
                    return Some(ReusedConnection { io: idle.io, announced: idle.announced });
                }
                Some(IdleEvent::Data) if idle.announced => self.sends_forbidden_bodies.set(true),
                _ => {}
            }
        }
    }

    /// The server sends bodies where there must be none: after such a response its connections are
    /// not reused.
    pub(crate) fn note_forbidden_body(&self) {
        self.sends_forbidden_bodies.set(true);
    }

    /// One of the last that fell idle, preferably before the runtime last polled the kernel: what has
    /// happened to it since is known then, and costs no system call.
    fn take_idle(
        &self,
        polls: u64,
        may_serve: impl Fn(&IdleConnection) -> bool,
    ) -> Option<IdleConnection> {
        let mut idle = self.idle.borrow_mut();
        let newest = idle.len().saturating_sub(SEARCHED)..idle.len();
        let earlier = newest.rev().find(|&at| idle[at].polls != polls && may_serve(&idle[at]));
        let any = || idle.iter().rposition(&may_serve);
        let at = earlier.or_else(any)?;
        Some(idle.remove(at))
    }

    /// Until a server has been seen to send nothing after a response that announced a body it must
    /// not have, such a connection serves only HEAD for a moment: a body that comes after all would
    /// be read as the response to another client's request.
    fn may_serve(&self, idle: &IdleConnection, now: Instant, method: &Method) -> bool {
        !idle.announced || self.proven_silent.get() || method == Method::HEAD || idle.is_ripe(now)
    }

    pub(super) fn close_idle(&self, now: Instant) {
        let idle_timeout = self.idle_timeout.get();
        self.idle.borrow_mut().retain(|idle| now.duration_since(idle.since) < idle_timeout);
    }
}

/// How often this thread's runtime has polled the kernel. Always the same where there is no runtime,
/// so that nothing is taken to be known.
fn poll_count() -> u64 {
    thread_local! {
        static RUNTIME: OnceCell<Option<RuntimeMetrics>> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let found = || Handle::try_current().ok().map(|handle| handle.metrics());
        let metrics = runtime.get_or_init(found).as_ref();
        metrics.map_or(0, |metrics| metrics.worker_park_count(0))
    })
}

/// A request that is counted as under way at its server.
#[derive(Debug)]
#[must_use = "dropping it ends the count"]
pub(crate) struct ActiveRequest {
    server: Rc<Server>,
    since: Instant,
}

impl ActiveRequest {
    /// Returns a connection to the pool. Its idle time is counted from the start of this request: a
    /// little too much rather than too little, and the clock need not be read again. `announced`: the
    /// last response announced a body that it must not have.
    pub(crate) fn return_idle(&self, mut io: Box<BufferedStream>, announced: bool) {
        if announced && self.server.sends_forbidden_bodies.get() {
            return;
        }
        let mut idle = self.server.idle.borrow_mut();
        if idle.len() < self.server.max_idle.get() {
            io.clear_deadline();
            io.shrink();
            let since = if announced { Instant::now() } else { self.since };
            idle.push(IdleConnection { io, announced, since, polls: poll_count() });
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
