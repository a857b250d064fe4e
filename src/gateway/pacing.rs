//! When admitted requests of a `leaky_bucket` go on to their upstream: one by one, as far apart as
//! its rate says.
//!
//! The bucket says when it is a request's turn. That alone would not do: after the process stood
//! still the turns of many have passed, and all of them would leave at once. So departures are also
//! held to a gate for each bucket: a bucket of its own that has room for one, and some grace for
//! timers that fire late. However long a stall was, no interval of length `t` sees more leave than
//! `1 + rate × t`, and what refills in the grace, which is one request's worth or more for fast
//! limits, and never more than the limit's burst.
//!
//! There is a queue for each bucket in which a request waits, in the order of turns; a request that
//! has turns in several buckets is in all of their queues and leaves when it is the first in each.
//! PacedQueues are compared by one instant and one number for all queues, so the first of all is the first
//! in each of its queues: there is no deadlock. The queues are this process's, like the
//! [`WaitQueues`](super::WaitQueues).

mod ticket;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

pub use ticket::{Departure, PacingTicket};

use crate::limit::leaky_bucket::LeakyBucket;
use crate::store::BucketId;

/// How late timers may fire. Limits that let more than one request go in this time are not slowed
/// down by it.
const TIMER_SLACK: Duration = Duration::from_millis(5);

/// One for the process.
#[derive(Debug, Default)]
pub struct PacedQueues {
    queues: Mutex<PacedQueueMap>,
    /// How many queues there are, so that requests that need none take no lock.
    used: AtomicUsize,
}

#[derive(Debug, Default)]
struct PacedQueueMap {
    by_bucket: HashMap<BucketId, PacedQueue>,
    /// Queues that are empty and whose gate is still closed, by when it opens.
    closed: BTreeSet<(Instant, BucketId)>,
    next_id: u64,
}

#[derive(Debug)]
struct PacedQueue {
    /// In the order of their turns.
    waiters: VecDeque<Waiter>,
    /// What all of them cost.
    costs: u64,
    /// What requests cost that the store is deciding about.
    undecided: u64,
    /// The gate, once a request has left: no other leaves before this.
    opens: Option<Instant>,
}

/// When a request leaves at the earliest; of two with the same instant, the first to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    leaves: Instant,
    id: u64,
}

#[derive(Debug)]
struct Waiter {
    turn: Turn,
    waker: Option<Waker>,
}

/// What a request has charged to a bucket that lets requests go one by one.
#[derive(Debug, Clone, Copy)]
pub struct PacedCheck {
    pub bucket: BucketId,
    pub policy: LeakyBucket,
    pub cost: u64,
}

impl PacedCheck {
    /// By how much a departure may lie after the instant that it counts from.
    fn grace(&self) -> Duration {
        let one = self.policy.pace(1);
        one.max(TIMER_SLACK.min(self.policy.pace(self.policy.burst())))
    }
}

/// Buckets of one request.
pub type PacedChecks = SmallVec<[PacedCheck; 1]>;

/// Room in a queue, kept while a request is being decided.
#[derive(Debug)]
#[must_use = "the room is kept only while this lives"]
pub struct PacingReservation<'a> {
    queues: &'a PacedQueues,
    bucket: BucketId,
    cost: u64,
}

impl Drop for PacingReservation<'_> {
    fn drop(&mut self) {
        // It may be another queue by now.
        if let Some(queue) = self.queues.queues.lock().by_bucket.get_mut(&self.bucket) {
            queue.undecided = queue.undecided.saturating_sub(self.cost);
        }
    }
}

impl PacedQueues {
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire) > 0
    }

    /// Whether a request waits in one of these buckets, or its gate is closed.
    pub fn has(&self, buckets: impl IntoIterator<Item = BucketId>, now: Instant) -> bool {
        if !self.is_used() {
            return false;
        }
        let mut queues = self.queues.lock();
        self.tidy(&mut queues, now);
        buckets.into_iter().any(|bucket| queues.by_bucket.contains_key(&bucket))
    }

    /// Keeps room for a request that the store is to decide about. `None` if the queue is empty, so
    /// that the store alone decides. After a stall the store counts requests as gone whose turns have
    /// passed; here they still wait.
    ///
    /// # Errors
    /// If there is no room, with how long it takes until there is.
    pub fn reserve(
        &self,
        paced: &PacedCheck,
        now: Instant,
    ) -> Result<Option<PacingReservation<'_>>, Duration> {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_bucket.get_mut(&paced.bucket) else { return Ok(None) };
        let costs = queue.costs.saturating_add(queue.undecided).saturating_add(paced.cost);
        let ahead = paced.policy.pace(costs)
            + queue.opens.map_or(Duration::ZERO, |opens| opens.saturating_duration_since(now));
        let room = paced.policy.pace(paced.policy.burst()) + paced.grace();
        if ahead > room {
            return Err(ahead - room);
        }
        queue.undecided += paced.cost;
        Ok(Some(PacingReservation { queues: self, bucket: paced.bucket, cost: paced.cost }))
    }

    /// Joins the queues of its buckets, to leave at `leaves` or later.
    pub fn join(&self, leaves: Instant, paced: PacedChecks) -> PacingTicket<'_> {
        let mut queues = self.queues.lock();
        queues.next_id += 1;
        let turn = Turn { leaves, id: queues.next_id };
        for it in &paced {
            let queue = queues.by_bucket.entry(it.bucket).or_insert_with(|| {
                self.used.fetch_add(1, Ordering::AcqRel);
                PacedQueue { waiters: VecDeque::new(), costs: 0, undecided: 0, opens: None }
            });
            // Nearly always at the end.
            let position = queue.waiters.partition_point(|waiter| waiter.turn < turn);
            queue.waiters.insert(position, Waiter { turn, waker: None });
            queue.costs += it.cost;
        }
        drop(queues);
        PacingTicket { queues: self, paced, turn, left: false }
    }

    /// Removes empty queues whose gates have opened.
    fn tidy(&self, queues: &mut PacedQueueMap, now: Instant) {
        while let Some((opens, bucket)) = queues.closed.first().copied().filter(|it| it.0 <= now) {
            queues.closed.remove(&(opens, bucket));
            let over = |queue: &PacedQueue| queue.waiters.is_empty() && queue.opens <= Some(now);
            if queues.by_bucket.get(&bucket).is_some_and(over) {
                queues.by_bucket.remove(&bucket);
                self.used.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl PacedQueue {
    fn position(&self, turn: Turn) -> Option<usize> {
        self.waiters.binary_search_by_key(&turn, |waiter| waiter.turn).ok()
    }

    fn wake_first(&mut self) {
        if let Some(waker) = self.waiters.front_mut().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
