//! Coming back from an outage together with the other gateways that were in it.
//!
//! Each gateway charges what it admitted without Redis when it finds Redis again, less what has refilled
//! since: a full bucket loses that. Two things would let more pass than the limit if each did so by
//! itself. Once one of them has paid, the bucket is full no longer and loses nothing, while the others
//! go on taking it off. And a bucket is no emptier than empty: what one charges counts for nothing if
//! another has spent it out of Redis before.
//!
//! So they say in a set what they do, and wait for each other twice: with paying until all have found
//! Redis, and with deciding by Redis until all have paid. Those that are not heard of for two seconds
//! have to be taken for gone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::supervisor::{HEARTBEAT, Supervisor};
use crate::store::redis::connect::failure::Failure;

/// The set of the nodes that owe Redis nothing. What those in a recovery do stands there behind their
/// names.
pub(super) const PAID_NODES: &str = "paid";
/// It has found Redis, and pays as soon as the others have.
const FOUND: &str = " found";
/// It pays, or is about to.
const PAYING: &str = " paying";

/// How long the others are waited for. They find Redis within a second of each other; one that has
/// ended meanwhile does not.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// One that says that it is paying is waited for as long as payments may take.
const LONGEST_PAYMENT: Duration = Duration::from_secs(10);
/// For how long a node is in the set that has said something. Those that have Redis say it at every
/// heartbeat.
const PAID_LIFETIME: Duration = LONGEST_WAIT;
/// Without an answered heartbeat for so long Redis was away for some time, whenever that was noticed.
const MISSED_HEARTBEAT: Duration = Duration::from_millis(HEARTBEAT.as_millis() as u64 * 3 / 2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What nodes have said of themselves in the set.
struct Reports(Vec<String>);

impl Reports {
    fn has(&self, node: &str, state: &str) -> bool {
        self.0.iter().any(|it| it.strip_prefix(node) == Some(state))
    }

    fn has_any(&self, node: &str) -> bool {
        ["", FOUND, PAYING].iter().any(|state| self.has(node, state))
    }
}

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
        self.payments.refill_until = None;
        let begun = Instant::now();
        let owes = !self.shared.ledger.lock().is_empty();
        let others_may_owe = owes || self.shared.has_local_limits.load(Ordering::Relaxed);
        let outage = self.shared.breaker.outage();
        // One without requests notices an outage at its heartbeat, late.
        let is_long = outage.is_none_or(|lasted| lasted >= HEARTBEAT)
            || self.last_tick.elapsed() >= MISSED_HEARTBEAT;
        let is_alone = self.known_nodes.iter().all(|node| *node == self.shared.node);
        if is_alone || !others_may_owe || !is_long {
            return self.pay_down().await.map(|_| ());
        }
        // One that has just started was in no outage that it knows of. If the others were, they have
        // missed a heartbeat.
        let (others, since) = if outage.is_some() {
            (self.wait_until_found(begun, trips).await?, begun)
        } else {
            (self.known_nodes.clone(), begun.checked_sub(MISSED_HEARTBEAT).unwrap_or(begun))
        };
        self.pay_down().await?;
        self.wait_until_paid(&others, since, trips).await?;
        // What came during the last payment.
        self.pay_down().await.map(|_| ())
    }

    /// Waits until the other gateways have found Redis as well, or the first of them pays. Returns the
    /// names of those that were heard of: the others are not waited for once more.
    async fn wait_until_found(
        &mut self,
        begun: Instant,
        trips: u64,
    ) -> Result<Vec<String>, Failure> {
        // Nobody can have paid by then: a report of this node or of another was missing.
        let mut unpaid_at = Instant::now();
        let others = loop {
            let asked = Instant::now();
            let reports = self.report_state(FOUND, begun.elapsed()).await?;
            let pays = |node: &String| reports.has(node, PAYING);
            if self.known_nodes.iter().all(|node| reports.has_any(node))
                || self.known_nodes.iter().any(pays)
                || begun.elapsed() >= LONGEST_WAIT
                || self.has_tripped_since(trips)
            {
                let known = self.known_nodes.iter();
                break known.filter(|node| reports.has_any(node)).cloned().collect::<Vec<_>>();
            }
            unpaid_at = asked;
            self.poll_again().await?;
        };
        if others.len() > 1 {
            self.payments.refill_until = Some(unpaid_at);
        }
        // Before anything is paid: whoever still waits takes off no more from here on.
        self.report_state(PAYING, Duration::ZERO).await?;
        Ok(others)
    }

    /// Waits until the other gateways owe nothing either, by what they have said since an instant. What
    /// is admitted here meanwhile is paid.
    async fn wait_until_paid(
        &mut self,
        others: &[String],
        since: Instant,
        trips: u64,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut paying_at = begun;
        loop {
            let reports = self.report_state("", since.elapsed()).await?;
            let missing = |node: &&String| !reports.has(node, "");
            if !others.iter().any(|node| missing(&node)) || self.has_tripped_since(trips) {
                return Ok(());
            }
            if begun.elapsed() >= LONGEST_WAIT {
                let recent = self.report_state("", MISSED_HEARTBEAT).await?;
                if others.iter().filter(missing).any(|it| recent.has(it, PAYING)) {
                    paying_at = Instant::now();
                }
                if paying_at.elapsed() >= MISSED_HEARTBEAT || begun.elapsed() >= LONGEST_PAYMENT {
                    return Ok(());
                }
            }
            self.poll_again().await?;
            self.pay().await?;
        }
    }

    async fn poll_again(&mut self) -> Result<(), Failure> {
        sleep(POLL_INTERVAL).await;
        if self.last_heartbeat.elapsed() > HEARTBEAT {
            self.beat().await?;
        }
        Ok(())
    }

    fn has_tripped_since(&self, trips: u64) -> bool {
        *self.shared.breaker.trips().borrow() != trips
    }

    /// Says that this node owes Redis nothing.
    pub(super) async fn report_paid(&self) -> Result<(), Failure> {
        self.report_state("", Duration::ZERO).await.map(|_| ())
    }

    /// Says that this node is still paying, if it does so together with others.
    pub(super) async fn report_paying(&self) -> Result<(), Failure> {
        if self.payments.refill_until.is_some() {
            self.report_state(PAYING, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Says what this node does. The answer is what all have said within `max_age`.
    async fn report_state(&self, state: &str, max_age: Duration) -> Result<Reports, Failure> {
        let member = format!("{}{state}", self.shared.node);
        self.report_in(PAID_NODES, &member, PAID_LIFETIME, max_age).await.map(Reports)
    }
}
