//! The turn of one admitted request.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{PacedChecks, PacedQueueMap, PacedQueues, Turn};

/// A request that waits its turn. Dropped, it gives the turn up.
#[derive(Debug)]
#[must_use = "the request has its turn only while this lives"]
pub struct PacingTicket<'a> {
    pub(super) queues: &'a PacedQueues,
    pub(super) paced: PacedChecks,
    pub(super) turn: Turn,
    pub(super) left: bool,
}

/// What becomes of a request that asks whether it may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Now,
    /// Not before this.
    At(Instant),
    /// Another request is first, and wakes this one when it leaves.
    Behind,
}

impl PacingTicket<'_> {
    /// Resolves when it has left, and says when that was.
    pub async fn leave(mut self) -> Instant {
        loop {
            let mut now = Instant::now();
            let until = poll_fn(|cx| {
                now = Instant::now();
                match self.try_leave(now, cx.waker()) {
                    Departure::Now => Poll::Ready(None),
                    Departure::At(at) => Poll::Ready(Some(at)),
                    Departure::Behind => Poll::Pending,
                }
            });
            match until.await {
                None => return now,
                Some(at) => sleep_until(at).await,
            }
        }
    }

    /// Leaves, if it is the first in all queues and their gates are open.
    pub fn try_leave(&mut self, now: Instant, waker: &Waker) -> Departure {
        let mut queues = self.queues.queues.lock();
        let mut due = self.turn.leaves;
        for paced in &self.paced {
            let Some(queue) = queues.by_bucket.get_mut(&paced.bucket) else { continue };
            match queue.position(self.turn) {
                Some(0) => due = due.max(queue.opens.unwrap_or(due)),
                Some(position) => {
                    queue.waiters[position].waker = Some(waker.clone());
                    return Departure::Behind;
                }
                None => {}
            }
        }
        if now < due {
            return Departure::At(due);
        }
        for paced in &self.paced {
            let Some(queue) = queues.by_bucket.get_mut(&paced.bucket) else { continue };
            let counts_from = now.checked_sub(paced.grace()).unwrap_or(now);
            let opens = queue.opens.unwrap_or(self.turn.leaves).max(counts_from);
            queue.opens = Some(opens + paced.policy.pace(paced.cost));
        }
        self.left = true;
        self.give_up(&mut queues, now);
        Departure::Now
    }

    /// Takes it out of its queues.
    fn give_up(&self, queues: &mut PacedQueueMap, now: Instant) {
        for paced in &self.paced {
            let Some(queue) = queues.by_bucket.get_mut(&paced.bucket) else { continue };
            let Some(position) = queue.position(self.turn) else { continue };
            queue.waiters.remove(position);
            queue.costs -= paced.cost;
            if !queue.waiters.is_empty() {
                queue.wake_first();
                continue;
            }
            // If all have left in time, the bucket itself says when the next may, and the gate need
            // not be kept. One microsecond, because the bucket counts in whole ones.
            let next = self.turn.leaves + paced.policy.pace(paced.cost) + Duration::from_micros(1);
            match queue.opens.filter(|opens| *opens > next.max(now)) {
                Some(opens) => {
                    queues.closed.insert((opens, paced.bucket));
                }
                None => {
                    queues.by_bucket.remove(&paced.bucket);
                    self.queues.used.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        self.queues.tidy(queues, now);
    }
}

impl Drop for PacingTicket<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.give_up(&mut self.queues.queues.lock(), Instant::now());
        }
    }
}
