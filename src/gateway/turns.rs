//! When requests leave a `leaky_bucket`: one by one, as far apart as they were admitted to.
//!
//! The bucket says when a request's turn is. That alone would not do: after the process stood still
//! the turns of many have passed, and all of them would leave at once. So what leaves is also held to
//! a gate for each bucket: a bucket of its own that has room for one, and some grace for timers that
//! wake up late. However long a stall was, no interval of length `t` sees more leave than
//! `1 + rate × t`, and what refills in the grace, which is one request's worth or more for fast
//! limits, and never more than the limit's burst.
//!
//! There is a line for each bucket in which somebody waits, in the order of turns; a request that has
//! turns in several buckets is in all of their lines and leaves when it is the first in each. Turns
//! are compared by one instant and one number for all lines, so the first of all is the first in each
//! of its lines: nobody waits in a circle. The lines are this process's, like those of
//! [`Queues`](super::Queues).

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use crate::limit::token_bucket::TokenBucket;
use crate::store::BucketId;

/// What timers wake up late by. Limits that let more than one go in this time are not slowed down
/// by it.
const LATENESS: Duration = Duration::from_millis(5);

/// One for the process.
#[derive(Debug, Default)]
pub struct Turns {
    lines: Mutex<Lines>,
    /// How many lines there are, so that those who need none need no lock.
    used: AtomicUsize,
}

#[derive(Debug, Default)]
struct Lines {
    by_bucket: HashMap<BucketId, Line>,
    /// Lines that are empty and whose gate is still closed, by when it opens.
    closed: BTreeSet<(Instant, BucketId)>,
    next_id: u64,
}

#[derive(Debug)]
struct Line {
    /// In the order of their turns.
    waiters: VecDeque<Waiter>,
    /// What all of them cost.
    costs: u64,
    /// What those cost on whom the store has not decided yet.
    undecided: u64,
    /// The gate, once somebody has left: nobody else leaves before this.
    opens: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    turn: (Instant, u64),
    waker: Option<Waker>,
}

/// What a request has charged to a bucket that lets requests go one by one.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    pub bucket: BucketId,
    pub policy: TokenBucket,
    pub cost: u64,
}

impl Paced {
    /// By how much a departure may lie after the instant that it counts from.
    fn grace(&self) -> Duration {
        let one = self.policy.pace(1);
        one.max(LATENESS.min(self.policy.pace(self.policy.burst())))
    }
}

/// Buckets of one request.
pub type AllPaced = SmallVec<[Paced; 1]>;

/// A request that waits its turn, which is given up when it is dropped.
#[derive(Debug)]
pub struct Waiting<'a> {
    turns: &'a Turns,
    paced: AllPaced,
    turn: (Instant, u64),
    left: bool,
}

/// Room in a line while a request is being decided.
#[derive(Debug)]
pub struct Room<'a> {
    turns: &'a Turns,
    bucket: BucketId,
    cost: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // It may be another line by now.
        if let Some(line) = self.turns.lines.lock().by_bucket.get_mut(&self.bucket) {
            line.undecided = line.undecided.saturating_sub(self.cost);
        }
    }
}

/// What becomes of a request that asks whether it may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    Now,
    /// Not before this.
    At(Instant),
    /// Somebody else is first, and wakes it.
    Behind,
}

impl Turns {
    #[must_use]
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire) > 0
    }

    /// Whether somebody waits in one of these buckets, or its gate is closed.
    #[must_use]
    pub fn has(&self, buckets: impl IntoIterator<Item = BucketId>, now: Instant) -> bool {
        if !self.is_used() {
            return false;
        }
        let mut lines = self.lines.lock();
        self.tidy(&mut lines, now);
        buckets.into_iter().any(|bucket| lines.by_bucket.contains_key(&bucket))
    }

    /// Keeps room for a request on which the store is to decide. `None`: nobody waits there, and it
    /// is the store's to know. The store counts those as gone whose turns have passed while nobody
    /// could leave; here they are not.
    ///
    /// # Errors
    /// If there is no room, with how long that takes.
    pub fn reserve(&self, paced: &Paced, now: Instant) -> Result<Option<Room<'_>>, Duration> {
        let mut lines = self.lines.lock();
        let Some(line) = lines.by_bucket.get_mut(&paced.bucket) else { return Ok(None) };
        let costs = line.costs.saturating_add(line.undecided).saturating_add(paced.cost);
        let ahead = paced.policy.pace(costs)
            + line.opens.map_or(Duration::ZERO, |opens| opens.saturating_duration_since(now));
        let room = paced.policy.pace(paced.policy.burst()) + paced.grace();
        if ahead > room {
            return Err(ahead - room);
        }
        line.undecided += paced.cost;
        Ok(Some(Room { turns: self, bucket: paced.bucket, cost: paced.cost }))
    }

    /// Joins the lines of its buckets, to leave at the earliest when told.
    pub fn join(&self, leaves: Instant, paced: AllPaced) -> Waiting<'_> {
        let mut lines = self.lines.lock();
        lines.next_id += 1;
        let turn = (leaves, lines.next_id);
        for it in &paced {
            let line = lines.by_bucket.entry(it.bucket).or_insert_with(|| {
                self.used.fetch_add(1, Ordering::AcqRel);
                Line { waiters: VecDeque::new(), costs: 0, undecided: 0, opens: None }
            });
            // Nearly always at the end.
            let place = line.waiters.partition_point(|waiter| waiter.turn < turn);
            line.waiters.insert(place, Waiter { turn, waker: None });
            line.costs += it.cost;
        }
        drop(lines);
        Waiting { turns: self, paced, turn, left: false }
    }

    /// Forgets lines that say nothing any more.
    fn tidy(&self, lines: &mut Lines, now: Instant) {
        while let Some((opens, bucket)) = lines.closed.first().copied().filter(|it| it.0 <= now) {
            lines.closed.remove(&(opens, bucket));
            let over = |line: &Line| line.waiters.is_empty() && line.opens <= Some(now);
            if lines.by_bucket.get(&bucket).is_some_and(over) {
                lines.by_bucket.remove(&bucket);
                self.used.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl Line {
    fn place(&self, turn: (Instant, u64)) -> Option<usize> {
        self.waiters.binary_search_by_key(&turn, |waiter| waiter.turn).ok()
    }

    fn wake_first(&mut self) {
        if let Some(waker) = self.waiters.front_mut().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }
}

impl Waiting<'_> {
    /// Resolves when it has left, and says when that was.
    pub async fn leave(mut self) -> Instant {
        loop {
            let mut now = Instant::now();
            let until = poll_fn(|cx| {
                now = Instant::now();
                match self.try_leave(now, cx.waker()) {
                    Leave::Now => Poll::Ready(None),
                    Leave::At(at) => Poll::Ready(Some(at)),
                    Leave::Behind => Poll::Pending,
                }
            });
            match until.await {
                None => return now,
                Some(at) => sleep_until(at).await,
            }
        }
    }

    /// Leaves, if it is the first in all lines and their gates are open.
    pub fn try_leave(&mut self, now: Instant, waker: &Waker) -> Leave {
        let mut lines = self.turns.lines.lock();
        let mut due = self.turn.0;
        for paced in &self.paced {
            let Some(line) = lines.by_bucket.get_mut(&paced.bucket) else { continue };
            match line.place(self.turn) {
                Some(0) => due = due.max(line.opens.unwrap_or(due)),
                Some(place) => {
                    line.waiters[place].waker = Some(waker.clone());
                    return Leave::Behind;
                }
                None => {}
            }
        }
        if now < due {
            return Leave::At(due);
        }
        for paced in &self.paced {
            let Some(line) = lines.by_bucket.get_mut(&paced.bucket) else { continue };
            let counts_from = now.checked_sub(paced.grace()).unwrap_or(now);
            let opens = line.opens.unwrap_or(self.turn.0).max(counts_from);
            line.opens = Some(opens + paced.policy.pace(paced.cost));
        }
        self.left = true;
        self.give_up(&mut lines, now);
        Leave::Now
    }

    /// Takes it out of its lines.
    fn give_up(&self, lines: &mut Lines, now: Instant) {
        for paced in &self.paced {
            let Some(line) = lines.by_bucket.get_mut(&paced.bucket) else { continue };
            let Some(place) = line.place(self.turn) else { continue };
            line.waiters.remove(place);
            line.costs -= paced.cost;
            if !line.waiters.is_empty() {
                line.wake_first();
                continue;
            }
            // If all have left in time, the bucket itself says when the next may: nothing is to be
            // remembered. One microsecond, because it counts in whole ones.
            let told = self.turn.0 + paced.policy.pace(paced.cost) + Duration::from_micros(1);
            match line.opens.filter(|opens| *opens > told.max(now)) {
                Some(opens) => {
                    lines.closed.insert((opens, paced.bucket));
                }
                None => {
                    lines.by_bucket.remove(&paced.bucket);
                    self.turns.used.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        self.turns.tidy(lines, now);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.give_up(&mut self.turns.lines.lock(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
