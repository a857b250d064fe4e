//! Where the spans of requests wait to be exported: a queue of a bounded length. What does not fit is
//! dropped and counted.

use std::thread::JoinHandle;

use prometheus::IntCounter;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use super::request_trace::FinishedTrace;

/// Requests whose spans may wait. With what is told of each, some 4 MB.
const WAITING_TRACES: usize = 4096;

#[derive(Debug, Clone)]
pub struct SpanSink {
    queue: Sender<FinishedTrace>,
    dropped: IntCounter,
}

impl SpanSink {
    /// `dropped` counts spans.
    pub fn new(dropped: IntCounter) -> (Self, Receiver<FinishedTrace>) {
        let (queue, waiting) = channel(WAITING_TRACES);
        (SpanSink { queue, dropped }, waiting)
    }

    /// Does not wait.
    pub(super) fn send(&self, trace: FinishedTrace) {
        if let Err(error) = self.queue.try_send(trace) {
            self.dropped.inc_by(error.into_inner().spans());
        }
    }
}

/// Ends the export when it is dropped, once what waits is sent or a moment has passed.
#[derive(Debug)]
pub struct ExportGuard {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ExportGuard {
    pub fn new(stop: watch::Sender<bool>, thread: JoinHandle<()>) -> Self {
        ExportGuard { stop, thread: Some(thread) }
    }
}

impl Drop for ExportGuard {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that exports traces has panicked");
        }
    }
}
