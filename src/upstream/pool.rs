//! One server's idle connections and its state, as one worker sees them.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::{Instant, sleep_until};

use super::connect::{Dialer, ServerProtocol};
use super::hashing::mix;
use super::http2_pool::Http2Pool;
use super::pending::LocalWaiters;
use super::record::ConnectionRecord;
use super::resolve::ServerAddress;
use super::shared::SharedServer;
use super::slots::{ConnectionSlot, UrgentClaim};
use crate::config::settings::{self, Origin};
use crate::http1::{BufferedStream, IdleEvent};
use crate::stream::Stream;

/// How many idle connections are searched for one whose state the runtime knows.
const SEARCHED: usize = 8;

#[derive(Debug)]
pub(crate) struct Server {
    pub address: ServerAddress,
    /// The host to ask for when the client names none.
    pub authority: String,
    pub(super) protocol: ServerProtocol,
    pub(super) http2: Http2Pool,
    idle: RefCell<Vec<IdleConnection>>,
    max_idle: Cell<usize>,
    /// How long a connection may be given up for requests of other workers, if it does not become free: no
    /// longer than its own requests may wait.
    patience: Cell<Duration>,
    idle_timeout: Cell<Duration>,
    /// How old a connection may become; `None`: as old as it likes.
    pub(super) max_age: Cell<Option<Duration>>,
    active: Cell<usize>,
    /// How many connections were ever opened.
    opened: Cell<u64>,
    /// Requests of this worker that wait for a connection.
    pub(super) waiting: LocalWaiters,
    /// What all workers know of it.
    pub(super) shared: Arc<SharedServer>,
    /// It has sent a body after a response that cannot have one: to HEAD, or a 304.
    sends_forbidden_bodies: Cell<bool>,
    /// After such a response a connection was watched, and no body came.
    proven_silent: Cell<bool>,
}

#[derive(Debug)]
struct IdleConnection {
    io: Box<BufferedStream>,
    record: Box<ConnectionRecord>,
    /// The last response on it announced a body that it must not have: to HEAD, or a 304.
    announced: bool,
    since: Instant,
    /// How often the runtime had polled the kernel when it fell idle.
    polls: u64,
}

/// Which connections are closed for being too many since a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recall {
    /// Only idle ones: other workers may have more of these, and have not closed them yet.
    Idle,
    /// Also those that are in use, with their last request.
    Any,
}

/// A server that wrongly sends a body with the response to HEAD does so within this time.
const WATCH_TIME: Duration = Duration::from_millis(25);

impl IdleConnection {
    /// Whether it has been silent for long enough.
    fn is_ripe(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WATCH_TIME
    }
}

/// A connection to send a request on.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pub io: Box<BufferedStream>,
    /// It was idle.
    pub reused: bool,
    /// The last response on it announced a body that it must not have: if that comes after all, it
    /// is what is read next.
    pub announced: bool,
}

impl Server {
    pub(super) fn new(
        origin: &Origin,
        protocol: ServerProtocol,
        shared: Arc<SharedServer>,
    ) -> Self {
        Server {
            address: shared.address.clone(),
            authority: origin.default_host(),
            protocol,
            http2: Http2Pool::default(),
            idle: RefCell::default(),
            max_idle: Cell::new(0),
            patience: Cell::default(),
            idle_timeout: Cell::default(),
            max_age: Cell::new(None),
            active: Cell::new(0),
            opened: Cell::new(0),
            waiting: LocalWaiters::default(),
            shared,
            sends_forbidden_bodies: Cell::new(false),
            proven_silent: Cell::new(false),
        }
    }

    /// What a configuration says of its connections.
    pub(super) fn configure(self: &Rc<Self>, upstream: &settings::Upstream) {
        self.max_idle.set(upstream.keepalive);
        self.idle_timeout.set(upstream.keepalive_timeout);
        self.max_age.set(upstream.max_age);
        self.patience.set(upstream.connect_timeout / 2);
        if self.shared.slots.is_limited() {
            self.waiting.watch_requests(self);
        }
    }

    /// Whether requests to it share connections, so that none is idle while it is in use. One that
    /// may end as a tunnel does not.
    #[inline]
    pub(crate) fn shares_connections(&self, upgrade: bool) -> bool {
        self.protocol.http2 && !upgrade && !self.http2.is_declined()
    }

    /// Opens connections to it. `only_http1`: HTTP/2 is not offered.
    pub(super) fn dialer(&self, only_http1: bool) -> Dialer<'_> {
        Dialer { address: &self.address, protocol: &self.protocol, only_http1 }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.protocol.is_tls()
    }

    /// Requests under way here.
    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    /// Whether it has as many connections as it may, and none to spare here.
    pub(super) fn is_full(&self) -> bool {
        let slots = &self.shared.slots;
        let may_connect =
            || !slots.is_full() && (!self.http2.is_shared() || slots.leave_room_for_others());
        slots.is_limited()
            && self.idle.borrow().is_empty()
            && !self.http2.has_room()
            && !may_connect()
    }

    /// Whether its requests may open a connection that they share, as far as those of other workers need
    /// connections as well.
    pub(super) fn reserve_connection(&self) -> bool {
        let Some(count) = self.waiting.connection_count() else { return true };
        self.http2.reserve_connection(|is_first| self.shared.slots.try_reserve(count, is_first))
    }

    /// What is known of a connection that was just opened.
    pub(super) fn record(
        &self,
        stream: &Stream,
        slot: Option<ConnectionSlot>,
    ) -> Box<ConnectionRecord> {
        // An address that is no name stays what it is.
        let address = if self.address.is_name() { stream.peer_address() } else { None };
        let number = self.opened.replace(self.opened.get().wrapping_add(1));
        Box::new(ConnectionRecord::new(address, self.max_age.get(), slot, mix(number)))
    }

    /// Whether it has connections.
    pub(super) fn is_in_use(&self) -> bool {
        self.active.get() > 0 || !self.idle.borrow().is_empty() || !self.http2.is_empty()
    }

    /// Closes idle connections, so that other workers may open as many as they wait for. A request of
    /// this worker that waits can have one itself, but not a stream if it is an upgrade: for that a shared
    /// connection is closed as well, if it is idle.
    pub(super) fn close_idle_for_others(&self) {
        let pending = self.shared.slots.pending();
        let wanted = pending.saturating_sub(self.waiting.len());
        let mut idle = self.idle.borrow_mut();
        let oldest = 0..wanted.min(idle.len());
        let closed: Vec<IdleConnection> = idle.drain(oldest).collect();
        drop(idle);
        if closed.is_empty() && pending > self.waiting.for_streams() {
            self.http2.close_one_for_others(self.patience.get(), || self.claim_for_others());
        }
        drop(closed);
    }

    /// The right to retire a connection that is in use, if requests of other workers have waited for long.
    pub(super) fn claim_for_others(&self) -> Option<UrgentClaim> {
        let slots = &self.shared.slots;
        let are_others = self.waiting.urgent() < slots.urgent_pending();
        if are_others { slots.claim_urgent() } else { None }
    }

    /// Decides whether a connection may serve another request, at an instant when it is not used. If not, it
    /// has to go: it may have claimed to be one of those that are too many, and no other goes in its place.
    pub(super) fn keep_or_claim(&self, record: &ConnectionRecord, now: Instant) -> bool {
        self.is_usable(record, now) && !record.claim_excess(|| self.shared.slots.is_limited())
    }

    fn is_usable(&self, record: &ConnectionRecord, now: Instant) -> bool {
        !record.is_expired(now) && record.address.is_none_or(|address| self.address.has(address))
    }

    /// Counts a request until what this returns is dropped.
    pub(crate) fn begin_request(self: &Rc<Self>, now: Instant) -> ActiveRequest {
        self.active.set(self.active.get() + 1);
        ActiveRequest { server: self.clone(), since: now, record: None }
    }

    /// The idle connection that was used last, if the server has not closed it meanwhile.
    fn reuse(&self, now: Instant, method: &Method) -> Option<IdleConnection> {
        let polls = poll_count();
        loop {
            let mut idle = self.take_idle(polls, |idle| self.may_serve(idle, now, method))?;
            let fresh = now.saturating_duration_since(idle.since) < self.idle_timeout.get()
                && !idle.record.is_expired(now);
            // A forbidden body may have arrived since the last poll, so the kernel is asked.
            match idle.io.idle_event(idle.polls != polls && !idle.announced) {
                None if fresh => {
                    if idle.announced && idle.is_ripe(now) {
                        self.proven_silent.set(true);
                    }
                    return Some(idle);
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

    /// Wakes requests that wait, in the order in which they came, for connections that are idle and may not
    /// serve them yet. What falls idle while they wait is not watched.
    pub(super) fn wake_when_ripe(self: &Rc<Self>, now: Instant, method: &Method) {
        let idle = self.idle.borrow();
        let unripe = idle.iter().filter(|idle| !self.may_serve(idle, now, method));
        let ripe_at: Vec<Instant> = unripe.map(|idle| idle.since + WATCH_TIME).collect();
        if ripe_at.is_empty() {
            return;
        }
        let server = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            for instant in ripe_at {
                sleep_until(instant).await;
                let Some(server) = server.upgrade() else { return };
                server.waiting.wake_one();
            }
        });
    }

    /// Closes connections that have been idle for too long, have become too old, or lead to an
    /// address that is no longer the server's, or are too many.
    pub(super) fn close_idle(&self, now: Instant, recall: Recall) {
        let idle_timeout = self.idle_timeout.get();
        self.idle.borrow_mut().retain(|idle| {
            now.saturating_duration_since(idle.since) < idle_timeout
                && self.keep_or_claim(&idle.record, now)
        });
        let kept = if self.max_idle.get() == 0 { Duration::ZERO } else { idle_timeout };
        self.http2.close_idle(kept, now, |connection| {
            let record = connection.record();
            if recall == Recall::Any || connection.is_idle() {
                return self.keep_or_claim(record, now);
            }
            let is_counted = record.has_slot() || !self.shared.slots.is_limited();
            is_counted && self.is_usable(record, now)
        });
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
    /// Of the connection that it is sent on.
    record: Option<Box<ConnectionRecord>>,
}

impl ActiveRequest {
    pub(crate) fn server(&self) -> &Rc<Server> {
        &self.server
    }

    pub(super) fn set_record(&mut self, record: Box<ConnectionRecord>) {
        self.record = Some(record);
    }

    /// An idle connection, if there is one. Where requests wait for one, that is theirs.
    #[inline]
    pub(crate) fn reuse(&mut self, now: Instant, method: &Method) -> Option<PooledConnection> {
        if self.server.waiting.is_empty() { self.reuse_waited(now, method) } else { None }
    }

    /// The same for a request that has waited.
    pub(super) fn reuse_waited(
        &mut self,
        now: Instant,
        method: &Method,
    ) -> Option<PooledConnection> {
        let IdleConnection { io, record, announced, .. } = self.server.reuse(now, method)?;
        self.record = Some(record);
        Some(PooledConnection { io, reused: true, announced })
    }

    /// Returns a connection to the pool. Its idle time is counted from the start of this request: a
    /// little too much rather than too little, and the clock need not be read again. `announced`: the
    /// last response announced a body that it must not have.
    pub(crate) fn return_idle(&mut self, mut io: Box<BufferedStream>, announced: bool) {
        let server = &self.server;
        let Some(record) = self.record.take() else { return };
        // A request that waits would have to watch such a connection first, so it is closed instead.
        let forbidden = server.sends_forbidden_bodies.get() || !server.waiting.is_empty();
        let wanted = !(announced && forbidden)
            && server.keep_or_claim(&record, self.since)
            && !server.waiting.yield_to_others(&server.shared.slots);
        if !wanted {
            return;
        }
        let mut idle = server.idle.borrow_mut();
        if idle.len() < server.max_idle.get() || !server.waiting.is_empty() {
            io.clear_deadline();
            io.shrink();
            let since = if announced { Instant::now() } else { self.since };
            idle.push(IdleConnection { io, record, announced, since, polls: poll_count() });
            server.waiting.wake_one();
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.server.active.set(self.server.active.get() - 1);
    }
}
