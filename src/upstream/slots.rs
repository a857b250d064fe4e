//! How many connections a server may have, and the requests that wait for one.
//!
//! All workers share the slots of a server, so its limit is the gateway's and not a worker's. A
//! connection holds its slot from the attempt to open it until it is closed, idle or not. Connections
//! that carry one request only are bounded also where there is no such limit.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::Notify;

use super::resizable_semaphore::{Permit, ResizableSemaphore};
use super::worker_connections::{ConnectionCount, ConnectionReservation, WorkerConnections};

/// Connections that carry one request only, of all workers together, where there is no limit: as many
/// as a worker has at most for requests that share theirs.
const MAX_ALONE: usize = 64;

/// The slots of one server.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    /// Handed out in the order in which requests began to wait. Without a limit there are none.
    all: Arc<ResizableSemaphore>,
    /// Of these, the ones for connections that carry one request only, in a line of their own. Without
    /// a limit for all there is one for these.
    alone: Arc<ResizableSemaphore>,
    pending: AtomicUsize,
    /// Shows how many wait, where any may have to.
    gauge: Mutex<Option<IntGauge>>,
    /// A request has waited for long, so that one worker is to retire a connection that it uses.
    urgent: AtomicBool,
    /// For how many of those that wait it is urgent.
    urgent_pending: AtomicUsize,
    /// A connection was retired for who waits, and still holds its slot.
    is_yielding: Arc<AtomicBool>,
    /// Workers that may have idle connections. Signalled when requests wait for these.
    workers: WorkerConnections,
}

/// A connection's right to exist.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    // Given back first, so that whoever gets the other permit finds a slot.
    /// `None`: it was taken while there was no limit.
    permit: Option<Permit>,
    alone: Option<AlonePermit>,
    /// For which its connection was retired. Dropped last, so that none is claimed before it is free.
    claim: OnceCell<UrgentClaim>,
}

/// The right to retire a connection that is in use, because requests of other workers have waited for long.
/// There is one at a time, until that connection has given its slot back or is taken back itself: each further
/// one that is retired meanwhile would be one less for everybody.
#[derive(Debug)]
pub(super) struct UrgentClaim {
    is_yielding: Arc<AtomicBool>,
    is_held: Cell<bool>,
}

/// The right to a connection that carries one request only. At most half of a server's may do so, the
/// rest being for requests that share theirs; where there may be only one, both have it by turns. Without
/// a limit at most [`MAX_ALONE`] do so.
#[derive(Debug)]
pub(super) struct AlonePermit {
    _permit: Permit,
}

/// A request's place among those that wait.
#[derive(Debug)]
pub(super) struct PendingPlace<'a> {
    slots: &'a ConnectionSlots,
    is_urgent: Cell<bool>,
}

/// What there is without waiting.
#[derive(Debug)]
pub(super) enum FreeSlot {
    /// There is no limit.
    Unlimited,
    Slot(ConnectionSlot),
    None,
}

impl FreeSlot {
    /// What a connection may be opened with: `Some(None)` where there is no limit.
    pub(super) fn into_slot(self) -> Option<Option<ConnectionSlot>> {
        match self {
            FreeSlot::Unlimited => Some(None),
            FreeSlot::Slot(slot) => Some(Some(slot)),
            FreeSlot::None => None,
        }
    }
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Self {
        ConnectionSlots {
            all: ResizableSemaphore::new(max),
            alone: ResizableSemaphore::new(max_alone(max)),
            pending: AtomicUsize::new(0),
            gauge: Mutex::default(),
            urgent: AtomicBool::new(false),
            urgent_pending: AtomicUsize::new(0),
            is_yielding: Arc::default(),
            workers: WorkerConnections::default(),
        }
    }

    /// Gives the server another limit. Connections that are too many go when they are done.
    pub(super) fn resize(&self, max: usize) {
        self.all.resize(max);
        self.alone.resize(max_alone(max));
    }

    pub(super) fn is_limited(&self) -> bool {
        self.all.max() != 0
    }

    /// Whether a new connection would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.is_limited() && self.all.is_exhausted()
    }

    /// Requests that wait.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Those of them for which it is urgent.
    pub(super) fn urgent_pending(&self) -> usize {
        self.urgent_pending.load(Ordering::Relaxed)
    }

    /// A slot that is free now. None is while requests wait: the semaphore hands slots to these first.
    pub(super) fn try_take(&self) -> FreeSlot {
        if !self.is_limited() {
            return FreeSlot::Unlimited;
        }
        self.all.try_take().map_or(FreeSlot::None, |permit| FreeSlot::Slot(slot(permit)))
    }

    /// A slot that is free now, for one request only.
    pub(super) fn try_take_alone(&self) -> Option<ConnectionSlot> {
        // This permit first: a slot that is taken only to be given back is missed by others meanwhile.
        let alone_permit = self.alone.try_take().map(AlonePermit::new)?;
        Some(match self.try_take().into_slot()? {
            Some(slot) => slot.alone(alone_permit),
            None => ConnectionSlot::unlimited(alone_permit),
        })
    }

    /// The next slot that becomes free.
    pub(super) async fn take(&self) -> Option<ConnectionSlot> {
        self.all.take().await.map(slot)
    }

    /// The next right to a connection that carries one request only.
    pub(super) async fn take_alone(&self) -> Option<AlonePermit> {
        self.alone.take().await.map(AlonePermit::new)
    }

    /// A place among those that wait, if fewer than `most` do.
    pub(super) fn enter_queue(&self, most: usize) -> Option<PendingPlace<'_>> {
        let next = |pending: usize| (pending < most).then_some(pending + 1);
        self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.update_gauge();
        Some(PendingPlace { slots: self, is_urgent: Cell::new(false) })
    }

    /// Has metrics tell how many wait.
    pub(super) fn show_pending(&self, gauge: impl FnOnce() -> IntGauge) {
        self.gauge.lock().get_or_insert_with(gauge);
        self.update_gauge();
    }

    /// The series in metrics is gone.
    pub(super) fn hide_pending(&self) {
        *self.gauge.lock() = None;
    }

    fn update_gauge(&self) {
        if let Some(gauge) = &*self.gauge.lock() {
            gauge.set(self.pending().try_into().unwrap_or(i64::MAX));
        }
    }

    /// Has a worker signalled when requests wait for its idle connections.
    pub(super) fn add_worker(&self, signal: &Arc<Notify>) -> ConnectionCount {
        self.workers.add(signal)
    }

    /// Whether one more connection of a worker that has one leaves a slot for each worker that has none.
    pub(super) fn leave_room_for_others(&self) -> bool {
        !self.is_limited() || self.workers.leave_room(self.all.max())
    }

    /// The right to a connection that requests of a worker share, if it is the only one with room for them,
    /// or leaves a slot for each worker that has none.
    pub(super) fn try_reserve(
        &self,
        count: &ConnectionCount,
        is_first: bool,
    ) -> Option<ConnectionReservation> {
        self.workers.try_reserve(count, is_first || !self.is_limited(), self.all.max())
    }

    /// Asks every worker for idle connections; and one of them, if it is urgent, for one that is not.
    pub(super) fn request_idle(&self) {
        self.workers.signal(0);
    }

    /// Asks workers that have more than one shared connection for idle ones.
    pub(super) fn request_spare(&self) {
        self.workers.signal(2);
    }

    /// If it is urgent, and no other worker has retired a connection for it. What was urgent while one that
    /// was retired still holds its slot is so until that is free.
    pub(super) fn claim_urgent(&self) -> Option<UrgentClaim> {
        if !self.urgent.load(Ordering::Relaxed) || self.is_yielding.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (is_yielding, is_held) = (self.is_yielding.clone(), Cell::new(true));
        let claim = UrgentClaim { is_yielding, is_held };
        self.urgent.swap(false, Ordering::Relaxed).then_some(claim)
    }
}

/// How many of so many connections may carry one request only.
fn max_alone(max: usize) -> usize {
    match max {
        0 => MAX_ALONE,
        1 => 1,
        _ => max / 2,
    }
}

fn slot(permit: Permit) -> ConnectionSlot {
    ConnectionSlot { permit: Some(permit), alone: None, claim: OnceCell::new() }
}

impl AlonePermit {
    fn new(permit: Permit) -> Self {
        AlonePermit { _permit: permit }
    }
}

impl ConnectionSlot {
    /// For one request only, where there is no limit for others.
    pub(super) fn unlimited(alone_permit: AlonePermit) -> Self {
        ConnectionSlot { permit: None, alone: Some(alone_permit), claim: OnceCell::new() }
    }

    /// The same for one request only.
    pub(super) fn alone(mut self, alone_permit: AlonePermit) -> Self {
        self.alone = Some(alone_permit);
        self
    }

    /// The same for one request after another. `None` where there is no limit for these.
    pub(super) fn reusable(self) -> Option<Self> {
        self.permit.map(slot)
    }

    /// Claims to be one of those that are too many since a reload. If it is, its connection is to be closed
    /// as soon as it is not in use.
    #[inline]
    pub(super) fn claim_recall(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::claim_recall)
    }
}

impl ConnectionSlot {
    /// Its connection, which was retired for others, is taken back.
    pub(super) fn release_claim(&self) {
        if let Some(claim) = self.claim.get() {
            claim.release();
        }
    }
}

impl UrgentClaim {
    /// The connection with that slot was retired for it. One that has none to free is no hindrance to another.
    pub(super) fn hold_until_free(self, slot: Option<&ConnectionSlot>) {
        if let Some(slot) = slot.filter(|it| it.permit.is_some()) {
            // It may have been retired before, and taken back.
            let (is_yielding, is_held) = (self.is_yielding.clone(), Cell::new(false));
            let held = slot.claim.get_or_init(|| UrgentClaim { is_yielding, is_held });
            held.is_held.set(self.is_held.replace(false));
        }
    }

    /// The connection is taken back, so that another one may be retired.
    fn release(&self) {
        if self.is_held.replace(false) {
            self.is_yielding.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for UrgentClaim {
    fn drop(&mut self) {
        self.release();
    }
}

impl PendingPlace<'_> {
    /// Says that one worker is to give up a connection that its requests share, and that may never be
    /// idle. That holds until one has done so, or nobody waits any more for whom it is urgent.
    /// Returns whether it says so for the first time.
    pub(super) fn mark_urgent(&self) -> bool {
        let is_first = !self.is_urgent.replace(true);
        if is_first {
            self.slots.urgent_pending.fetch_add(1, Ordering::Relaxed);
        }
        self.slots.urgent.store(true, Ordering::Relaxed);
        is_first
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent.get()
    }
}

impl Drop for PendingPlace<'_> {
    fn drop(&mut self) {
        let slots = self.slots;
        slots.pending.fetch_sub(1, Ordering::Relaxed);
        if self.is_urgent.get() && slots.urgent_pending.fetch_sub(1, Ordering::Relaxed) == 1 {
            slots.urgent.store(false, Ordering::Relaxed);
        }
        slots.update_gauge();
    }
}

#[cfg(test)]
mod tests;
