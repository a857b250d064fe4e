//! Deadlines of replies, in a process that may stand still: a stopped container, a machine that swaps.
//!
//! A deadline that is noticed long after it was over says nothing of Redis. The reply may have lain in
//! the socket all the while, and timers may be looked at before sockets are.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::deadline::Deadline;

/// Timers are late by a millisecond or two. Beyond this the thread has not run.
const STALL: Duration = Duration::from_millis(5);
/// How long a reply may still take after a stall: long enough for the socket to be looked at.
const GRACE: Duration = Duration::from_millis(5);

/// Waits for a reply until its deadline, and after a stall for what has come meanwhile. `None` if it
/// has not come by then.
pub(crate) async fn reply_by<F: Future>(deadline: Instant, reply: F) -> Option<F::Output> {
    let mut reply = pin!(reply);
    let in_time = timeout_at(deadline, &mut reply).await.ok();
    or_after_stall(in_time, deadline, reply).await
}

/// The same for one reply after another, which share a timer. The runtime would have to be woken for
/// a new one, since it would not have waited for so short a time: for each reply that is a system call
/// and a turn of its loop.
pub(crate) async fn reply_by_timer<F: Future>(
    timer: &mut Deadline,
    deadline: Instant,
    reply: F,
) -> Option<F::Output> {
    let mut reply = pin!(reply);
    timer.set(deadline);
    let in_time = poll_fn(|context| match reply.as_mut().poll(context) {
        Poll::Ready(reply) => Poll::Ready(Some(reply)),
        Poll::Pending => timer.poll::<()>(context).map(|_| None),
    });
    or_after_stall(in_time.await, deadline, reply).await
}

async fn or_after_stall<F: Future>(
    in_time: Option<F::Output>,
    deadline: Instant,
    reply: Pin<&mut F>,
) -> Option<F::Output> {
    match in_time {
        None if is_stall(deadline, Instant::now()) => timeout(GRACE, reply).await.ok(),
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
    use tokio::task::yield_now;
    use tokio::time::sleep_until;

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
        assert_eq!(reply_by(deadline, replied).await, Some(Ok(())));
    }

    #[tokio::test]
    async fn a_reply_that_never_comes_is_not_waited_for() {
        let deadline = Instant::now() + Duration::from_millis(10);
        assert_eq!(reply_by(deadline, pending::<()>()).await, None);
        let deadline = Instant::now() + Duration::from_millis(10);
        tokio::spawn(async move { stall_beyond(deadline) });
        assert_eq!(reply_by(deadline, pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn replies_that_share_a_timer_are_waited_for_until_their_own_deadlines() {
        let mut timer = Deadline::default();
        let within = |millis| Instant::now() + Duration::from_millis(millis);
        // The first arms the timer, which ends long before and long after those of the others.
        for first in [1, 60_000] {
            let answered = reply_by_timer(&mut timer, within(first), yield_now()).await;
            assert_eq!(answered, Some(()));
            let late = within(20);
            let answered = reply_by_timer(&mut timer, within(60_000), sleep_until(late)).await;
            assert_eq!(answered, Some(()));
            let deadline = within(20);
            assert_eq!(reply_by_timer(&mut timer, deadline, pending::<()>()).await, None);
            assert!(Instant::now() >= deadline);
        }
    }

    #[tokio::test]
    async fn a_shared_timer_lets_a_reply_be_heard_that_came_during_a_stall() {
        let mut timer = Deadline::default();
        let earlier = Instant::now() + Duration::from_millis(5);
        assert_eq!(reply_by_timer(&mut timer, earlier, yield_now()).await, Some(()));
        let deadline = Instant::now() + Duration::from_millis(10);
        let (reply, replied) = oneshot::channel();
        tokio::spawn(async move {
            stall_beyond(deadline);
            yield_now().await;
            reply.send(()).unwrap();
        });
        assert_eq!(reply_by_timer(&mut timer, deadline, replied).await, Some(Ok(())));
    }
}
