//! Requests that wait for a limit to let them pass, where its strategy is `queue`.
//!
//! There is a line for each bucket that somebody waits for. Only the first in a line asks the store
//! again, and whoever comes while there is a line joins its end: first come, first served, and one
//! key's line holds up no other's. The lines are this process's; gateways that share a store have
//! each their own.
//!
//! Nothing is charged before it passes. So whoever leaves frees a place, and those behind move up.
//!
//! Whoever could not pass in time does not wait: neither from the start, nor once that shows, be it
//! because the process stood still or because other gateways spend from the same bucket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::time::Instant;

use super::turns::Turns;
use crate::clock::Micros;
use crate::limit::{Policy, Retry, State, Verdict};
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
    /// Requests that are admitted, and wait their turn.
    pub turns: Turns,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    next_id: u64,
    /// What all of them cost.
    costs: u64,
    /// When the first may pass at the earliest, as far as it knows.
    promise: Option<Instant>,
    /// When the first is to ask, if the one before it has told.
    asks: Option<Instant>,
    /// When it was last looked for those who cannot pass in time.
    looked: Option<Instant>,
    /// The last time that places of this bucket became free, by [`Queues::freed`].
    freed: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    cost: u64,
    deadline: Instant,
    /// It cannot pass before this, which is too late for it.
    too_long: Option<Instant>,
    waker: Option<Waker>,
}

/// What a promise may be off by: replies of a store take time, and timers wake up late. Whoever was
/// to pass in time is not sent away for that.
pub(super) const LATENESS: Duration = Duration::from_millis(5);

/// How often a line is looked through for those who cannot pass in time, at the most.
const LOOK_THROUGH: Duration = Duration::from_millis(50);

/// Who wants to wait, and for how long.
#[derive(Debug)]
pub struct Wish<'a> {
    pub bucket: BucketId,
    pub policy: &'a Policy,
    pub cost: u64,
    /// When it would pass at the earliest if nobody were before it, if that is known.
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
            NoPlace::Full | NoPlace::Draining => Duration::ZERO,
        }
    }
}

/// A place in a line, given up when it is dropped.
#[derive(Debug)]
pub struct Place<'a> {
    queues: &'a Queues,
    bucket: BucketId,
    policy: &'a Policy,
    id: u64,
    _counted: Counted,
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
    pub fn join<'a>(&'a self, wish: &Wish<'a>) -> Result<Place<'a>, NoPlace> {
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
            let first = line.waiters.front().map_or(0, |first| first.cost);
            let costs = (line.costs - first).saturating_add(wish.cost);
            Some(line.passes(wish.policy, costs, joined))
        });
        if let Some(passes) = passes.filter(|passes| *passes > wish.deadline) {
            return Err(NoPlace::TooLong(passes));
        }
        let line = lines.entry(wish.bucket).or_default();
        if line.waiters.is_empty() {
            line.promise = wish.promise;
        }
        line.next_id += 1;
        let id = line.next_id;
        // A cost is at most 10^9 here, or it is refused and does not wait.
        line.costs += wish.cost;
        let Wish { bucket, policy, cost, deadline, .. } = *wish;
        line.waiters.push_back(Waiter { id, cost, deadline, too_long: None, waker: None });
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted::new(wish.gauge);
        Ok(Place { queues: self, bucket, policy, id, _counted })
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
    /// When a request passes at the earliest, by what it and those between it and the first cost.
    /// The first passes at its promise, and everybody behind it needs time of their own. If the
    /// process stood still, the first has one unit of what refilled meanwhile, and no more.
    fn passes(&self, policy: &Policy, costs: u64, now: Instant) -> Instant {
        let grace = now.checked_sub(policy.span(1)).unwrap_or(now);
        self.promise.unwrap_or(now).max(grace) + policy.span(costs)
    }

    /// Tells those who cannot pass in time, and do not count for those behind them.
    fn look_through(&mut self, policy: &Policy, now: Instant) {
        if policy.is_held() || self.looked.is_some_and(|looked| now < looked + LOOK_THROUGH) {
            return;
        }
        self.looked = Some(now);
        let first = self.passes(policy, 0, now);
        let mut costs = 0_u64;
        for waiter in self.waiters.iter_mut().skip(1) {
            let passes = first + policy.span(costs.saturating_add(waiter.cost));
            if passes <= waiter.deadline + LATENESS {
                costs += waiter.cost;
                continue;
            }
            waiter.too_long = Some(passes);
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
}

/// What a place in a line is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is the first.
    First,
    /// It cannot pass in time.
    TooLong(Instant),
    Draining,
}

impl Place<'_> {
    /// When it passes at the earliest, if it is not the first.
    #[must_use]
    pub fn passes(&self) -> Instant {
        let now = Instant::now();
        let lines = self.queues.lines.lock();
        let Some(line) = lines.get(&self.bucket) else { return now };
        let before = line.waiters.iter().take_while(|waiter| waiter.id < self.id);
        let own = line.waiters.iter().find(|waiter| waiter.id == self.id);
        let costs = before.skip(1).chain(own).map(|waiter| waiter.cost);
        line.passes(self.policy, costs.fold(0, u64::saturating_add), now)
    }

    /// It has passed, and this is its bucket with its charge, as it was when that was known. The
    /// next may do so as soon as what it costs has come back, and need not ask before.
    pub fn pass(self, (charged, now): (State, Micros), known: Instant) {
        // The lock is let go of before the place is.
        if let Some(line) = self.queues.lines.lock().get_mut(&self.bucket)
            && let Some(cost) = line.waiters.get(1).map(|next| next.cost)
        {
            let wait = match self.policy.evaluate(charged, now, cost) {
                _ if !self.policy.is_foretold() => None,
                Verdict::Refuse(Retry::At(at)) => Some(at.since(now)),
                Verdict::Admit(_) | Verdict::Refuse(Retry::Never) => None,
            };
            line.asks = wait.map(|wait| known + wait);
            line.promise = Some(line.asks.unwrap_or(line.passes(self.policy, cost, known)));
        }
    }

    /// When it is to ask for the first time, now that it is the first.
    #[must_use]
    pub fn asks(&self) -> Option<Instant> {
        self.queues.lines.lock().get_mut(&self.bucket)?.asks.take()
    }

    /// Resolves when everybody before it has passed or left.
    pub async fn first(&self) -> Turn {
        self.watch(|line| line.waiters.front().is_some_and(|first| first.id == self.id)).await
    }

    /// Says when the first may pass at the earliest, and resolves if places have become free since a
    /// [mark](Queues::freed_so_far).
    pub async fn freed(&self, promise: Instant, since: u64) -> Turn {
        self.watch(|line| {
            line.promise = Some(promise);
            line.look_through(self.policy, Instant::now());
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
                if let Some(passes) = line.waiters[place].too_long {
                    return Poll::Ready(Turn::TooLong(passes));
                }
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
