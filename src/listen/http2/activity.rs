//! What the parts of an HTTP/2 connection know of it together: how busy it is, and what its client may
//! still send.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use tokio::time::Instant;

use super::frame_budget::{FloodError, FrameBudget};
use super::stream_progress::StreamProgress;
use crate::clock;

#[derive(Debug)]
pub(super) struct ConnectionActivity {
    /// Streams whose answer is being made or sent.
    streams: Cell<usize>,
    /// When the connection was last of use.
    last_used: Cell<Instant>,
    /// Since when the client is in the middle of a header or of another frame that is no data.
    partial_since: Cell<Option<Instant>>,
    /// Streams that came to the service.
    seen: Cell<u64>,
    /// From when on no stream is taken any more: the client was told a while before.
    closes_at: Cell<Option<Instant>>,
    budget: RefCell<FrameBudget>,
    /// Why the connection is being ended, if it is for a flood.
    flood: Cell<Option<FloodError>>,
    /// Who waits for the last stream to end.
    waiting: RefCell<Option<Waker>>,
    /// The stream that the service has just taken over, on its way to its task.
    next: RefCell<Option<StreamProgress>>,
}

impl ConnectionActivity {
    pub(super) fn new(max_streams: u32) -> Self {
        let now = clock::now();
        ConnectionActivity {
            streams: Cell::new(0),
            last_used: Cell::new(now),
            partial_since: Cell::new(None),
            seen: Cell::new(0),
            closes_at: Cell::new(None),
            budget: RefCell::new(FrameBudget::new(max_streams, now)),
            flood: Cell::new(None),
            waiting: RefCell::new(None),
            next: RefCell::new(None),
        }
    }

    /// The service has a stream.
    pub(super) fn note_begun(&self) {
        self.streams.set(self.streams.get() + 1);
        self.seen.set(self.seen.get() + 1);
    }

    /// A stream has come to the service that is not served.
    pub(super) fn note_refused(&self) {
        self.seen.set(self.seen.get() + 1);
    }

    /// A stream is over, answered or not.
    pub(super) fn note_ended(&self) {
        self.streams.set(self.streams.get() - 1);
        self.last_used.set(clock::cached_now());
        if self.streams.get() == 0
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }

    /// Resolves when no stream is left, nor a request that is finished without its client.
    pub(super) async fn all_ended(&self) {
        poll_fn(|cx| match self.streams.get() {
            0 => Poll::Ready(()),
            _ => {
                self.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await;
    }

    /// The answer of a stream is on its way to the client.
    pub(super) fn note_answered(&self) {
        self.budget.borrow_mut().earn_stream();
    }

    /// The client has taken a piece of an answer.
    pub(super) fn note_sent(&self, bytes: u32) {
        self.last_used.set(clock::cached_now());
        self.earn(bytes);
    }

    /// A whole header has come that opens a stream.
    pub(super) fn note_opened(&self) {
        if self.takes_streams() {
            self.last_used.set(clock::cached_now());
            self.earn(0);
        }
    }

    /// No stream is taken from then on, whether the client has confirmed that it was told or not.
    pub(super) fn close_at(&self, instant: Instant) {
        self.closes_at.set(Some(instant));
    }

    /// Whether a stream that is opened now is served.
    pub(super) fn takes_streams(&self) -> bool {
        self.closes_at.get().is_none_or(|at| clock::now() < at)
    }

    /// Whether what has come so far ends in the middle of something.
    pub(super) fn note_partial(&self, partial: bool) {
        if partial != self.partial_since.get().is_some() {
            self.partial_since.set(partial.then(clock::now));
        }
    }

    pub(super) fn earn(&self, bytes: u32) {
        self.budget.borrow_mut().earn(bytes);
    }

    pub(super) fn spend_frame(&self) -> Result<(), FloodError> {
        self.budget.borrow_mut().spend_frame(clock::now)
    }

    pub(super) fn spend_stream(&self) -> Result<(), FloodError> {
        self.budget.borrow_mut().spend_stream(clock::now)
    }

    pub(super) fn note_flood(&self, flood: FloodError) {
        self.flood.set(Some(flood));
    }

    pub(super) fn flood(&self) -> Option<FloodError> {
        self.flood.get()
    }

    /// How many streams have come to the service.
    pub(super) fn seen(&self) -> u64 {
        self.seen.get()
    }

    pub(super) fn partial_since(&self) -> Option<Instant> {
        self.partial_since.get()
    }

    /// Since when nothing has been under way; `None` if something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.streams.get() == 0).then(|| self.last_used.get())
    }

    /// Leaves a stream to the task that is about to be made for it: hyper calls the service for a
    /// stream and then, before anything else, its executor.
    pub(super) fn hand_over(&self, progress: StreamProgress) {
        self.next.replace(Some(progress));
    }

    pub(super) fn take_over(&self) -> Option<StreamProgress> {
        self.next.take()
    }
}
