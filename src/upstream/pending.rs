//! Requests of one worker that wait for a connection, because their server has as many as it may.
//!
//! They wait for a slot to open one, which workers get in the order in which they came, for a
//! connection of this worker that falls idle, or over HTTP/2 for a stream of one. A worker hands its
//! own connections on a few times before it closes one for others: so nobody waits in vain, and not
//! every request opens another.

use std::cell::{Cell, OnceCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::ConnectError;
use super::http2_stream::Http2Stream;
use super::link::LinkRequest;
use super::pool::{ActiveRequest, PooledConnection, Server};
use super::slots::{ConnectionSlot, ConnectionSlots, PendingPlace};
use super::worker_connections::ConnectionCount;
use crate::gateway::WaitingMark;

/// How often other workers are asked for connections that they could do without.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);
/// How often in a row a worker's connections go to its own requests while others wait.
const MAX_OWN_REUSES: u32 = 8;

/// The requests of one worker that wait for a connection to one server.
#[derive(Debug, Default)]
pub(super) struct LocalWaiters {
    count: Cell<usize>,
    /// Those of them that can be sent over HTTP/2.
    for_streams: Cell<usize>,
    /// Those of them that have waited for long.
    urgent: Cell<usize>,
    /// A connection has fallen idle.
    returned: Notify,
    /// How often in a row a connection was kept for requests of this worker while others waited.
    own_reuses: Cell<u32>,
    /// Signalled when another worker waits for an idle connection. Unset while there is no limit.
    idle_requested: OnceCell<Arc<Notify>>,
    /// How many connections its requests share. Unset as long.
    connection_count: OnceCell<ConnectionCount>,
}

/// What a request goes on with.
#[derive(Debug)]
pub(super) enum Acquired {
    /// It may open a connection. `None` where there is no limit.
    Slot(Option<ConnectionSlot>),
    Idle(PooledConnection),
    Stream(Http2Stream),
}

/// A request that counts as waiting, from its first wait until it has what it waits for. Its connection
/// knows that it waits: who leaves makes room for another.
#[derive(Debug)]
pub(super) struct PendingRequest<'a> {
    server: &'a Server,
    place: PendingPlace<'a>,
    _mark: WaitingMark<'a>,
    takes_streams: bool,
}

impl LocalWaiters {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    /// How many of them can be sent over HTTP/2. Others, such as upgrades, leave streams to those behind.
    pub(super) fn for_streams(&self) -> usize {
        self.for_streams.get()
    }

    /// How many connections of this worker requests share, where connections are limited.
    pub(super) fn connection_count(&self) -> Option<&ConnectionCount> {
        self.connection_count.get()
    }

    /// For how many of them it is urgent.
    pub(super) fn urgent(&self) -> usize {
        self.urgent.get()
    }

    fn note_entered(&self, takes_streams: bool) {
        self.count.set(self.count.get() + 1);
        self.for_streams.set(self.for_streams.get() + usize::from(takes_streams));
    }

    fn note_left(&self, takes_streams: bool) {
        self.count.set(self.count.get() - 1);
        self.for_streams.set(self.for_streams.get() - usize::from(takes_streams));
    }

    /// Whether a connection is to be closed, because requests of other workers wait for its slot.
    #[inline]
    pub(super) fn yield_to_others(&self, slots: &ConnectionSlots) -> bool {
        let others = slots.pending() > self.count.get();
        // Without a limit those that wait do not wait for slots.
        if !others || !slots.is_limited() {
            return false;
        }
        let reuses = if self.is_empty() { MAX_OWN_REUSES } else { self.own_reuses.get() };
        let yields = reuses >= MAX_OWN_REUSES;
        self.own_reuses.set(if yields { 0 } else { reuses + 1 });
        yields
    }

    /// A connection has fallen idle.
    #[inline]
    pub(super) fn wake_one(&self) {
        if !self.is_empty() {
            self.returned.notify_one();
        }
    }

    /// Starts closing idle connections whenever requests of other workers wait for their slots, and taking
    /// back those that were given up for them in vain.
    pub(super) fn watch_requests(&self, server: &Rc<Server>) {
        self.idle_requested.get_or_init(|| {
            let requested = Arc::new(Notify::new());
            let count = server.shared.slots.add_worker(&requested);
            let _ = self.connection_count.set(count);
            let (signal, server) = (requested.clone(), Rc::downgrade(server));
            tokio::task::spawn_local(async move {
                let mut take_back_at = None;
                loop {
                    match take_back_at {
                        None => signal.notified().await,
                        Some(instant) => {
                            let _ = timeout_at(instant, signal.notified()).await;
                        }
                    }
                    let Some(server) = server.upgrade() else { return };
                    server.http2.take_back(Instant::now());
                    server.close_idle_for_others();
                    take_back_at = server.http2.next_to_take_back();
                }
            });
            requested
        });
    }
}

impl Drop for LocalWaiters {
    fn drop(&mut self) {
        // Ends the task that closes idle connections.
        if let Some(requested) = self.idle_requested.get() {
            requested.notify_one();
        }
    }
}

impl<'a> PendingRequest<'a> {
    /// # Errors
    /// If as many wait as may.
    pub(super) fn enter(server: &'a Server, request: Waiting<'a>) -> Result<Self, ConnectError> {
        let place = server.shared.slots.enter_queue(request.max_pending);
        let place = place.ok_or(ConnectError::Saturated)?;
        let (takes_streams, mark) = (request.takes_streams, request.link.signals.wait());
        server.waiting.note_entered(takes_streams);
        Ok(PendingRequest { server, place, _mark: mark, takes_streams })
    }
}

impl PendingRequest<'_> {
    /// It has waited for long: another worker is to give up a connection for it.
    fn mark_urgent(&self) {
        if self.place.mark_urgent() {
            self.server.waiting.urgent.update(|urgent| urgent + 1);
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if self.place.is_urgent() {
            self.server.waiting.urgent.update(|urgent| urgent - 1);
        }
        self.server.waiting.note_left(self.takes_streams);
        // It may have been woken for one of several streams that are free.
        self.server.http2.wake_if_room();
    }
}

/// Gets a request what it can go on with, behind all requests of this worker that wait already.
/// `pending` is its place, if it has waited before.
///
/// # Errors
/// If as many wait as may, or nothing comes until `deadline`.
pub(super) async fn acquire<'a>(
    active: &mut ActiveRequest,
    server: &'a Server,
    pending: Option<PendingRequest<'a>>,
    request: Waiting<'a>,
) -> Result<Acquired, ConnectError> {
    let slots = &server.shared.slots;
    let mut is_reserved = !request.takes_streams || server.reserve_connection();
    if is_reserved && let Some(slot) = slots.try_take().into_slot() {
        return Ok(Acquired::Slot(slot));
    }
    let pending = match pending {
        Some(pending) => pending,
        None => PendingRequest::enter(server, request)?,
    };
    match is_reserved {
        true => slots.request_idle(),
        false => slots.request_spare(),
    }
    // FIFO: who waits behind others is woken after them.
    if server.waiting.len() == 1 {
        active.server().wake_when_ripe(Instant::now(), request.link.method);
    }
    let acquired = async {
        // Each is one future throughout: it has the request's place in its line.
        let mut slot = pin!(slots.take());
        let mut returned = pin!(server.waiting.returned.notified());
        let mut stream_freed = pin!(server.http2.freed());
        // Goes on while the request is woken in vain, however often that is.
        let mut interval = pin!(sleep(REQUEST_INTERVAL));
        loop {
            tokio::select! {
                biased;
                () = &mut stream_freed, if request.takes_streams => {
                    if let Some(stream) = server.open_stream(request.link.has_body) {
                        return Some(Acquired::Stream(stream));
                    }
                    stream_freed.set(server.http2.freed());
                }
                slot = &mut slot, if is_reserved => {
                    return slot.map(|slot| Acquired::Slot(Some(slot)));
                }
                // What was in use when others were first asked may be idle now.
                () = &mut interval => {
                    // A reload has lifted the limit.
                    if !slots.is_limited() {
                        return Some(Acquired::Slot(None));
                    }
                    is_reserved = is_reserved || server.reserve_connection();
                    match is_reserved {
                        true => {
                            pending.mark_urgent();
                            slots.request_idle();
                        }
                        // What others could give up would not be for this worker.
                        false => slots.request_spare(),
                    }
                    interval.set(sleep(REQUEST_INTERVAL));
                }
                () = &mut returned => {
                    let idle = active.reuse_waited(Instant::now(), request.link.method);
                    if let Some(connection) = idle {
                        return Some(Acquired::Idle(connection));
                    }
                    returned.set(server.waiting.returned.notified());
                }
            }
        }
    };
    match timeout_at(request.deadline, acquired).await {
        Ok(Some(acquired)) => Ok(acquired),
        _ => Err(ConnectError::Saturated),
    }
}

/// A slot for a request that shares its connection with nobody. Such requests wait in the order in which
/// they came, and go before no other: while they wait others go on sharing the connections there are,
/// and only idle ones are closed for it, here as well as by other workers. Of two connections or more
/// half are always left to others; the only one is had by turns, when it is idle. Where connections are
/// not limited they wait for those of their kind alone, which are.
///
/// # Errors
/// If as many wait as may, or no slot is free until `deadline`.
pub(super) async fn acquire_alone(
    server: &Server,
    request: Waiting<'_>,
) -> Result<ConnectionSlot, ConnectError> {
    let slots = &server.shared.slots;
    if let Some(slot) = slots.try_take_alone() {
        return Ok(slot);
    }
    // Not one of the worker's own that wait, behind whom others would have to wait for a stream.
    let _place = slots.enter_queue(request.max_pending).ok_or(ConnectError::Saturated)?;
    let _mark = request.link.signals.wait();
    let slot = async {
        let alone_permit = slots.take_alone().await?;
        // Only then in the line for slots, in which others stand as well.
        let mut slot = pin!(slots.take());
        loop {
            // Or a reload has lifted the limit.
            if !slots.is_limited() {
                return Some(ConnectionSlot::unlimited(alone_permit));
            }
            let request_idle = async {
                slots.request_idle();
                sleep(REQUEST_INTERVAL).await;
            };
            tokio::select! {
                biased;
                slot = &mut slot => return slot.map(|slot| slot.alone(alone_permit)),
                // What was in use when others were last asked may be idle now.
                () = request_idle => {}
            }
        }
    };
    match timeout_at(request.deadline, slot).await {
        Ok(Some(slot)) => Ok(slot),
        _ => Err(ConnectError::Saturated),
    }
}

/// What a request waits with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) link: LinkRequest<'a>,
    pub(super) max_pending: usize,
    pub(super) deadline: Instant,
    /// It can be sent over HTTP/2.
    pub(super) takes_streams: bool,
}

#[cfg(test)]
mod tests;
