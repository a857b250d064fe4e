//! How a worker tells a connection to drain, to close, or to end at once.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use tokio::task::AbortHandle;

/// The state of one connection that its worker can change.
#[derive(Debug, Default)]
pub(super) struct ConnectionControl {
    pub(super) draining: Cell<bool>,
    pub(super) closing: Cell<bool>,
    /// How many connections of the worker linger: they are read from only to be closed.
    pub(super) lingering: Rc<Cell<usize>>,
    waker: RefCell<Option<Waker>>,
    task: OnceCell<AbortHandle>,
}

impl ConnectionControl {
    pub(super) fn new(lingering: &Rc<Cell<usize>>) -> Self {
        ConnectionControl { lingering: lingering.clone(), ..ConnectionControl::default() }
    }

    /// Answer what is under way, then close.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    /// Close tunnels, too.
    pub(super) fn close(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// Has the calling task woken when the worker changes something. A task keeps its waker for life,
    /// so this is done once and not with every poll.
    pub(super) async fn register_waker(&self) {
        poll_fn(|cx| {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    /// The task that serves the connection.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// End now, whatever is under way.
    pub(super) fn abort(&self) {
        self.closing.set(true);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
