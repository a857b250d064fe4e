//! Requests that wait for a limit to let them pass, where its strategy is `queue`.
//!
//! There is a line for each bucket that somebody waits for. Only the first in a line asks the store
//! again, and whoever comes while there is a line joins its end: first come, first served, and one
//! key's line holds up no other's. The lines are this process's; gateways that share a store have
//! each their own.
//!
//! Nothing is charged before it passes. So whoever leaves frees a place, and those behind move up.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::time::Instant;

use crate::limit::Policy;
use crate::store::BucketId;

/// One for the process.
#[derive(Debug, Default)]
pub struct Queues {
    lines: Mutex<HashMap<BucketId, Line>>,
    /// Requests in all lines, so that those that need none need no lock.
    waiting: AtomicUsize,
    /// How often places have become free while somebody waited.
    freed: AtomicU64,
    draining: AtomicBool,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    next_id: u64,
    /// What all of them cost.
    costs: u64,
    /// When the first may pass, as far as it knows.
    promise: Option<Instant>,
    /// The last time that places of this bucket became free, by [`Queues::freed`].
    freed: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    cost: u64,
    waker: Option<Waker>,
}

/// Who wants to wait, and for how long.
#[derive(Debug)]
pub struct Wish<'a> {
    pub bucket: BucketId,
    pub policy: &'a Policy,
    pub cost: u64,
    /// When it would pass if nobody were before it, if that is known.
    pub promise: Option<Instant>,
    pub deadline: Instant,
    pub max_queue: usize,
    /// Counts those who wait.
    pub gauge: &'a IntGauge,
}

/// Why there is no place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// As many wait as may.
    Full,
    /// It has waited for as long as it may.
    Late,
    /// It could not pass in time.
    TooLong(Instant),
    Draining,
}

impl NoPlace {
    /// For how long it would have had to wait, as far as that is known.
    #[must_use]
    pub fn wait(self, now: Instant) -> Duration {
        match self {
            NoPlace::TooLong(passes) => passes.saturating_duration_since(now),
            NoPlace::Full | NoPlace::Late | NoPlace::Draining => Duration::ZERO,
        }
    }
}

/// A place in a line, given up when it is dropped.
#[derive(Debug)]
pub struct Place<'a> {
    queues: &'a Queues,
    bucket: BucketId,
    id: u64,
    _counted: Counted,
    joined: Instant,
}

/// Counts as waiting while it lives.
#[derive(Debug)]
pub struct Counted(IntGauge);

impl Counted {
    #[must_use]
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Queues {
    /// Whether anybody waits for a bucket.
    pub fn has(&self, bucket: BucketId) -> bool {
        self.is_used() && self.lines.lock().contains_key(&bucket)
    }

    #[must_use]
    #[inline]
    pub fn is_used(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Joins the end of a bucket's line.
    ///
    /// # Errors
    /// If there is no place, or no point in waiting.
    pub fn join(&self, wish: &Wish<'_>) -> Result<Place<'_>, NoPlace> {
        let joined = Instant::now();
        let mut lines = self.lines.lock();
        if self.draining.load(Ordering::Acquire) {
            return Err(NoPlace::Draining);
        }
        let line = lines.get(&wish.bucket);
        if line.is_some_and(|line| line.waiters.len() >= wish.max_queue) {
            return Err(NoPlace::Full);
        }
        let passes = line.map_or(wish.promise, |line| {
            // The first passes at its promise, and everybody behind it needs time of their own.
            let first = line.waiters.front().map_or(0, |first| first.cost);
            let costs = (line.costs - first).saturating_add(wish.cost);
            Some(line.promise.unwrap_or(joined) + wish.policy.span(costs))
        });
        if let Some(passes) = passes.filter(|passes| *passes > wish.deadline) {
            return Err(NoPlace::TooLong(passes));
        }
        let line = lines.entry(wish.bucket).or_default();
        line.next_id += 1;
        let id = line.next_id;
        // A cost is at most 10^9 here, or it is refused and does not wait.
        line.costs += wish.cost;
        line.waiters.push_back(Waiter { id, cost: wish.cost, waker: None });
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted::new(wish.gauge);
        Ok(Place { queues: self, bucket: wish.bucket, id, _counted, joined })
    }

    /// Tells the first in line of each of these buckets that places have become free.
    pub fn freed(&self, buckets: impl Iterator<Item = BucketId>) {
        if !self.is_used() {
            return;
        }
        let mut lines = self.lines.lock();
        let freed = self.freed.fetch_add(1, Ordering::AcqRel) + 1;
        for bucket in buckets {
            if let Some(line) = lines.get_mut(&bucket) {
                line.freed = freed;
                line.wake_first();
            }
        }
    }

    /// A mark of this moment: places that become free after it are told from those before.
    #[must_use]
    pub fn freed_so_far(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Nobody waits from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        let mut lines = self.lines.lock();
        let waiters = lines.values_mut().flat_map(|line| &mut line.waiters);
        waiters.filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
    }
}

impl Line {
    fn wake_first(&mut self) {
        if let Some(waker) = self.waiters.front_mut().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }
}

/// What a place in a line is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is the first.
    First,
    Draining,
}

impl Place<'_> {
    /// Since when it has been waiting.
    #[must_use]
    pub fn joined(&self) -> Instant {
        self.joined
    }

    /// Resolves when everybody before it has passed or left.
    pub async fn first(&self) -> Turn {
        self.watch(|line| line.waiters.front().is_some_and(|first| first.id == self.id)).await
    }

    /// Says when the first will ask again, and resolves early if places have become free since a
    /// [mark](Queues::freed_so_far).
    pub async fn freed(&self, next: Instant, since: u64) -> Turn {
        self.watch(|line| {
            line.promise = Some(next);
            line.freed > since
        })
        .await
    }

    /// Resolves when something can be said of its line, or nobody may wait any more.
    async fn watch(&self, mut holds: impl FnMut(&mut Line) -> bool) -> Turn {
        poll_fn(|cx| {
            let mut lines = self.queues.lines.lock();
            if self.queues.draining.load(Ordering::Acquire) {
                return Poll::Ready(Turn::Draining);
            }
            let Some(line) = lines.get_mut(&self.bucket) else { return Poll::Ready(Turn::First) };
            if holds(line) {
                return Poll::Ready(Turn::First);
            }
            // Ids only grow along a line.
            if let Ok(place) = line.waiters.binary_search_by_key(&self.id, |waiter| waiter.id) {
                match &mut line.waiters[place].waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queues.waiting.fetch_sub(1, Ordering::AcqRel);
        let mut lines = self.queues.lines.lock();
        let Some(line) = lines.get_mut(&self.bucket) else { return };
        if let Ok(place) = line.waiters.binary_search_by_key(&self.id, |waiter| waiter.id) {
            let left = line.waiters.remove(place);
            line.costs -= left.map_or(0, |waiter| waiter.cost);
        }
        if line.waiters.is_empty() {
            lines.remove(&self.bucket);
        } else {
            line.wake_first();
        }
    }
}

#[cfg(test)]
mod tests;
