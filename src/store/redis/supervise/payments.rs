//! Paying what was admitted without Redis, in pieces between which others are served.
//!
//! While the breaker is open, requests go on being decided here and their debts come on top. So what
//! is owed is paid in rounds: each pays all there is, and the next finds only what came meanwhile.
//! Once that little can be paid in a fraction of the time that a request may wait, the breaker is
//! half closed, and the rest is paid while requests wait ([`Supervisor::restore`](super::supervisor)).

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::ledger::Debt;
use super::silence::{LATE_PAYMENTS, watch_silence};
use super::supervisor::{HEARTBEAT, PATIENCE, SUPERVISOR, Supervisor};
use crate::store::BucketId;
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::hash_slot::{HashSlotGroup, group_by_hash_slot, hash_slot};
use crate::store::redis::connect::reply_deadline::{is_stall, reply_by};
use crate::store::redis::connect::session::Session;
use crate::store::redis::decide::worker_link::{AdjustTarget, adjust};
use crate::store::redis::wire::batch::Fence;

/// Debts that are paid in one call: Redis does nothing else for some three milliseconds.
const DEBTS_PER_PAYMENT: usize = 200;
/// Calls to a cluster at a time. Most have a single debt, since most debts have a slot of their own.
const PAYMENTS_AT_ONCE: usize = 64;
/// The last debts have to be paid in one of so many parts of the time that a request may wait.
const HOLD_FRACTION: u32 = 4;
/// So long it is tried to get there. Then the last debts take what they take: requests that cannot
/// wait for it are decided here.
const LONGEST_PAY_DOWN: Duration = Duration::from_secs(10);
/// What Redis takes for a debt at the most, by which a payment may take longer than `timeout`.
const PER_DEBT: Duration = Duration::from_micros(50);
/// After this a payment of which it is not known whether it was made counts as made: its fence may
/// be gone.
const UNCONFIRMED_LIFETIME: Duration = Duration::from_secs(300);

type Owed = (BucketId, Debt);

/// What has been paid.
#[derive(Debug)]
pub(crate) struct Payments {
    /// The name of the fence, how many payments were made, and those of which it is not known whether
    /// they were: see `lua/adjust.lua`.
    fence: Vec<u8>,
    count: u64,
    unconfirmed: Vec<Payment>,
    /// How many in a row were late while Redis was in use.
    late: u32,
    /// Debts that could not be written down during this outage.
    unpaid: u64,
    /// After this nothing is taken off debts for what has refilled: another gateway may have paid, and a
    /// bucket that is not full loses nothing.
    pub(super) refill_until: Option<Instant>,
}

/// Debts that are paid together.
#[derive(Debug)]
struct Payment {
    number: u64,
    begun: Instant,
    slot: u16,
    /// Its fence, which lies in its slot.
    fence: Vec<u8>,
    debts: Vec<Owed>,
    /// It has been sent before without an answer: Redis may have made it.
    uncertain: bool,
}

impl Payments {
    pub(crate) fn new(fence: Vec<u8>) -> Self {
        Payments {
            fence,
            count: 0,
            unconfirmed: Vec::new(),
            late: 0,
            unpaid: 0,
            refill_until: None,
        }
    }

    /// Whether the other gateways pay at this time, too.
    pub(super) fn are_joint(&self) -> bool {
        self.refill_until.is_some()
    }

    /// The fence of a payment to a cluster, in the slot of the bucket. A tag in the prefix decides on
    /// the slot of both; without one the name of the bucket is the tag. Each payment has another, since
    /// many are under way at a time, and one that is made again must not be taken for made because a
    /// later one was.
    fn fence_beside(&self, bucket: &[u8]) -> Vec<u8> {
        [&self.fence[..], b":{", bucket, b"}"].concat()
    }
}

impl Supervisor {
    /// Pays until what comes meanwhile is so little that requests can wait for it.
    pub(crate) async fn pay_down(&mut self) -> Result<(), Failure> {
        self.wait_for_refunds().await;
        let begun = Instant::now();
        let enough = self.shared.timeout / HOLD_FRACTION;
        while begun.elapsed() < LONGEST_PAY_DOWN {
            let round = Instant::now();
            let paid = self.pay().await?;
            let pace = round.elapsed() / u32::try_from(paid).unwrap_or(u32::MAX).max(1);
            let left = self.shared.ledger.lock().debts();
            if left == 0 || pace.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)) < enough {
                break;
            }
        }
        Ok(())
    }

    /// The same while Redis is in use. What an outage that has begun meanwhile leaves is paid together
    /// with the other gateways.
    pub(crate) async fn pay_in_use(&mut self) -> Result<(), Failure> {
        if self.shared.breaker.is_open() {
            return Ok(());
        }
        self.pay().await.map(|_| ())
    }

    /// Charges what was admitted without Redis, and says how many buckets that were.
    pub(crate) async fn pay(&mut self) -> Result<usize, Failure> {
        let paid = self.pay_all().await;
        let unconfirmed = self.payments.unconfirmed.iter().flat_map(|it| &it.debts);
        let unconfirmed = unconfirmed.map(|(bucket, _)| *bucket);
        self.shared.ledger.lock().end_payment(unconfirmed);
        self.shared.debts_paid.notify_waiters();
        paid
    }

    async fn pay_all(&mut self) -> Result<usize, Failure> {
        let Some(session) = self.session.clone() else { return Ok(0) };
        let (mut again, forgotten): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.payments.unconfirmed)
                .into_iter()
                .partition(|payment| payment.begun.elapsed() < UNCONFIRMED_LIFETIME);
        let forgotten = forgotten.iter().map(|payment| payment.debts.len()).sum();
        self.shared.ledger.lock().paid(forgotten);
        again.iter_mut().for_each(|payment| self.age(&mut payment.debts));
        self.send(&session, again).await?;
        let debts = {
            let mut ledger = self.shared.ledger.lock();
            self.payments.unpaid += ledger.take_left_out();
            ledger.take(!self.shared.breaker.is_open())
        };
        let count = debts.len();
        let cluster = session.is_cluster();
        let slot_of = |(_, debt): &Owed| if cluster { hash_slot(&debt.name) } else { 0 };
        let mut groups = group_by_hash_slot(debts, slot_of);
        let most = if cluster { PAYMENTS_AT_ONCE } else { 1 };
        while !groups.is_empty() {
            let mut payments = Vec::new();
            while payments.len() < most
                && let Some(HashSlotGroup { slot, items }) = groups.last_mut()
            {
                let slot = *slot;
                let mut due: Vec<Owed> =
                    items.drain(items.len().saturating_sub(DEBTS_PER_PAYMENT)..).collect();
                if items.is_empty() {
                    groups.pop();
                }
                self.age(&mut due);
                let fence = match due.first() {
                    Some((_, first)) if cluster => self.payments.fence_beside(&first.name),
                    _ => self.payments.fence.clone(),
                };
                let debts = due.iter().map(|(bucket, debt)| (*bucket, debt));
                self.shared.ledger.lock().note_payment(debts);
                self.payments.count += 1;
                let (number, begun) = (self.payments.count, Instant::now());
                payments.push(Payment { number, begun, slot, fence, debts: due, uncertain: false });
            }
            let made = self.send(&session, payments).await;
            if let Err(failure) = made {
                self.put_back(groups.into_iter().flat_map(|group| group.items));
                return Err(failure);
            }
            // A long payment is no reason to count as gone.
            if self.last_heartbeat.elapsed() > HEARTBEAT
                && let Err(failure) = self.beat_while_paying().await
            {
                self.put_back(groups.into_iter().flat_map(|group| group.items));
                return Err(failure);
            }
        }
        Ok(count)
    }

    /// Waits until all refunds are made that are due by now. A bucket goes no lower than empty: a debt
    /// that is charged on top of what should not be there would be cut off, and what made it so deep
    /// would come back all the same.
    pub(crate) async fn wait_for_refunds(&self) {
        let Some(session) = &self.session else { return };
        let (begun, refunds) = (Instant::now(), &self.shared.refunds_in_flight);
        let due = refunds.due();
        let refunded = async {
            while refunds.are_under_way(due) && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        watch_silence(&self.shared, session, refunded).await;
    }

    /// Warns once of an outage in which more was admitted than could be written down.
    pub(crate) fn warn_of_unpaid(&mut self) {
        let unpaid = std::mem::take(&mut self.payments.unpaid);
        if unpaid > 0 {
            tracing::warn!(
                "more buckets owed something than max_keys has room for: what {unpaid} requests \
                 spent in shared ones without Redis is not charged to it"
            );
        }
    }

    /// Leaves out what has refilled meanwhile.
    fn age(&self, debts: &mut Vec<Owed>) {
        // They are all of one hash slot.
        let Some((_, first)) = debts.first() else { return };
        let since = self.payments.refill_until.map_or(Duration::ZERO, |it| it.elapsed());
        let now = self.shared.now_of(&first.name);
        let (nodes, before) = (self.shared.nodes(), debts.len());
        let mut ledger = self.shared.ledger.lock();
        ledger.age(debts, now, now.before(since), nodes);
        ledger.paid(before - debts.len());
    }

    /// Makes payments side by side. One of which it cannot be known whether it was made is made again
    /// under the same number, which Redis does not do twice.
    async fn send(&mut self, session: &Session, payments: Vec<Payment>) -> Result<(), Failure> {
        let begun = Instant::now();
        let (deadline, context) = (begun + PATIENCE, self.shared.call_context(SUPERVISOR));
        let pay = async |payment: &Payment| {
            if payment.debts.is_empty() {
                return Ok(());
            }
            let adjustments: Vec<_> = payment.debts.iter().map(|(_, it)| it.adjustment()).collect();
            let fence = Fence { name: &payment.fence, call: payment.number };
            let target = AdjustTarget { session, slot: payment.slot, deadline };
            adjust(target, &adjustments, Some(fence), context).await
        };
        let made = self.watch_time(&payments, join_all(payments.iter().map(pay))).await;
        let mut all = Ok(());
        for (payment, paid) in payments.into_iter().zip(made) {
            match &paid {
                Ok(()) => self.shared.ledger.lock().paid(payment.debts.len()),
                // Under another number it could be made twice.
                Err(failure) if failure.is_silence() || payment.uncertain => {
                    self.payments.unconfirmed.push(Payment { uncertain: true, ..payment });
                }
                Err(_) => self.put_back(payment.debts),
            }
            all = all.and(paid);
        }
        all
    }

    /// Waits for payments, and judges Redis by how long they take. Where all requests are for buckets that
    /// owe something, no call shows that it answers, or that it is too slow. They cost nothing of the
    /// budget of late calls: calls in time alone refill it, and there may be few of them.
    async fn watch_time(
        &mut self,
        payments: &[Payment],
        made: impl Future<Output = Vec<Result<(), Failure>>>,
    ) -> Vec<Result<(), Failure>> {
        let debts: usize = payments.iter().map(|it| it.debts.len()).sum();
        let in_time = self.shared.timeout + PER_DEBT * u32::try_from(debts).unwrap_or(u32::MAX);
        let breaker = &self.shared.breaker;
        let (mut missed, mut made) = (0, pin!(made));
        let made = loop {
            let deadline = Instant::now() + in_time;
            if let Some(made) = reply_by(deadline, &mut made).await {
                break made;
            }
            // A gateway that stood still has not waited for Redis: it may not even have sent them.
            if is_stall(deadline, Instant::now()) {
                continue;
            }
            missed += 1;
            if !breaker.is_open() {
                breaker.begin_silence();
                if self.payments.late + missed >= LATE_PAYMENTS {
                    breaker.trip(&Failure::timeout());
                }
            }
        };
        // Of one that has aged away nothing was sent.
        let is_answered = |(payment, made): (&Payment, &Result<(), Failure>)| {
            made.is_ok() && !payment.debts.is_empty()
        };
        if payments.iter().zip(&made).any(is_answered) {
            self.payments.late = match missed {
                0 => {
                    breaker.end_silence();
                    0
                }
                _ if breaker.is_open() => 0,
                _ => self.payments.late + 1,
            };
        }
        made
    }

    /// Puts debts back that are not paid.
    fn put_back(&self, debts: impl IntoIterator<Item = Owed>) {
        let mut ledger = self.shared.ledger.lock();
        self.shared.quiet_since.disturb();
        for (bucket, debt) in debts {
            let now = self.shared.now_of(&debt.name);
            ledger.put_back(bucket, debt, now);
        }
    }
}

#[cfg(test)]
mod tests;
