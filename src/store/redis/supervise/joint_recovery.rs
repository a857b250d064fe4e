//! Coming back from an outage together with the other gateways that were in it.
//!
//! Each gateway charges what it admitted without Redis when it finds Redis again. A bucket is no emptier
//! than empty: what one of them charges counts for nothing if another has spent it out of Redis before.
//! So those that have paid say so in a set, and go on by their share until all have, or for so long
//! that the missing ones have to be taken for gone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::supervisor::{HEARTBEAT, Supervisor};
use crate::store::redis::connect::failure::Failure;

/// The set of the nodes that owe Redis nothing.
pub(super) const PAID_NODES: &str = "paid";
/// How long the others are waited for. They find Redis within a second of each other; one that has
/// ended meanwhile does not.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// For how long a node is in it that has said so. Those that have Redis say it at every heartbeat.
const PAID_LIFETIME: Duration = LONGEST_WAIT;
/// Without an answered heartbeat for so long Redis was away for some time, whenever that was noticed.
const MISSED_HEARTBEAT: Duration = Duration::from_millis(HEARTBEAT.as_millis() as u64 * 3 / 2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Supervisor {
    /// Pays what was admitted here without Redis, and goes on until the other gateways have paid, too,
    /// unless Redis fails again.
    ///
    /// Only what they say from now on counts: one that has said so before may have lost Redis since,
    /// and owe what it admits now. They are waited for by name, since as many others may have come.
    ///
    /// After less than a heartbeat nobody is waited for: it cannot be told yet who was in the outage,
    /// and what a gateway admits that was alone in it is on top of what the others do.
    pub(super) async fn pay_with_others(&mut self, trips: u64) -> Result<(), Failure> {
        let begun = Instant::now();
        let owed = self.pay_down().await?;
        let Some(lasted) = self.shared.breaker.outage() else { return Ok(()) };
        let others_may_owe = owed > 0 || self.shared.has_local_limits.load(Ordering::Relaxed);
        // One without requests notices an outage at its heartbeat, late.
        let is_long = lasted >= HEARTBEAT || self.last_tick.elapsed() >= MISSED_HEARTBEAT;
        if !others_may_owe || !is_long {
            return Ok(());
        }
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let paid = self.report_paid(begun.elapsed()).await?;
            if self.known_nodes.iter().all(|node| paid.contains(node))
                || Instant::now() >= deadline
                || *self.shared.breaker.trips().borrow() != trips
            {
                break;
            }
            sleep(POLL_INTERVAL).await;
            if self.last_heartbeat.elapsed() > HEARTBEAT {
                self.beat().await?;
            }
            self.pay().await?;
        }
        // What came during the last payment.
        self.pay_down().await.map(|_| ())
    }

    /// Says that this node owes Redis nothing. The answer is the names of all that have said so within
    /// `max_age`.
    pub(super) async fn report_paid(&self, max_age: Duration) -> Result<Vec<String>, Failure> {
        self.report_in(PAID_NODES, PAID_LIFETIME, max_age).await
    }
}
