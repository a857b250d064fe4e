//! Deadlines of replies, in a process that may stand still: a stopped container, a machine that swaps.
//!
//! A deadline that is noticed long after it was over says nothing of Redis. The reply may have lain in
//! the socket all the while, and timers may be looked at before sockets are.

use std::pin::pin;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// Timers are late by a millisecond or two. Beyond this the thread has not run.
const STALL: Duration = Duration::from_millis(5);
/// How long a reply may still take after a stall: long enough for the socket to be looked at.
const GRACE: Duration = Duration::from_millis(5);

/// Waits for a reply until its deadline, and after a stall for what has come meanwhile.
///
/// # Errors
/// If it has not come by then.
pub(crate) async fn reply_by<F: Future>(deadline: Instant, reply: F) -> Result<F::Output, Elapsed> {
    let mut reply = pin!(reply);
    match timeout_at(deadline, &mut reply).await {
        Err(_) if is_stall(deadline, Instant::now()) => timeout(GRACE, reply).await,
        in_time => in_time,
    }
}

/// Whether a deadline was noticed so late that the thread must have stood still.
pub(crate) fn is_stall(deadline: Instant, noticed: Instant) -> bool {
    // Compared first: most replies come in time, and the difference costs more.
    noticed > deadline && noticed - deadline > STALL
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    /// Blocks the only thread until well after `deadline`, as a stop does.
    fn stall_beyond(deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(left + 4 * STALL);
    }

    #[tokio::test]
    async fn a_reply_that_came_during_a_stall_is_heard() {
        let deadline = Instant::now() + Duration::from_millis(10);
        let (reply, replied) = oneshot::channel();
        // Polled after the timer has been, as the socket may be.
        tokio::spawn(async move {
            stall_beyond(deadline);
            tokio::task::yield_now().await;
            reply.send(()).unwrap();
        });
        assert_eq!(reply_by(deadline, replied).await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_reply_that_never_comes_is_not_waited_for() {
        let deadline = Instant::now() + Duration::from_millis(10);
        assert!(reply_by(deadline, pending::<()>()).await.is_err());
        let deadline = Instant::now() + Duration::from_millis(10);
        tokio::spawn(async move { stall_beyond(deadline) });
        assert!(reply_by(deadline, pending::<()>()).await.is_err());
    }
}
