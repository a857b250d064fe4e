//! Finding out that Redis answers nothing while no call of a worker shows it.
//!
//! Requests of buckets that owe something wait for the payment and make no call. One that waits in vain
//! begins a [silence](super::breaker::Breaker::begin_silence), though Redis may not even have been asked:
//! the supervisor may have to wait for something else before it pays. So it asks whether Redis answers
//! before it gives it up.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::reply_deadline::{is_stall, reply_by};
use crate::store::redis::connect::session::Session;

/// So many payments in a row that are late, or one that takes as long, show that Redis is too slow. As
/// long a silence shows that it takes none.
pub(super) const LATE_PAYMENTS: u32 = 3;

/// Waits for a step of the supervisor during which nothing is paid. If requests are waiting for a payment
/// by then and Redis is silent, that is found out at once, and not when the step is given up.
///
/// Boxed, since the steps of a recovery lie in each other, and each would hold those below it several times.
pub(super) fn watch_silence<'a, T: Send + 'a>(
    shared: &'a RedisShared,
    session: &Session,
    step: impl Future<Output = T> + Send + 'a,
) -> BoxFuture<'a, T> {
    let session = session.clone();
    let ask = move || {
        let session = session.clone();
        async move { session.ping().await }.boxed()
    };
    watch(shared, ask, step.boxed()).boxed()
}

/// `ask` resolves when Redis has answered.
async fn watch<'a, T>(
    shared: &'a RedisShared,
    ask: impl Fn() -> BoxFuture<'a, Result<(), Failure>>,
    mut step: BoxFuture<'a, T>,
) -> T {
    let timeout = shared.timeout;
    loop {
        let deadline = Instant::now() + timeout;
        if let Some(done) = reply_by(deadline, &mut step).await {
            return done;
        }
        if is_stall(deadline, Instant::now()) || !is_long_silent(shared, timeout) {
            continue;
        }
        let deadline = Instant::now() + timeout;
        let answered = tokio::select! {
            biased;
            done = &mut step => return done,
            answered = reply_by(deadline, ask()) => answered,
        };
        match answered {
            Some(Ok(())) => shared.breaker.end_silence(),
            None if !is_stall(deadline, Instant::now())
                && is_long_silent(shared, Duration::ZERO) =>
            {
                shared.breaker.trip(&Failure::timeout());
            }
            // This process stood still, or the step fails as well.
            _ => {}
        }
    }
}

/// Whether something is owed and Redis has answered nothing for as long as a payment may take, or will
/// not have in `left`.
fn is_long_silent(shared: &RedisShared, left: Duration) -> bool {
    let breaker = &shared.breaker;
    breaker.silence(Instant::now()) + left >= shared.timeout * LATE_PAYMENTS
        && breaker.is_silent()
        && !breaker.is_open()
        && !shared.ledger.lock().is_empty()
}

#[cfg(test)]
mod tests;
