//! Coming back from an outage together with the other gateways that were in it.
//!
//! Each gateway charges what it admitted without Redis when it finds Redis again, less what has refilled
//! since: a full bucket loses that. Two things would let more pass than the limit if each did so by
//! itself. Once one of them has paid, the bucket is full no longer and loses nothing, while the others
//! go on taking it off. And a bucket is no emptier than empty: what one charges counts for nothing if
//! another has spent it out of Redis before.
//!
//! And until the last of them has it in use again, each goes on admitting its share. So they say in a set
//! what they do, and wait for each other: with paying until all have found Redis, with holding requests
//! back until all have paid, and with deciding by Redis until none decides without it any more. Those
//! that are not heard of for two seconds have to be taken for gone.
//!
//! Each hears at another time that all have paid, and requests cannot be held back for as long as that
//! may differ. So the first to hear it names the instant, by Redis's clock, at which all of them stop
//! deciding by their shares: the cutover.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::reports::{FOUND, IN_USE, OutageGroup, PAID, PAYING, READY, Reports};
use super::census::Retention;
use super::supervisor::{HEARTBEAT, Supervisor};
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::reply_deadline::reply_by;

pub(super) mod reports;

/// The set in which gateways say what they do about an outage.
pub(super) const RECOVERY_SET: &str = "paid";

/// How long the others are waited for. They find Redis within a second of each other; one that has
/// ended meanwhile does not.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// One that has found Redis or pays is waited for as long as payments may take.
const LONGEST_PAYMENT: Duration = Duration::from_secs(10);
/// For how long a node is in the set that has said something. Those that have Redis say it at every
/// heartbeat.
const REPORT_LIFETIME: Duration = LONGEST_WAIT;
/// What they say may be dated ahead of the server's clock by so much at least.
const SHORTEST_AHEAD: Duration = Duration::from_millis(100);
/// Without an answered heartbeat for so long Redis was away for some time, whenever that was noticed.
const MISSED_HEARTBEAT: Duration = Duration::from_millis(HEARTBEAT.as_millis() as u64 * 3 / 2);
/// For each gateway, since each of them asks for the reports of all; and at the least and at the most.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(10);
const LONGEST_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The same while requests are held back, which is not for long.
const SHORTEST_HELD_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long requests are held back at the most until no gateway decides without Redis.
const LONGEST_HOLD: Duration = Duration::from_millis(500);
/// For how long, and how often, a gateway that has Redis again says so: those that come back after it
/// believe only what it says from then on.
const ANNOUNCED: Duration = LONGEST_WAIT;
pub(super) const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_millis(100);
/// How old the time may be that reports are dated by while others are waited for: the server's clock
/// may be set meanwhile.
const LONGEST_TIME_AGE: Duration = Duration::from_millis(250);

impl Supervisor {
    /// Pays what was admitted here without Redis, and goes on until the other gateways have paid, too,
    /// unless Redis fails again.
    ///
    /// Only what they say from now on counts: one that has said so before may have lost Redis since,
    /// and owe what it admits now. They are waited for by name, since as many others may have come.
    ///
    /// After less than a heartbeat nobody is waited for if Redis is still the same process: this may have
    /// been the only gateway that was in the outage, and what it admits while it waits comes on top of
    /// what the others admit by Redis.
    ///
    /// The answer is the gateways that are to be [waited for](Self::pay_the_rest) once more, if any are.
    pub(super) async fn pay_with_others(&mut self) -> Result<Option<OutageGroup>, Failure> {
        let begun = Instant::now();
        // Of an attempt just before: the others may have paid then.
        let recent = |it: &Instant| it.elapsed() < LONGEST_PAYMENT;
        self.payments.refill_until = self.payments.refill_until.filter(recent);
        let owes = !self.shared.ledger.lock().is_empty();
        let anybody_may_owe = owes || self.shared.has_local_limits.load(Ordering::Relaxed);
        let outage = self.shared.breaker.outage();
        // One without requests notices an outage at its heartbeat, late.
        let is_long = outage.is_none_or(|lasted| lasted >= HEARTBEAT)
            || self.last_tick.elapsed() >= MISSED_HEARTBEAT
            || self.masters.is_another();
        let is_alone = self.known_nodes.iter().all(|node| *node == self.shared.node);
        if is_alone || !anybody_may_owe {
            self.pay_down().await?;
            return Ok(None);
        }
        if !is_long {
            // Others may have been in an outage for longer, and wait for what this one says.
            self.report_state(if owes { PAYING } else { FOUND }, Duration::ZERO).await?;
            self.pay_down().await?;
            return Ok(Some(OutageGroup::new(Vec::new(), begun)));
        }
        // One that has just started was in no outage that it knows of. If the others were, they have
        // missed a heartbeat.
        let mut group = if outage.is_some() {
            self.wait_until_found(begun).await?
        } else {
            let since = begun.checked_sub(MISSED_HEARTBEAT).unwrap_or(begun);
            OutageGroup::new(self.known_nodes.clone(), since)
        };
        // Redis is another one from here on: this one is to be given up, and is owed nothing.
        if self.has_tripped() {
            return Ok(None);
        }
        self.pay_down().await?;
        self.wait_until_paid(&mut group, begun).await?;
        if self.has_tripped() {
            return Ok(None);
        }
        // What came during the last payment.
        self.pay_down().await?;
        // A worker may have lost its connection meanwhile. The others are not to use Redis while this one
        // begins anew, unless that takes too long.
        if self.wait_for_links().await && group.are_recovering(&self.shared.node) {
            self.wait_for_cutover(group.since).await?;
            group.is_cutover = true;
        }
        Ok(Some(group))
    }

    /// Waits until the other gateways have found Redis as well, or the first of them pays. Returns those
    /// that may yet be heard of, this node included.
    async fn wait_until_found(&mut self, begun: Instant) -> Result<OutageGroup, Failure> {
        // Nobody that waits can have paid by then: a report of this node or of another was missing. But
        // one may have waited for fewer, and pay already.
        let before = self.report_state(FOUND, REPORT_LIFETIME).await?;
        let is_paying = before.has_other(&self.shared.node, PAYING);
        let mut unpaid_at =
            begun.checked_sub(REPORT_LIFETIME).filter(|_| is_paying).unwrap_or(begun);
        let heard = loop {
            let asked = Instant::now();
            let reports = self.report_state(FOUND, begun.elapsed()).await?;
            let is_late = begun.elapsed() >= LONGEST_WAIT;
            if self.known_nodes.iter().all(|node| reports.has_any(node))
                || reports.has_other(&self.shared.node, PAYING)
                || is_late
                || self.has_tripped()
            {
                let known = self.known_nodes.iter();
                let heard = known.filter(|node| !is_late || reports.has_any(node)).cloned();
                let mut heard = OutageGroup::new(heard.collect(), begun);
                heard.note(&reports);
                break heard;
            }
            // One that says that it owes nothing may have paid without waiting, or decides by Redis, as
            // does one that is ready.
            if !is_paying && !reports.has_other_paid(&self.shared.node) {
                unpaid_at = asked;
            }
            self.poll_again(self.poll_interval(SHORTEST_POLL_INTERVAL)).await?;
        };
        if self.has_tripped() {
            return Ok(heard);
        }
        let earlier = self.payments.refill_until;
        self.payments.refill_until = Some(earlier.map_or(unpaid_at, |it| it.min(unpaid_at)));
        // Before anything is paid: whoever still waits takes off no more from here on.
        self.report_state(PAYING, Duration::ZERO).await?;
        Ok(heard)
    }

    /// Waits until the other gateways owe nothing either. What is admitted here meanwhile is paid.
    async fn wait_until_paid(
        &mut self,
        group: &mut OutageGroup,
        begun: Instant,
    ) -> Result<(), Failure> {
        let mut is_logged = self.shared.breaker.outage().is_some();
        loop {
            let reports = self.report_state(PAID, group.since.elapsed()).await?;
            group.note(&reports);
            let is_missing = |node: &&String| !reports.has_paid(node);
            let mut missing = group.names.iter().filter(is_missing).peekable();
            // Whoever has named the instant has waited for longer, or knows of fewer. It decides by Redis
            // from then on, so that whom this one still misses is waited for no longer.
            let is_over = missing.peek().is_none() || reports.cutover().is_some();
            if is_over || self.has_tripped() {
                return Ok(());
            }
            if begun.elapsed() >= LONGEST_WAIT {
                // Those that are on their way are waited for, the others are taken for gone.
                let recent = self.report_state(PAID, REPORT_LIFETIME).await?;
                if !missing.any(|node| recent.has_yet_to_pay(node))
                    || begun.elapsed() >= LONGEST_PAYMENT
                {
                    return Ok(());
                }
            }
            if !std::mem::replace(&mut is_logged, true) {
                let missing = missing.count();
                let gateways = if missing == 1 { "gateway" } else { "gateways" };
                tracing::info!(
                    "waiting up to {LONGEST_WAIT:?} for {missing} {gateways} heard of lately: what was \
                     admitted there without Redis may have to be charged"
                );
            }
            self.poll_again(self.poll_interval(SHORTEST_POLL_INTERVAL)).await?;
            if self.has_tripped() {
                return Ok(());
            }
            self.pay().await?;
        }
    }

    /// Waits until the instant at which all stop deciding without Redis, and names it if nobody has. What
    /// is admitted here meanwhile is paid.
    async fn wait_for_cutover(&mut self, since: Instant) -> Result<(), Failure> {
        // Meanwhile each of the others asks whether all have paid, and those that name it at the same
        // moment hear of each other.
        let pause = self.poll_interval(SHORTEST_POLL_INTERVAL);
        let notice = (pause + self.shared.timeout.min(LONGEST_POLL_INTERVAL)) * 2;
        // Also if the server's clock is set meanwhile.
        let latest = Instant::now() + notice;
        let mut reports = self.report_state(PAID, since.elapsed()).await?;
        if reports.cutover().is_none()
            && let Some(named) = self.server_clock.at(latest)
        {
            let member = reports::cutover_at(named);
            let retention = self.report_retention();
            let asked = self.report_in(RECOVERY_SET, &member, retention, since.elapsed()).await;
            reports = Reports(asked?);
        }
        loop {
            let cutover = reports.cutover().and_then(|it| self.server_clock.instant_of(it));
            let until = cutover.unwrap_or(latest).min(latest);
            let left = until.saturating_duration_since(Instant::now());
            if left <= pause || self.has_tripped() {
                sleep(left).await;
                return Ok(());
            }
            // A payment is not to be given up halfway; all else is not to be late for.
            let Some(polled) = reply_by(until, self.poll_again(pause)).await else { return Ok(()) };
            polled?;
            self.pay().await?;
            let asked = self.report_state(PAID, since.elapsed());
            let Some(heard) = reply_by(until, asked).await else { return Ok(()) };
            reports = heard?;
        }
    }

    /// Pays the last debts while requests are held back, and waits until the others are ready.
    pub(super) async fn pay_the_rest(&mut self, group: Option<OutageGroup>) -> Result<(), Failure> {
        let held = Instant::now();
        self.pay().await?;
        let Some(mut group) = group else { return Ok(()) };
        self.wait_until_ready(&mut group, held).await?;
        if self.has_tripped() {
            return Ok(());
        }
        // What could not be held back for so long.
        self.pay().await.map(|_| ())
    }

    /// Waits until the others decide nothing without Redis any more either: the last of them that has
    /// paid would else spend by Redis what the others still admit by their shares. A worker here that has
    /// lost its connection since it was last looked at is waited for as well. Requests are held back
    /// meanwhile, so this is no longer than one of them may wait; what then passes without Redis is owed,
    /// as always.
    async fn wait_until_ready(
        &mut self,
        group: &mut OutageGroup,
        held: Instant,
    ) -> Result<(), Failure> {
        // A little is left for what those still have to do that were held back.
        let until = held + LONGEST_HOLD.min(self.shared.timeout * 3 / 4);
        loop {
            let asked = self.report_state(READY, group.since.elapsed());
            // Whether Redis is too slow is for the requests to find out that have been held back.
            let Some(reports) = reply_by(until, asked).await else { return Ok(()) };
            group.note(&reports?);
            let left = until.saturating_duration_since(Instant::now());
            let are_ready = group.are_ready() && self.shared.breaker.all_links_are_up(self.trips);
            if are_ready || left.is_zero() || self.has_tripped() {
                return Ok(());
            }
            sleep(self.poll_interval(SHORTEST_HELD_POLL_INTERVAL).min(left)).await;
        }
    }

    async fn poll_again(&mut self, pause: Duration) -> Result<(), Failure> {
        sleep(pause).await;
        if self.time_read.elapsed() > LONGEST_TIME_AGE {
            self.read_time().await?;
        }
        if self.last_heartbeat.elapsed() > HEARTBEAT {
            self.beat().await?;
        }
        Ok(())
    }

    fn poll_interval(&self, shortest: Duration) -> Duration {
        let nodes = u32::try_from(self.known_nodes.len()).unwrap_or(u32::MAX);
        POLL_INTERVAL.saturating_mul(nodes).clamp(shortest, LONGEST_POLL_INTERVAL)
    }

    /// Whether others may just be waiting to hear that this node has Redis again.
    pub(super) fn is_announced(&self) -> bool {
        self.restored.is_some_and(|restored| restored.elapsed() < ANNOUNCED)
    }

    /// Whether the breaker has opened again during this recovery, so that it is to be given up.
    pub(super) fn has_tripped(&self) -> bool {
        *self.shared.breaker.trips().borrow() != self.trips
    }

    /// Says that this node owes Redis nothing. Not if Redis was lost meanwhile: from then on it may.
    pub(super) async fn announce(&self) -> Result<(), Failure> {
        if !self.shared.breaker.is_open() {
            self.report_state(IN_USE, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// The heartbeat during a long payment. It says as well that this node is still paying, if it does so
    /// together with others.
    pub(super) async fn beat_while_paying(&mut self) -> Result<(), Failure> {
        self.beat().await?;
        if self.payments.are_joint() {
            self.report_state(PAYING, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// What was said by a clock that is behind, as that of a replica may be, must not look as if it were
    /// said later. What is known of the clock is late by no more than a reply takes.
    fn report_retention(&self) -> Retention {
        let max_ahead = self.shared.timeout.clamp(SHORTEST_AHEAD, REPORT_LIFETIME);
        Retention { lifetime: REPORT_LIFETIME, max_ahead }
    }

    /// Says what this node does. The answer is what all have said within `max_age`.
    async fn report_state(&self, state: &str, max_age: Duration) -> Result<Reports, Failure> {
        let member = format!("{}{state}", self.shared.node);
        self.report_in(RECOVERY_SET, &member, self.report_retention(), max_age).await.map(Reports)
    }
}
