//! How many connections a server may have, and the requests that wait for one.
//!
//! All workers share the slots of a server, so its limit is the gateway's and not a worker's. A
//! connection holds its slot from the attempt to open it until it is closed, idle or not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The slots of one server.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    /// Handed out in the order in which requests began to wait.
    free: Arc<Semaphore>,
    /// Zero: as many as there are.
    max: AtomicUsize,
    /// Slots that are to go when they are given back, because a reload has taken them away.
    excess: AtomicUsize,
    /// Connections that carry one request only, or are wanted for one.
    alone: AtomicUsize,
    pending: AtomicUsize,
    /// Shows how many wait, where there is a limit.
    gauge: Mutex<Option<IntGauge>>,
    /// A request has waited for long, so that one worker is to retire a connection that it uses.
    urgent: AtomicBool,
    /// Workers that may have idle connections. Signalled when requests wait for these.
    workers: Mutex<Vec<Weak<Notify>>>,
}

/// A connection's right to exist.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    permit: Option<OwnedSemaphorePermit>,
    _alone: Option<AlonePlace>,
}

/// The right to a connection that carries one request only. At most half of a server's may do so: the
/// rest is for requests that share theirs.
#[derive(Debug)]
pub(super) struct AlonePlace(Arc<ConnectionSlots>);

/// A request's place among those that wait.
#[derive(Debug)]
pub(super) struct PendingPlace<'a>(&'a ConnectionSlots);

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
            free: Arc::new(Semaphore::new(max)),
            max: AtomicUsize::new(max),
            excess: AtomicUsize::new(0),
            alone: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            gauge: Mutex::default(),
            urgent: AtomicBool::new(false),
            workers: Mutex::default(),
        }
    }

    /// Gives the server another limit. Connections that are too many go when they are done.
    pub(super) fn resize(&self, max: usize) {
        let before = self.max.swap(max, Ordering::Relaxed);
        if let Some(more) = max.checked_sub(before) {
            let mut added = more;
            let _ = self.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |excess| {
                added = more.saturating_sub(excess);
                Some(excess.saturating_sub(more))
            });
            self.free.add_permits(added);
        } else {
            let fewer = before - max;
            let gone = self.free.forget_permits(fewer);
            self.excess.fetch_add(fewer - gone, Ordering::Relaxed);
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.max.load(Ordering::Relaxed) != 0
    }

    /// Whether a new connection would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.is_limited() && self.free.available_permits() == 0
    }

    /// Requests that wait.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// A slot that is free now. None is while requests wait: the semaphore hands slots to these first.
    pub(super) fn try_take(self: &Arc<Self>) -> FreeSlot {
        if !self.is_limited() {
            return FreeSlot::Unlimited;
        }
        match self.free.clone().try_acquire_owned() {
            Ok(permit) => FreeSlot::Slot(self.slot(permit)),
            Err(_) => FreeSlot::None,
        }
    }

    /// The right to a connection that carries one request only.
    pub(super) fn try_alone(self: &Arc<Self>) -> Option<AlonePlace> {
        let most = (self.max.load(Ordering::Relaxed) / 2).max(1);
        let next = |alone: usize| (alone < most).then_some(alone + 1);
        self.alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(AlonePlace(self.clone()))
    }

    /// A slot that is free now, for one request only.
    pub(super) fn try_take_alone(self: &Arc<Self>) -> FreeSlot {
        if !self.is_limited() {
            return FreeSlot::Unlimited;
        }
        match (self.try_alone(), self.try_take()) {
            (Some(place), FreeSlot::Slot(slot)) => FreeSlot::Slot(slot.alone(place)),
            _ => FreeSlot::None,
        }
    }

    /// The next slot that becomes free.
    pub(super) async fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        self.free.clone().acquire_owned().await.ok().map(|permit| self.slot(permit))
    }

    /// A place among those that wait, if fewer than `most` do.
    pub(super) fn enter_queue(&self, most: usize) -> Option<PendingPlace<'_>> {
        let next = |pending: usize| (pending < most).then_some(pending + 1);
        self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.update_gauge();
        Some(PendingPlace(self))
    }

    /// Has metrics tell how many wait, if there is a limit.
    pub(super) fn show_pending(&self, gauge: impl FnOnce() -> IntGauge) {
        if self.is_limited() {
            self.gauge.lock().get_or_insert_with(gauge);
            self.update_gauge();
        }
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
    pub(super) fn add_worker(&self, signal: &Arc<Notify>) {
        let mut workers = self.workers.lock();
        workers.retain(|it| it.strong_count() > 0);
        workers.push(Arc::downgrade(signal));
    }

    /// Says whether one worker is to give up a connection that its requests share, and that may never be
    /// idle.
    pub(super) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    /// Asks every worker for idle connections; and one of them, if it is urgent, for one that is not.
    pub(super) fn request_idle(&self) {
        let workers = self.workers.lock();
        workers.iter().filter_map(Weak::upgrade).for_each(|worker| worker.notify_one());
    }

    /// Whether it is urgent, and no other worker has retired a connection for it.
    pub(super) fn claim_urgent(&self) -> bool {
        self.urgent.swap(false, Ordering::Relaxed)
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> ConnectionSlot {
        ConnectionSlot { slots: self.clone(), permit: Some(permit), _alone: None }
    }
}

impl ConnectionSlot {
    /// The same for one request only.
    pub(super) fn alone(mut self, place: AlonePlace) -> Self {
        self._alone = Some(place);
        self
    }
}

impl Drop for AlonePlace {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let pay = |excess: usize| excess.checked_sub(1);
        let too_many =
            self.slots.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok();
        if let Some(permit) = self.permit.take().filter(|_| too_many) {
            permit.forget();
        }
    }
}

impl Drop for PendingPlace<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
        self.0.update_gauge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Arc<ConnectionSlots>) -> Option<ConnectionSlot> {
        match slots.try_take() {
            FreeSlot::Slot(slot) => Some(slot),
            _ => None,
        }
    }

    #[test]
    fn there_are_as_many_slots_as_configured() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let (first, second) = (take(&slots), take(&slots));
        assert!(first.is_some() && second.is_some() && take(&slots).is_none() && slots.is_full());
        drop(first);
        assert!(take(&slots).is_some());
        let unlimited = Arc::new(ConnectionSlots::new(0));
        assert!(matches!(unlimited.try_take(), FreeSlot::Unlimited) && !unlimited.is_full());
    }

    #[test]
    fn a_reload_changes_their_number_also_while_they_are_taken() {
        let slots = Arc::new(ConnectionSlots::new(3));
        let mut held: Vec<_> = (0..3).map(|_| take(&slots).unwrap()).collect();
        slots.resize(1);
        held.truncate(1);
        assert!(take(&slots).is_none(), "two were given back, and two are gone");
        held.clear();
        let one = take(&slots);
        assert!(one.is_some() && take(&slots).is_none());
        slots.resize(2);
        assert!(take(&slots).is_some());
        slots.resize(0);
        drop(one);
        slots.resize(5);
        let all: Vec<_> = std::iter::from_fn(|| take(&slots)).collect();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn a_reload_gives_back_first_what_another_took_away() {
        let slots = Arc::new(ConnectionSlots::new(2));
        let held = (take(&slots), take(&slots));
        slots.resize(1);
        slots.resize(2);
        drop(held);
        let all: Vec<_> = std::iter::from_fn(|| take(&slots)).collect();
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn half_of_them_may_be_for_one_request_each() {
        let slots = Arc::new(ConnectionSlots::new(5));
        let alone: Vec<_> = std::iter::from_fn(|| slots.try_take_alone().into_slot()).collect();
        assert_eq!(alone.len(), 2);
        assert!(take(&slots).is_some());
        drop(alone);
        assert!(slots.try_take_alone().into_slot().is_some());
        let one = Arc::new(ConnectionSlots::new(1));
        assert!(one.try_take_alone().into_slot().is_some());
    }

    #[test]
    fn only_so_many_wait() {
        let slots = ConnectionSlots::new(1);
        let places = (slots.enter_queue(2), slots.enter_queue(2));
        assert!(places.0.is_some() && places.1.is_some() && slots.enter_queue(2).is_none());
        drop(places);
        assert_eq!(slots.pending(), 0);
    }
}
