//! A semaphore whose number of permits a reload may change, also while they are taken.
//!
//! Permits go to those that wait in the order in which they began to, and to nobody else while
//! anybody waits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(super) struct ResizableSemaphore {
    /// Together with those that are taken these are `max`, and the excess.
    free: Arc<Semaphore>,
    max: AtomicUsize,
    /// Locked wherever permits are made, given back or taken away, so that none slips through between.
    excess: Mutex<Excess>,
    /// How many holders are still to be found for what is too much. Each looks here first, so that no lock
    /// is taken for that question while there is nothing to claim.
    unclaimed: AtomicUsize,
}

/// Permits that are to go when they are given back, because a reload has taken them away.
#[derive(Debug, Default)]
struct Excess {
    permits: usize,
    /// So many holders know that theirs is one of them.
    recalled: usize,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    semaphore: Arc<ResizableSemaphore>,
    permit: Option<OwnedSemaphorePermit>,
    is_recalled: Cell<bool>,
}

impl ResizableSemaphore {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(ResizableSemaphore {
            free: Arc::new(Semaphore::new(max)),
            max: AtomicUsize::new(max),
            excess: Mutex::default(),
            unclaimed: AtomicUsize::new(0),
        })
    }

    /// Has it have another number of permits. Those that are too many go when they are given back.
    pub(super) fn resize(&self, max: usize) {
        let mut excess = self.excess.lock();
        let before = self.max.swap(max, Ordering::Relaxed);
        if let Some(more) = max.checked_sub(before) {
            let spared = more.min(excess.permits);
            excess.permits -= spared;
            self.free.add_permits(more - spared);
        } else {
            excess.permits += before - max;
        }
        self.settle(&mut excess);
    }

    /// Takes away what it can of those that are too many.
    fn settle(&self, excess: &mut Excess) {
        if excess.permits > 0 {
            excess.permits -= self.free.forget_permits(excess.permits);
        }
        // None at all means to its user that there is no limit any more, so nobody has to go.
        let unclaimed = match self.max() {
            0 => 0,
            _ => excess.permits.saturating_sub(excess.recalled),
        };
        self.unclaimed.store(unclaimed, Ordering::Relaxed);
    }

    /// How many there are, taken or not.
    pub(super) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// A permit that is free now. None is while others wait.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Permit> {
        let mut excess = self.excess.lock();
        self.settle(&mut excess);
        if excess.permits > 0 {
            return None;
        }
        self.free.clone().try_acquire_owned().ok().map(|permit| self.permit(permit))
    }

    /// The next that becomes free. One that was assigned before a reload has taken it away is had all the
    /// same, and goes when it is given back: to wait again would be to wait behind all others.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Permit> {
        // Dropped after the wait. If that is given up, it may have had a permit already, which then is
        // free again.
        let _settles = SettleOnDrop(self);
        self.free.clone().acquire_owned().await.ok().map(|permit| self.permit(permit))
    }

    fn permit(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Permit {
        Permit { semaphore: self.clone(), permit: Some(permit), is_recalled: Cell::new(false) }
    }
}

/// Has a semaphore take away what is too much when this is dropped.
struct SettleOnDrop<'a>(&'a ResizableSemaphore);

impl Drop for SettleOnDrop<'_> {
    fn drop(&mut self) {
        self.0.settle(&mut self.0.excess.lock());
    }
}

impl Permit {
    /// Claims to be one of those that are too many. If it is, it is to be given back as soon as it can be, and
    /// stays so: as many holders are told so as there are too many.
    #[inline]
    pub(super) fn claim_recall(&self) -> bool {
        self.is_recalled.get() || self.claim_unclaimed()
    }

    fn claim_unclaimed(&self) -> bool {
        if self.semaphore.unclaimed.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut excess = self.semaphore.excess.lock();
        let recalls = excess.permits > excess.recalled && self.semaphore.max() > 0;
        if recalls {
            excess.recalled += 1;
            self.is_recalled.set(true);
        }
        self.semaphore.settle(&mut excess);
        recalls
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut excess = self.semaphore.excess.lock();
        if self.is_recalled.get() {
            excess.recalled -= 1;
        }
        let permit = self.permit.take();
        if excess.permits > 0 {
            excess.permits -= 1;
            if let Some(permit) = permit {
                permit.forget();
            }
        } else {
            // Under the lock: between it and a reload it would be neither taken nor free.
            drop(permit);
        }
        self.semaphore.settle(&mut excess);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn take_all(semaphore: &Arc<ResizableSemaphore>) -> Vec<Permit> {
        std::iter::from_fn(|| semaphore.try_take()).collect()
    }

    #[test]
    fn a_reload_changes_their_number_also_while_they_are_taken() {
        let semaphore = ResizableSemaphore::new(3);
        let mut held = take_all(&semaphore);
        semaphore.resize(1);
        held.truncate(1);
        assert!(semaphore.try_take().is_none(), "two were given back, and two are gone");
        held.clear();
        let one = take_all(&semaphore);
        assert_eq!(one.len(), 1);
        semaphore.resize(2);
        assert!(semaphore.try_take().is_some());
        semaphore.resize(0);
        drop(one);
        assert!(semaphore.is_exhausted());
        semaphore.resize(5);
        assert_eq!(take_all(&semaphore).len(), 5);
    }

    #[test]
    fn a_reload_gives_back_first_what_another_took_away() {
        let semaphore = ResizableSemaphore::new(2);
        let held = take_all(&semaphore);
        semaphore.resize(1);
        semaphore.resize(2);
        drop(held);
        assert_eq!(take_all(&semaphore).len(), 2);
    }

    #[test]
    fn as_many_are_recalled_as_are_too_many() {
        let semaphore = ResizableSemaphore::new(5);
        let mut held = take_all(&semaphore);
        let recalled = |held: &[Permit]| held.iter().filter(|it| it.claim_recall()).count();
        assert_eq!(recalled(&held), 0);
        semaphore.resize(2);
        assert_eq!((recalled(&held), recalled(&held)), (3, 3));
        semaphore.resize(1);
        assert_eq!(recalled(&held), 4);
        held.remove(0);
        assert_eq!(recalled(&held), 3);
        held.drain(..3);
        assert_eq!((held.len(), recalled(&held)), (1, 0));
        drop(held);
        assert_eq!(take_all(&semaphore).len(), 1);
    }

    #[test]
    fn none_is_recalled_where_the_limit_is_lifted() {
        let semaphore = ResizableSemaphore::new(2);
        let held = take_all(&semaphore);
        semaphore.resize(0);
        assert!(!held.iter().any(Permit::claim_recall));
        semaphore.resize(1);
        assert_eq!(held.iter().filter(|it| it.claim_recall()).count(), 1);
    }

    #[test]
    fn who_gives_up_its_wait_when_it_has_one_gives_it_back_to_a_reload_that_took_it_away() {
        let semaphore = ResizableSemaphore::new(2);
        let (first, second) = (semaphore.try_take(), semaphore.try_take());
        {
            let mut waits = pin!(semaphore.take());
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(first);
            semaphore.resize(1);
        }
        assert!(semaphore.try_take().is_none(), "there may be one, and it is taken");
        drop(second);
        assert_eq!(take_all(&semaphore).len(), 1);
    }

    #[test]
    fn one_that_is_given_back_during_a_reload_is_not_left_over() {
        const ROUNDS: usize = 5_000;
        let semaphores: Vec<_> = (0..ROUNDS).map(|_| ResizableSemaphore::new(1)).collect();
        let held: Vec<_> = semaphores.iter().map(ResizableSemaphore::try_take).collect();
        // How far each thread has come, so that both are at the same one at once.
        let (dropped, resized) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let wait_for = |other: &AtomicUsize, round: usize| {
            let mut spins = 0;
            while other.load(Ordering::SeqCst) < round {
                spins += 1;
                match spins % 10_000 {
                    0 => std::thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (round, permit) in held.into_iter().enumerate() {
                    wait_for(&resized, round);
                    dropped.fetch_add(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
            for (round, semaphore) in semaphores.iter().enumerate() {
                wait_for(&dropped, round);
                resized.fetch_add(1, Ordering::SeqCst);
                semaphore.resize(0);
            }
        });
        let left = semaphores.iter().filter(|it| it.try_take().is_some()).count();
        assert_eq!(left, 0);
    }

    #[test]
    fn one_that_is_given_back_or_added_goes_to_who_has_waited_longest() {
        let semaphore = ResizableSemaphore::new(1);
        let held = semaphore.try_take();
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(semaphore.take()), pin!(semaphore.take()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(semaphore.try_take().is_none(), "it is spoken for");
        assert!(second.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Some(_first)) = first.poll(&mut context) else { panic!("it is its turn") };
        semaphore.resize(2);
        assert!(semaphore.try_take().is_none(), "so is the one that was added");
        assert!(second.poll(&mut context).is_ready());
    }
}
