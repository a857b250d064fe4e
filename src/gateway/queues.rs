//! Requests that wait until a limit admits them, where its strategy is `queue`.
//!
//! There is a queue for each bucket that a request waits for. Only the first in a queue asks the
//! store again, and new requests join the end of a queue that is not empty: FIFO for each key, and
//! one key's queue holds up no other's. The queues are this process's; gateways that share a store
//! have each their own.
//!
//! Nothing is charged before a request passes. So one that leaves gives up nothing but its position,
//! and those behind it move up.
//!
//! A request that could not pass in time does not wait: neither from the start, nor once that shows,
//! because the process stood still or because other gateways spend from the same bucket.

mod ticket;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::time::Instant;

pub(super) use ticket::{QueueEvent, QueueTicket};

use super::pacing::PacedQueues;
use crate::limit::Policy;
use crate::store::BucketId;

/// One for the process.
#[derive(Debug, Default)]
pub struct WaitQueues {
    queues: Mutex<HashMap<BucketId, WaitQueue>>,
    /// Requests in all queues, so that those that need none take no lock.
    waiting: AtomicUsize,
    /// How often slots have become free while a request waited.
    freed: AtomicU64,
    draining: AtomicBool,
    /// Requests that are admitted, and wait their turn.
    pub pacing: PacedQueues,
}

#[derive(Debug, Default)]
struct WaitQueue {
    waiters: VecDeque<Waiter>,
    next_id: u64,
    /// What all of them cost.
    costs: u64,
    /// When the first may pass at the earliest, as far as it knows.
    earliest: Option<Instant>,
    /// When the first is to ask the store, if the one before it has found that out.
    next_check: Option<Instant>,
    /// When requests that cannot pass in time were last looked for.
    swept: Option<Instant>,
    /// The last time that slots of this bucket became free, by [`WaitQueues::freed`].
    freed: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    cost: u64,
    deadline: Instant,
    /// It cannot pass before this, which is too late for it.
    too_late: Option<Instant>,
    waker: Option<Waker>,
}

/// By how much a request may pass after its deadline: replies of a store take time, and timers fire
/// late. A request that was to pass in time is not refused for that.
pub(super) const TIMER_SLACK: Duration = Duration::from_millis(5);

/// How often a queue is swept for requests that cannot pass in time, at the most.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// A request that is to wait, and for how long.
#[derive(Debug)]
pub(super) struct QueueRequest<'a> {
    pub bucket: BucketId,
    pub policy: &'a Policy,
    pub cost: u64,
    /// When it would pass at the earliest if the queue were empty, if that is known.
    pub earliest: Option<Instant>,
    pub deadline: Instant,
    pub max_queue: usize,
    /// Counts requests that wait.
    pub depth: &'a IntGauge,
}

/// Why a request does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueRejection {
    /// `max_queue` requests wait already.
    Full,
    /// It could not pass before this, which is after its deadline.
    TooLate(Instant),
    Draining,
}

impl QueueRejection {
    /// For how long it would have had to wait, as far as that is known.
    pub(super) fn wait(self, now: Instant) -> Duration {
        match self {
            QueueRejection::TooLate(passes) => passes.saturating_duration_since(now),
            QueueRejection::Full | QueueRejection::Draining => Duration::ZERO,
        }
    }
}

/// Counts a request as waiting while it lives.
#[derive(Debug)]
#[must_use = "the request is counted only while this lives"]
pub(super) struct DepthCount(IntGauge);

impl DepthCount {
    pub(super) fn new(depth: &IntGauge) -> Self {
        depth.inc();
        DepthCount(depth.clone())
    }
}

impl Drop for DepthCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl WaitQueues {
    /// Whether a request waits for a bucket.
    pub(super) fn is_occupied(&self, bucket: BucketId) -> bool {
        self.is_used() && self.queues.lock().contains_key(&bucket)
    }

    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Joins the end of a bucket's queue.
    ///
    /// # Errors
    /// If the queue is full, or waiting is of no use.
    pub(super) fn join<'a>(
        &'a self,
        request: &QueueRequest<'a>,
    ) -> Result<QueueTicket<'a>, QueueRejection> {
        let joined = Instant::now();
        let mut queues = self.queues.lock();
        if self.draining.load(Ordering::Acquire) {
            return Err(QueueRejection::Draining);
        }
        let queue = queues.get(&request.bucket);
        if queue.is_some_and(|queue| queue.waiters.len() >= request.max_queue) {
            return Err(QueueRejection::Full);
        }
        let passes = queue.map_or(request.earliest, |queue| {
            let first = queue.waiters.front().map_or(0, |first| first.cost);
            let costs = (queue.costs - first).saturating_add(request.cost);
            Some(queue.passes(request.policy, costs, joined))
        });
        if let Some(passes) = passes.filter(|passes| *passes > request.deadline) {
            return Err(QueueRejection::TooLate(passes));
        }
        let queue = queues.entry(request.bucket).or_default();
        if queue.waiters.is_empty() {
            queue.earliest = request.earliest;
        }
        queue.next_id += 1;
        let id = queue.next_id;
        // A cost is at most 10^9 here, or it is refused and does not wait.
        queue.costs += request.cost;
        let QueueRequest { bucket, policy, cost, deadline, .. } = *request;
        queue.waiters.push_back(Waiter { id, cost, deadline, too_late: None, waker: None });
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Ok(QueueTicket { queues: self, bucket, policy, id, _depth: DepthCount::new(request.depth) })
    }

    /// Wakes the first in the queue of each of these buckets, whose slots have become free.
    pub(super) fn slots_freed(&self, buckets: impl Iterator<Item = BucketId>) {
        if !self.is_used() {
            return;
        }
        let mut queues = self.queues.lock();
        let freed = self.freed.fetch_add(1, Ordering::AcqRel) + 1;
        for bucket in buckets {
            if let Some(queue) = queues.get_mut(&bucket) {
                queue.freed = freed;
                queue.wake_first();
            }
        }
    }

    /// A mark of this moment: slots that become free after it are told from those before.
    pub(super) fn freed_count(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// No request waits from now on.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        let mut queues = self.queues.lock();
        let waiters = queues.values_mut().flat_map(|queue| &mut queue.waiters);
        waiters.filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
    }
}

impl WaitQueue {
    /// When a request passes at the earliest, by what it and those between it and the first cost.
    /// The first passes at `earliest`, and each behind it needs time of its own. After a stall the
    /// first has one unit of what refilled meanwhile, and no more.
    fn passes(&self, policy: &Policy, costs: u64, now: Instant) -> Instant {
        let grace = now.checked_sub(policy.span(1)).unwrap_or(now);
        self.earliest.unwrap_or(now).max(grace) + policy.span(costs)
    }

    /// Wakes requests that cannot pass in time. They do not count for those behind them.
    fn sweep(&mut self, policy: &Policy, now: Instant) {
        if policy.is_held() || self.swept.is_some_and(|swept| now < swept + SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(now);
        let first = self.passes(policy, 0, now);
        let mut costs = 0_u64;
        for waiter in self.waiters.iter_mut().skip(1) {
            let passes = first + policy.span(costs.saturating_add(waiter.cost));
            if passes <= waiter.deadline + TIMER_SLACK {
                costs += waiter.cost;
                continue;
            }
            waiter.too_late = Some(passes);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake_first(&mut self) {
        if let Some(waker) = self.waiters.front_mut().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }

    /// Ids only grow along a queue.
    fn position(&self, id: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&id, |waiter| waiter.id).ok()
    }
}

#[cfg(test)]
mod tests;
