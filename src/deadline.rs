//! The deadline of a connection, or of what is waited for again and again.
//!
//! Its timer is lazy: setting a deadline stores an instant, and the timer behind it is re-armed only
//! when it fires too early. A connection that serves a thousand requests a second touches the timer
//! wheel once per timeout and not once per request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A fixed instant, or a time after the last progress.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    stall_timeout: Option<Duration>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn set(&mut self, at: Instant) {
        self.at = Some(at);
        self.stall_timeout = None;
    }

    pub(crate) fn set_stall_timeout(&mut self, timeout: Duration) {
        if self.stall_timeout != Some(timeout) {
            self.at = None;
            self.stall_timeout = Some(timeout);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.at = None;
        self.stall_timeout = None;
    }

    /// Bytes have moved: a stall timeout starts again.
    #[inline]
    pub(crate) fn note_progress(&mut self) {
        if self.stall_timeout.is_some() {
            self.at = None;
        }
    }

    /// An error of kind `TimedOut` once the deadline has passed.
    pub(crate) fn poll<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let at = match (self.at, self.stall_timeout) {
            (Some(at), _) => at,
            // The clock is asked only now that there is something to wait for.
            (None, Some(timeout)) => *self.at.insert(Instant::now() + timeout),
            (None, None) => return Poll::Pending,
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= at {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            sleep.as_mut().reset(at);
        }
    }
}
