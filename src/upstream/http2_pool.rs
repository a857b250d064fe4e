//! The HTTP/2 connections of one worker to one server.
//!
//! Requests share a connection as long as the server allows more streams on it. One more is made when
//! all are full, one at a time, so that a burst of requests does not open one each.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::http2_connection::Http2Connection;
use super::http2_stream::Http2Stream;
use super::shared::{LiveConnection, SharedServer};
use super::slots::UrgentClaim;
use super::worker_connections::ConnectionReservation;

/// Connections at a time. With more requests than these have streams, some wait.
const MAX_CONNECTIONS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Http2Pool {
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    /// A connection is being made.
    connecting: Cell<bool>,
    /// The server has last chosen HTTP/1.1.
    declined: Cell<bool>,
    /// Signalled when there may be a stream.
    freed: Rc<Notify>,
    /// Of the connection that is being made, where those of each worker are counted.
    reservation: RefCell<Option<ConnectionReservation>>,
    /// Connections that take no requests for the sake of those of other workers.
    given_up: RefCell<Vec<GivenUp>>,
}

/// A connection that is closed with its last stream, or taken back if that has not ended in time.
#[derive(Debug)]
struct GivenUp {
    connection: Weak<Http2Connection>,
    until: Instant,
}

impl Http2Pool {
    /// The right to make a connection, unless another request makes one for all, or there are as many
    /// as there may be.
    pub(super) fn begin_connecting(&self) -> Option<Connecting<'_>> {
        // A server that speaks HTTP/1.1 needs a connection for each request.
        if self.declined.get() {
            return Some(Connecting { pool: self, is_shared: false, is_kept: true });
        }
        let room = self.connections.borrow().len() < MAX_CONNECTIONS;
        let begins = room && !self.connecting.replace(true);
        begins.then(|| Connecting { pool: self, is_shared: true, is_kept: true })
    }

    /// The right to make a connection for one request alone.
    pub(super) fn connect_alone(&self) -> Connecting<'_> {
        Connecting { pool: self, is_shared: false, is_kept: false }
    }

    /// Whether the server has last chosen HTTP/1.1.
    pub(super) fn is_declined(&self) -> bool {
        self.declined.get()
    }

    /// Whether a connection may be made that requests share. `reserve`: takes the right to it, where these are
    /// counted; as the only one, or as one more.
    pub(super) fn reserve_connection(
        &self,
        reserve: impl FnOnce(bool) -> Option<ConnectionReservation>,
    ) -> bool {
        if self.declined.get() || self.reservation.borrow().is_some() {
            return true;
        }
        let reservation = reserve(!self.is_shared());
        let is_reserved = reservation.is_some();
        *self.reservation.borrow_mut() = reservation;
        is_reserved
    }

    /// Whether there is a connection that takes several requests at a time.
    pub(super) fn is_shared(&self) -> bool {
        self.connections.borrow().iter().any(|connection| connection.is_shared())
    }

    /// A stream for a request with or without a body. `may_connect`: another connection may be made.
    pub(super) fn open_stream(
        &self,
        has_body: bool,
        may_connect: impl Fn() -> bool,
    ) -> Option<Http2Stream> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| {
            // Without another, requests would have to wait for all that is under way on this one.
            if connection.is_worn() && (connection.is_idle() || may_connect()) {
                connection.retire();
            }
            // It may have been in use when a reload had idle ones closed that were too many.
            if connection.is_idle() && connection.record().claim_recall() {
                connection.retire();
            }
            !connection.is_retired()
        });
        let mut with_room = connections.iter().filter(|connection| connection.has_room());
        if !has_body {
            return with_room.next().map(Http2Connection::open_stream);
        }
        let now = Instant::now();
        let moving = with_room.clone().find(|connection| !connection.uploads.are_stalled(now));
        let is_last_resort = || connections.len() >= MAX_CONNECTIONS || !may_connect();
        let any = || if is_last_resort() { with_room.next() } else { None };
        moving.or_else(any).map(Http2Connection::open_stream)
    }

    /// Resolves when a stream may be free, or a connection may be made. Requests are woken in the
    /// order in which they wait.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Wakes a request that waits for a stream, if there is one for it.
    pub(super) fn wake_if_room(&self) {
        if self.has_room() {
            self.freed.notify_one();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.connections.borrow().iter().any(|connection| connection.has_room())
    }

    /// Closes connections that have been idle for so long, and has those that may not be kept take no
    /// further requests.
    pub(super) fn close_idle(
        &self,
        time: Duration,
        now: Instant,
        keep_or_claim: impl Fn(&Http2Connection) -> bool,
    ) {
        let mut connections = self.connections.borrow_mut();
        // Where only some are too many it is rather those that nobody uses.
        let (idle, busy): (Vec<_>, Vec<_>) = connections.iter().partition(|it| it.is_idle());
        for connection in idle.into_iter().chain(busy) {
            if !keep_or_claim(connection) {
                connection.retire();
            }
        }
        connections.retain(|it| !it.is_retired() && !it.is_idle_for(time, now));
    }

    /// Closes an idle connection, so that another worker may open one. If none is idle and it is
    /// urgent, one takes no further requests, and is closed with its last; unless that has not ended
    /// after `patience`. Then the requests on it may last as long as they like, and for as long as any of
    /// them does, it is not given up again.
    pub(super) fn close_one_for_others(
        &self,
        patience: Duration,
        claim: impl FnOnce() -> Option<UrgentClaim>,
    ) {
        let mut connections = self.connections.borrow_mut();
        if let Some(at) = connections.iter().position(|connection| connection.is_idle()) {
            connections.remove(at);
            return;
        }
        let brief = connections.iter().enumerate();
        let brief = brief.filter(|(_, it)| !it.is_retired() && !it.has_long_streams());
        let Some((at, _)) = brief.min_by_key(|(_, it)| it.streams()) else { return };
        if let Some(claim) = claim() {
            // Those of the streams keep it.
            let busy = connections.remove(at);
            busy.record().note_retired_for(claim);
            let (connection, until) = (Rc::downgrade(&busy), Instant::now() + patience);
            self.given_up.borrow_mut().push(GivenUp { connection, until });
        }
    }

    /// When a connection that was given up is to be taken back.
    pub(super) fn next_to_take_back(&self) -> Option<Instant> {
        self.given_up.borrow().iter().map(|it| it.until).min()
    }

    /// Takes back those that have not become free in time.
    pub(super) fn take_back(&self, now: Instant) {
        let mut given_up = self.given_up.borrow_mut();
        let late: Vec<_> = given_up.extract_if(.., |it| it.until <= now).collect();
        drop(given_up);
        if late.is_empty() {
            return;
        }
        for connection in late.iter().filter_map(|it| it.connection.upgrade()) {
            connection.note_taken_back();
            self.connections.borrow_mut().push(connection);
        }
        self.wake_if_room();
    }
}

/// The right to make a connection.
#[derive(Debug)]
pub(super) struct Connecting<'a> {
    pool: &'a Http2Pool,
    /// Others wait for it, and make none of their own.
    is_shared: bool,
    /// Other requests may follow on it.
    is_kept: bool,
}

impl Connecting<'_> {
    /// What to signal when a stream ends.
    pub(super) fn freed(&self) -> Rc<Notify> {
        self.pool.freed.clone()
    }

    /// The server speaks HTTP/2 on this connection. The first stream is the caller's.
    pub(super) fn connected(
        self,
        mut connection: Http2Connection,
        server: &Arc<SharedServer>,
    ) -> Http2Stream {
        self.pool.declined.set(false);
        connection.is_exclusive = !self.is_kept;
        if self.is_shared {
            connection.reservation = self.pool.reservation.take();
        }
        let connection = Rc::new(connection);
        let stream = connection.open_stream();
        if self.is_kept {
            connection.count_live(LiveConnection::new(server));
            self.pool.connections.borrow_mut().push(connection);
        }
        stream
    }

    /// The server has chosen HTTP/1.1.
    pub(super) fn declined(self) {
        self.pool.declined.set(true);
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        if self.is_shared {
            self.pool.connecting.set(false);
            self.pool.reservation.take();
            self.pool.freed.notify_waiters();
        }
    }
}
