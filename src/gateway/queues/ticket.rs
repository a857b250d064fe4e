//! The position of one request in its queue.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::time::Instant;

use super::{DepthCount, WaitQueue, WaitQueues};
use crate::limit::{Policy, Retry, Verdict};
use crate::store::{BucketId, CheckOutcome};

/// A position in a queue. Dropped, it is given up.
#[derive(Debug)]
#[must_use = "the request has its position only while this lives"]
pub(crate) struct QueueTicket<'a> {
    pub(super) queues: &'a WaitQueues,
    pub(super) bucket: BucketId,
    pub(super) policy: &'a Policy,
    pub(super) id: u64,
    pub(super) _depth: DepthCount,
}

/// Why a request in a queue is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueEvent {
    /// It is the first, or slots have become free for it.
    Ready,
    /// It cannot pass before this, which is too late.
    TooLate(Instant),
    Draining,
}

impl QueueTicket<'_> {
    /// When it passes at the earliest, if it is not the first.
    pub(crate) fn passes(&self) -> Instant {
        let now = Instant::now();
        let queues = self.queues.queues.lock();
        let Some(queue) = queues.get(&self.bucket) else { return now };
        let before = queue.waiters.iter().take_while(|waiter| waiter.id < self.id);
        let own = queue.waiters.iter().find(|waiter| waiter.id == self.id);
        let costs = before.skip(1).chain(own).map(|waiter| waiter.cost);
        queue.passes(self.policy, costs.fold(0, u64::saturating_add), now)
    }

    /// The request has passed, with this outcome, which was known at `known`. The next one may pass
    /// as soon as what it costs has refilled, and need not ask before.
    pub(crate) fn admitted(self, outcome: &CheckOutcome, known: Instant) {
        // The lock is released before the ticket is dropped.
        if let Some(queue) = self.queues.queues.lock().get_mut(&self.bucket)
            && let Some(cost) = queue.waiters.get(1).map(|next| next.cost)
        {
            let wait = match self.policy.evaluate(outcome.state, outcome.now, cost) {
                _ if !self.policy.is_predictable() => None,
                Verdict::Refuse(Retry::At(at)) => Some(at.since(outcome.now)),
                Verdict::Admit(_) | Verdict::Refuse(Retry::Never) => None,
            };
            queue.next_check = wait.map(|wait| known + wait);
            let passes = queue.passes(self.policy, cost, known);
            queue.earliest = Some(queue.next_check.unwrap_or(passes));
        }
    }

    /// When the store is to be asked for the first time, now that the request is the first.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.queues.queues.lock().get_mut(&self.bucket)?.next_check.take()
    }

    /// Resolves when all requests before it have passed or left.
    pub(crate) async fn first(&self) -> QueueEvent {
        self.watch(|queue| queue.waiters.front().is_some_and(|first| first.id == self.id)).await
    }

    /// Notes when the first may pass at the earliest, and resolves if slots have become free since a
    /// [mark](WaitQueues::freed_count).
    pub(crate) async fn freed(&self, earliest: Instant, since: u64) -> QueueEvent {
        self.watch(|queue| {
            queue.earliest = Some(earliest);
            queue.sweep(self.policy, Instant::now());
            queue.freed > since
        })
        .await
    }

    /// Resolves when something holds for its queue, or the request is not to wait any more.
    async fn watch(&self, mut holds: impl FnMut(&mut WaitQueue) -> bool) -> QueueEvent {
        poll_fn(|cx| {
            let mut queues = self.queues.queues.lock();
            if self.queues.draining.load(Ordering::Acquire) {
                return Poll::Ready(QueueEvent::Draining);
            }
            let Some(queue) = queues.get_mut(&self.bucket) else {
                return Poll::Ready(QueueEvent::Ready);
            };
            if holds(queue) {
                return Poll::Ready(QueueEvent::Ready);
            }
            if let Some(position) = queue.position(self.id) {
                let waiter = &mut queue.waiters[position];
                if let Some(passes) = waiter.too_late {
                    return Poll::Ready(QueueEvent::TooLate(passes));
                }
                match &mut waiter.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.queues.waiting.fetch_sub(1, Ordering::AcqRel);
        let mut queues = self.queues.queues.lock();
        let Some(queue) = queues.get_mut(&self.bucket) else { return };
        if let Some(position) = queue.position(self.id) {
            let left = queue.waiters.remove(position);
            queue.costs -= left.map_or(0, |waiter| waiter.cost);
        }
        if queue.waiters.is_empty() {
            queues.remove(&self.bucket);
        } else {
            queue.wake_first();
        }
    }
}
