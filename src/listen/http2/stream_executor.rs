//! The task of one stream, on the worker's own thread, with a deadline for a client that does not read.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::rt::Executor;

use super::activity::ConnectionActivity;
use super::stream_progress::StreamProgress;
use crate::deadline::Deadline;
use crate::listen::connection::ServerSettings;

#[derive(Debug, Clone)]
pub(super) struct StreamExecutor {
    activity: Rc<ConnectionActivity>,
    settings: Rc<ServerSettings>,
}

impl StreamExecutor {
    pub(super) fn new(activity: Rc<ConnectionActivity>, settings: Rc<ServerSettings>) -> Self {
        StreamExecutor { activity, settings }
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let progress = self.activity.take_over();
        let mut deadline = Deadline::default();
        deadline.set_stall_timeout(self.settings.borrow().request_timeout);
        let task = StreamTask { stream: Box::pin(stream), progress, deadline, waited_for: None };
        tokio::task::spawn_local(task);
    }
}

struct StreamTask<F> {
    stream: Pin<Box<F>>,
    progress: Option<StreamProgress>,
    deadline: Deadline,
    /// The piece of the answer that the client had no room for.
    waited_for: Option<u64>,
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let waits_for = self.progress.as_ref().and_then(StreamProgress::waits_for_client);
        if self.waited_for != waits_for {
            self.waited_for = waits_for;
            self.deadline.note_progress();
        }
        match waits_for {
            // Dropping the stream resets it, which is how the client sees that the rest is missing.
            Some(_) => self.deadline.poll::<()>(cx).map(|_| ()),
            None => Poll::Pending,
        }
    }
}
