//! Wakes the one task that waits for something on the same thread.
//!
//! The call pipeline waits for three things before every call. That is a flag and a waker each, where a
//! `Notify` would lock, link and unlink a waiter each time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Cell<bool>,
    /// Whether the waker is to be used: it is kept for the next time.
    awaited: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// Lets one wait end: this one, or the next if nobody waits.
    pub(crate) fn raise(&self) {
        self.raised.set(true);
        if self.awaited.replace(false)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Resolves once it is raised, or has been since the last time. Only one may wait at a time.
    pub(crate) async fn raised(&self) {
        let _wait = Wait(self);
        poll_fn(|context| {
            if self.raised.replace(false) {
                return Poll::Ready(());
            }
            match &mut *self.waker.borrow_mut() {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            self.awaited.set(true);
            Poll::Pending
        })
        .await;
    }
}

/// Somebody waits: not woken any more once they have turned to something else.
struct Wait<'a>(&'a Signal);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.awaited.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_wait_ends_for_what_was_raised_before_it_or_while_it_lasts() {
        let (signal, woken) = (Signal::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let context = &mut Context::from_waker(&waker);
        signal.raise();
        signal.raise();
        assert!(pin!(signal.raised()).poll(context).is_ready());
        let mut second = pin!(signal.raised());
        assert!(second.as_mut().poll(context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        signal.raise();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(second.poll(context).is_ready());
    }

    #[test]
    fn nobody_is_woken_who_has_turned_to_something_else_and_the_next_wait_ends() {
        let (signal, woken) = (Signal::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let context = &mut Context::from_waker(&waker);
        {
            assert!(pin!(signal.raised()).poll(context).is_pending());
        }
        signal.raise();
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        assert!(pin!(signal.raised()).poll(context).is_ready());
    }
}
