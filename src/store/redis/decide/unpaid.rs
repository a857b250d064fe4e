//! Requests for buckets that owe Redis something.
//!
//! What passes without Redis is owed, also if it is in use otherwise: a request may have waited in vain
//! for the last debts of an outage to be paid, or for a connection. Until that is paid, Redis would
//! admit as much once more to the next requests for the same bucket. So these wait for the payment,
//! which takes as long as a call.

use std::pin::pin;

use tokio::time::{Instant, timeout_at};

use crate::limit::OnError;
use crate::store::redis::RedisStore;
use crate::store::redis::supervise::fallback;
use crate::store::{Check, CheckOutcome, CheckSet, Decision, StoreError};

impl RedisStore {
    /// Whether a request may have to wait until something is paid.
    #[inline]
    pub(crate) fn may_owe(&self, asked: CheckSet<'_>) -> bool {
        // Only if all limits are `local`: deciding here would leave out the others.
        let all_local = || asked.checks.iter().all(|check| check.on_error == OnError::Local);
        !self.shared.quiet_since.is_quiet() && all_local()
    }

    /// Waits until nothing is owed, and decides here if that takes too long. `None`: Redis is to be
    /// asked.
    pub(crate) async fn decide_unpaid(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> Option<Result<Decision, StoreError>> {
        let deadline = Instant::now() + self.shared.timeout;
        loop {
            let mut paid = pin!(self.shared.debts_paid.notified());
            paid.as_mut().enable();
            if !self.owes(asked) {
                return None;
            }
            // A Redis that hangs takes no payment either. Requests must not find that out one after
            // another, since none of them makes a call that would open the breaker. The first answer in
            // time ends it: to a call, a payment or the heartbeat.
            if self.shared.breaker.is_silent() {
                break;
            }
            if timeout_at(deadline, paid).await.is_err() {
                self.shared.breaker.begin_silence();
                break;
            }
            if self.shared.breaker.is_open() {
                return self.decide_here(asked, outcomes);
            }
        }
        Some(fallback::decide_after_all(&self.shared, asked, outcomes, &[]))
    }

    fn owes(&self, asked: CheckSet<'_>) -> bool {
        let mut ledger = self.shared.ledger.lock();
        self.shared.note_quiet(ledger.may_be_missing());
        let is_unpaid =
            |check: &Check<'_>| ledger.is_unpaid(check.bucket, self.shared.now_for(asked, check));
        asked.checks.iter().any(is_unpaid)
    }
}
