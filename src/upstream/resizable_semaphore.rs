//! A semaphore whose number of permits a reload may change, also while they are taken.
//!
//! Permits go to those that wait in the order in which they began to, and to nobody else while
//! anybody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(super) struct ResizableSemaphore {
    free: Arc<Semaphore>,
    max: AtomicUsize,
    /// Permits that are to go when they are given back, because a reload has taken them away.
    excess: AtomicUsize,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    semaphore: Arc<ResizableSemaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ResizableSemaphore {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(ResizableSemaphore {
            free: Arc::new(Semaphore::new(max)),
            max: AtomicUsize::new(max),
            excess: AtomicUsize::new(0),
        })
    }

    /// Has it have another number of permits. Those that are too many go when they are given back.
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

    /// How many there are, taken or not.
    pub(super) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// A permit that is free now. None is while others wait.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(|permit| self.permit(permit))
    }

    /// The next that becomes free.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Permit> {
        self.free.clone().acquire_owned().await.ok().map(|permit| self.permit(permit))
    }

    fn permit(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Permit {
        Permit { semaphore: self.clone(), permit: Some(permit) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let pay = |excess: usize| excess.checked_sub(1);
        let excess = &self.semaphore.excess;
        let too_many = excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok();
        if let Some(permit) = self.permit.take().filter(|_| too_many) {
            permit.forget();
        }
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
